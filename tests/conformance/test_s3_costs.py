"""What each operation costs in requests, as docs/s3.md says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import obstore
import pytest
import s3fs

from prefect_dispatch.format.deadline import DeadlineTerms, TotalDeadline
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_token
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.job.deadline import DeadlineClock, settle
from prefect_dispatch.model.facts import CarriedBy
from prefect_dispatch.stores.deadline import read_past
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_managed import ManagedStore
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from support.s3.access import new_url, store_at
from support.s3.server import Server

KINDS = {"put": "PUT", "get": "GET", "get_range": "GET", "head": "GET", "list": "LIST"}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests so far, by kind."""
    counts: Counter[str] = Counter()

    def count(name: str, kind: str) -> None:
        real = getattr(obstore, name)

        def counting(*arguments, **options):
            counts[kind] += 1
            return real(*arguments, **options)

        monkeypatch.setattr(obstore, name, counting)

    for name, kind in {**KINDS, "delete": "DELETE"}.items():
        count(name, kind)
    real = s3fs.S3FileSystem._call_s3

    async def call(self, method, *arguments, **options):
        counts["GET" if method == "get_object" else "PUT"] += 1
        return await real(self, method, *arguments, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", call)
    page = S3Access.page

    def ask(self, *arguments):
        counts["LIST"] += 1
        return page(self, *arguments)

    monkeypatch.setattr(S3Access, "page", ask)
    return counts


@contextmanager
def costs(counted: Counter[str], **expected: int) -> Iterator[None]:
    """Compare what the block costs with what it should."""
    counted.clear()
    yield
    assert dict(counted) == expected


def test_each_operation_costs_what_the_page_says(s3_server: Server, tmp_path: Path, counted: Counter[str]) -> None:
    # given a root in a bucket
    url = new_url(s3_server, "costs")
    store = store_at(s3_server, url)
    root = LineageRoot(ManagedStore(store, str(tmp_path / "workplace")))
    root.prepare("", "digits")
    epoch, attempt = Epoch(0, 1, 0), attempt_of(new_token(), 0)
    # when one execution after the other begins, saves and resumes, then each costs what it should
    with costs(counted, PUT=2, LIST=1, DELETE=1):
        store.probe()
    with costs(counted, PUT=5, GET=4, LIST=4, DELETE=1):
        root.enter("", "digits")
        root.claim(epoch, attempt, "", "run")
        root.start(epoch, attempt, {})
        root.pin(epoch, attempt, ResumeChoice())
    save = Path(root.absolute(f"exec/{attempt}/save"))
    save.mkdir(parents=True)
    for number in range(3):
        (save / f"part-{number}").write_bytes(b"w" * 1000)
    with costs(counted, PUT=5, LIST=2):
        root.publish(epoch, attempt, f"exec/{attempt}/save", 1)
    with costs(counted, PUT=6, LIST=1):
        root.publish(epoch, attempt, f"exec/{attempt}/save", 2, snapshot=True)
    journal = root.journal(attempt)
    journal.append("status", text="first")
    with costs(counted, PUT=1):
        journal.append("status", text="second")
    with costs(counted, GET=5, LIST=4):
        resume = root.latest()
    assert resume.publication is not None and resume.manifest is not None
    with costs(counted, GET=3):
        root.store.copy(resume.publication.path, "meta/next/resume/save", resume.manifest.files)


def test_a_total_deadline_costs_what_the_page_says(s3_server: Server, counted: Counter[str]) -> None:
    # given a root in a bucket
    root = LineageRoot(store_at(s3_server, new_url(s3_server, "costs")))
    root.prepare("", "digits")
    terms = DeadlineTerms(timedelta(hours=8), timedelta(minutes=2))
    # when one execution after the other learns its deadline, then each costs a little more
    for n, before, after in ((1, {"LIST": 1}, {"PUT": 1}), (2, {"LIST": 2, "GET": 3}, {"PUT": 1, "GET": 2})):
        attempt, clock = attempt_of(new_token(), 0), DeadlineClock(0.0)
        with costs(counted, **before):
            past = read_past(root.store, 0)
        root.claim(Epoch(0, n, 0), attempt, "", "run", clock.now())
        root.start(Epoch(0, n, 0), attempt, {"started_at": clock.now()})
        root.journal(attempt).append("exit", at=clock.now())
        began_at = clock.now() if past.first_claim is None else past.first_claim
        with costs(counted, **after):
            settle(root.store, terms, clock, TotalDeadline("digits", 0, attempt, began_at, 8 * 3600.0, {}))


def test_a_record_costs_what_the_page_says(s3_server: Server, counted: Counter[str]) -> None:
    url = new_url(s3_server, "costs")
    stores = store_at(s3_server, f"{url}/digits"), store_at(s3_server, url)

    def view() -> Record:
        return Record(stores[0], stores[1].ledger("open"), "digits", ManualClock())

    record = view()
    record.append(plain_opening())
    with costs(counted, PUT=1, GET=2):
        record.append(CarriedBy(flow_run="1"))
    for number in range(70):
        record.append(CarriedBy(flow_run=f"{number}"))
    with costs(counted, GET=2):
        record.refresh()
    with costs(counted, GET=13, LIST=2):
        view().refresh()
