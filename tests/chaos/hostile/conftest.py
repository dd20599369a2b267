"""A lineage whose job is hostile, a neighbour that is not, a secret outside, and somebody who looks at it all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.journal import ExitNote, ExitReason, JournalKind
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Ended, Observed, Opened, RestartsForbidden, Retired, Submitted, Submitting
from prefect_dispatch.model.observation import ObjectRef, ObjectState
from prefect_dispatch.model.plan import plan
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED
from support.environment import environment_without

SECRET = "hunter2-of-the-operator"
MOST_SECONDS = 10.0
"""For one operation on a busy machine with two slow cores; each takes a fraction of it when it is alone."""
MOST_MEMORY = 500 * 1024 * 1024
TOKENS = ("a" * 16, "b" * 16)
USUAL = ("view", "advance", "status", "timeline -o", "list", "latest", "check")
"""What a look does unless a test wants more: each reads the root in a way of its own."""
ALLOWED_CODES = {0, 3, 65, 69, 74, 191}


@dataclass
class Victim:
    """Two lineages in one root, the first of which has a hostile job; its record lies elsewhere."""

    folder: Path

    lineage = "digits"
    neighbour = "letters"

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def records(self) -> Path:
        return self.folder / "records"

    @property
    def outside(self) -> Path:
        return self.folder / "outside"

    @property
    def own(self) -> Path:
        """What the hostile job may write to."""
        return self.root / self.lineage

    @property
    def attempt(self) -> str:
        """The execution that runs; the one before it is ``first``."""
        return f"{TOKENS[1]}-0"

    @property
    def first(self) -> str:
        return f"{TOKENS[0]}-0"

    @property
    def meta(self) -> Path:
        return self.own / "meta" / self.attempt

    def lineage_root(self, lineage: str | None = None) -> LineageRoot:
        return LineageRoot(PosixStore(self.root / (lineage or self.lineage)))

    def build(self) -> None:
        self.outside.mkdir(parents=True)
        (self.outside / "secret").write_text(SECRET)
        (self.outside / "old").mkdir()
        (self.outside / "old" / "kept").write_text("kept")
        for lineage in (self.lineage, self.neighbour):
            self._record(lineage)
            self._saves(lineage)

    def _record(self, lineage: str) -> None:
        spec = JobSpec.read(
            {"lineage": lineage, "command": ["train"], "store": {"root": str(self.root)}}, "the victim's job"
        )
        PosixStore(self.records).probe()
        PosixStore(self.records / lineage).probe()
        record = open_record(str(self.records), lineage, SystemClock())
        now = SystemClock().now()
        record.append(
            Opened(
                spec=spec,
                plan=plan(spec, SCRIPTED, root_visible=True),
                identity=spec.identity_digests(),
                owner="someone",
                root=str(self.root),
                record_root=str(self.records),
                workdir="/",
                scheduler={"type": "local", "state_folder": str(self.folder / "state")},
            )
        )
        reference = ObjectRef(scheduler=SCRIPTED.scheduler, id="1", token=TOKENS[0])
        for fact in (
            self._submitting(1),
            Submitted(n=1, object=reference),
            Observed(n=1, restart=0, state=ObjectState.RUNNING, started_at=now),
            Ended(n=1, restart=0, cause=Cause.TIMED_OUT, ended_at=now, detail="TIMEOUT", published=1),
            RestartsForbidden(n=1),
            Retired(n=1),
            self._submitting(2),
            Submitted(n=2, object=reference.model_copy(update={"token": TOKENS[1]})),
            Observed(n=2, restart=0, state=ObjectState.RUNNING, started_at=now),
        ):
            record.append(fact)

    def _submitting(self, n: int) -> Submitting:
        return Submitting(
            n=n,
            token=TOKENS[n - 1],
            writer="supervisor",
            give_up_at=SystemClock().now(),
            base="latest",
            floor=0,
            restarts_allowed=False,
        )

    def _saves(self, lineage: str) -> None:
        record = open_record(str(self.records), lineage, SystemClock()).id()
        root = self.lineage_root(lineage)
        root.prepare(record, lineage)
        for number, attempt in enumerate((self.first, self.attempt), 1):
            epoch = Epoch(0, number, 0)
            root.claim(epoch, attempt, record, "run")
            root.start(epoch, attempt, {"host": "node1"})
            root.pin(epoch, attempt, ResumeChoice())
            save = self.root / lineage / "exec" / attempt / f"step-{number}"
            save.mkdir()
            (save / "model.bin").write_bytes(b"weights %d" % number)
            root.publish(epoch, attempt, f"exec/{attempt}/step-{number}", number)
            journal = root.journal(attempt)
            journal.append(JournalKind.PROGRESS.value, at=1.7e9, percent=50.0)
            journal.append(JournalKind.STATUS.value, at=1.7e9, text="training")
        note = ExitNote(True, 0, None, 0, ExitReason.PROGRAM)
        root.journal(self.first).append(JournalKind.EXIT.value, at=1.7e9, **note.fields())

    def named(self, place: str) -> str:
        """A place in the hostile job's root, whose names are left open: of its attempt, entries and publication."""
        return place.format(
            attempt=self.attempt,
            entry=f"{2:020d}",
            second=f"{2_000_000:020d}",
            manifest=next(path.name for path in (self.meta / "saves").iterdir()),
            publication=self.publication(2_000_000, 2, f"exec/{self.attempt}/step-2"),
        )

    def replace(self, place: str) -> Path:
        """Clear a place in the hostile job's root, for something else to be put there."""
        path = self.own / place
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def publication(self, epoch: int, step: int, path: str) -> str:
        return Publication(Epoch.of(epoch), step, path).name

    def outer_world(self) -> dict[str, tuple[Any, ...]]:
        """All that the hostile job has no business with: the outside, the neighbour, the records."""
        seen: dict[str, tuple[Any, ...]] = {}
        for top in (self.outside, self.root / self.neighbour, self.records):
            for path in [top, *sorted(top.rglob("*"))]:
                status = path.lstat()
                content = path.read_bytes() if path.is_file() else b""
                seen[str(path)] = (status.st_mode, status.st_mtime_ns if path.is_file() else 0, content)
        return seen


class Looker:
    """Somebody who looks, in a process of their own; see ``looker.py``."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("looker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment_without("DISPATCH_"),
        )

    def look(self, victim: Victim, lineage: str = "", user: int = 0, only: list[str] | None = None) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        scratch = victim.folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        if user:
            scratch.chmod(0o777)
        order = {
            "root": str(victim.root),
            "records": str(victim.records),
            "lineage": lineage or victim.lineage,
            "scratch": str(scratch),
            "user": user,
            "only": only,
        }
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def faults_of(answer: dict[str, Any]) -> list[str]:
    """What a look must not have come to: a crash, a hang, a hunger for memory, a disclosure, an unruly terminal."""
    found: list[str] = []
    peak = answer.pop("peak", 0)
    if peak > MOST_MEMORY:
        found.append(f"it took {peak // 2**20} MiB")
    for name, each in answer.items():
        if each["error"]:
            found.append(f"{name} crashed: {each['error'].strip().splitlines()[-1][:300]}")
            continue
        text = each["out"] + each["err"]
        if each["code"] not in ALLOWED_CODES:
            found.append(f"{name} exited {each['code']}: {each['err'][-300:]!r}")
        if each["seconds"] > MOST_SECONDS:
            found.append(f"{name} took {each['seconds']:.1f} s")
        if "Traceback" in text:
            found.append(f"{name} printed a traceback")
        if SECRET in text:
            found.append(f"{name} discloses the secret")
        unruly = {c for c in text if not c.isprintable() and c not in "\n\t"}
        if unruly:
            found.append(f"{name} prints {sorted(map(ascii, unruly))}")
        if name == "advance" and not each["out"].strip().endswith("succeeded"):
            found.append(f"advance came to {each['out'][-200:]!r}")
    return found


@pytest.fixture(scope="session")
def looker() -> Iterator[Looker]:
    looker = Looker()
    yield looker
    looker.close()


@pytest.fixture(scope="session")
def made_victim(tmp_path_factory: pytest.TempPathFactory) -> Victim:
    victim = Victim(tmp_path_factory.mktemp("victim"))
    victim.build()
    shutil.copytree(victim.own, victim.folder / "sound", symlinks=True)
    return victim


@pytest.fixture
def victim(made_victim: Victim) -> Iterator[Victim]:
    yield made_victim
    for path in made_victim.own.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(made_victim.own)
    shutil.copytree(made_victim.folder / "sound", made_victim.own, symlinks=True)


@pytest.fixture
def unharmed(victim: Victim, looker: Looker) -> Callable[..., dict[str, Any]]:
    """Looks at the victim in every way, and makes sure that nobody came to harm."""
    before = victim.outer_world()
    resumed = victim.lineage_root(victim.neighbour).latest().publication

    def look(only: Sequence[str] = USUAL, **options: Any) -> dict[str, Any]:
        answer = looker.look(victim, only=list(only), **options)
        said = dict(answer)
        assert faults_of(answer) == []
        assert victim.outer_world() == before
        assert victim.lineage_root(victim.neighbour).latest().publication == resumed
        return said

    return look
