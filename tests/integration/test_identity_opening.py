"""What a supervisor makes of providers: what it asks at the opening, what it leaves, and what it tells of changes."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.errors import LineageError, SpecError
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.plan import Reference
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.schedulers.registry import read_settings
from prefect_dispatch.supervisor.assemble import plan_of, root_view_of, supervisor_of
from prefect_dispatch.supervisor.choices import run_again
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import ExecutionOver, drive
from prefect_dispatch.supervisor.identity import identity_of, unseen_fields
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.record import Record

MakeJob = Callable[..., ResolvedJob]


def sha256(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@pytest.fixture
def job(tmp_path: Path) -> MakeJob:
    """A job in a folder of its own, with an identity."""

    def make(scheduler: dict[str, Any] | None = None, command: str = "true", **identity: Any) -> ResolvedJob:
        fields = {
            "lineage": "digits",
            "command": ["sh", "-c", command],
            "workdir": str(tmp_path),
            "environment": {"KNOWN": "1"},
            "store": {"root": str(tmp_path / "runs")},
            "saves": {"kind": "marker"},
            "identity": identity,
        }
        local = read_settings({"type": "local", "state_folder": str(tmp_path / "state")}, tmp_path)
        runs = str(tmp_path / "runs")
        return ResolvedJob(
            spec=JobSpec.read(fields, "job"),
            workdir=str(tmp_path),
            root=runs,
            record_root=runs,
            scheduler=scheduler or local,
        )

    return make


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return open_record(str(tmp_path / "runs"), "digits", SystemClock())


def carry(record: Record, state: LineageState) -> LineageState:
    """Carry a lineage until it is over or held."""

    async def go() -> None:
        supervisor = supervisor_of(record, state, SystemClock())

        async def nothing(_: object) -> None: ...

        while isinstance(await drive(supervisor, carrier=None, after_each=nothing), ExecutionOver):
            pass

    asyncio.run(go())
    return record.refresh()


def test_a_local_job_is_opened_with_all_that_its_providers_say(
    job: MakeJob, record: Record, tmp_path: Path, monkeypatch
):
    # given a job that will inherit what this process has
    (tmp_path / "cfg.yaml").write_text("lr: 1")
    monkeypatch.setenv("INHERITED", "2")
    monkeypatch.delenv("NOT_SET", raising=False)
    resolved = job(seed=7, config="file:cfg.yaml", a="env:KNOWN", b="env:INHERITED", c="env:NOT_SET", path="env:PATH")
    # when
    state = open_lineage(record, resolved, plan_of(resolved))
    # then all of it is known, and so is what the job will find
    assert state.opened is not None
    assert state.opened.identity == {
        **resolved.spec.identity_digests(),
        "config": sha256("lr: 1"),
        "a": sha256("1"),
        "b": sha256("2"),
        "c": "unset",
        "path": state.opened.identity["path"],
    }
    assert {row.reference for row in state.opened.plan.identity} == {Reference.SPEC, Reference.OPENING}
    ended = carry(record, state)
    assert ended.finished is not None and ended.finished.outcome == "succeeded"


@pytest.mark.parametrize(
    ("text", "said"),
    [("file:nothing", "No such file"), ("git:.", "not a git repository"), ("file:fifo", "neither a file nor a folder")],
)
def test_a_local_job_whose_provider_cannot_answer_is_not_opened(
    job: MakeJob, record: Record, tmp_path: Path, text: str, said: str
):
    os.mkfifo(tmp_path / "fifo")
    resolved = job(config=text)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SpecError, match=f"identity.config {text}: .*{said}"):
        open_lineage(record, resolved, plan_of(resolved))
    assert sorted(tmp_path.rglob("*")) == before


def test_of_a_job_that_runs_elsewhere_only_what_is_seen_here_is_asked(job: MakeJob, tmp_path: Path):
    # given a scheduler whose jobs run elsewhere
    (tmp_path / "cfg.yaml").write_text("lr: 1")
    away = job({"type": "other"}, seed=7, config="file:cfg.yaml", data="file:/far/away", a="env:KNOWN", b="env:HOME")
    # when
    unseen = unseen_fields(away)
    # then
    assert unseen == {
        "data": "this supervisor cannot see /far/away",
        "b": "the job's own environment tells what HOME is",
    }
    assert identity_of(away) == {**away.spec.identity_digests(), "config": sha256("lr: 1"), "a": sha256("1")}
    # and with a working folder that is not seen, no path in it
    far = away.model_copy(update={"workdir": "/far/away"})
    assert unseen_fields(far)["config"] == "this supervisor cannot see /far/away"


def test_who_joins_an_open_lineage_asks_nothing_anew(job: MakeJob, record: Record, tmp_path: Path):
    # given a lineage that is open
    (tmp_path / "cfg.yaml").write_text("lr: 1")
    resolved = job(config="file:cfg.yaml")
    opened = open_lineage(record, resolved, plan_of(resolved)).opened
    # when the file is gone, and somebody joins
    (tmp_path / "cfg.yaml").unlink()
    # then the lineage is what it was opened as
    assert open_lineage(record, resolved, plan_of(resolved)).opened == opened


def test_another_provider_for_an_open_lineage_is_refused_by_its_field(job: MakeJob, record: Record, tmp_path: Path):
    (tmp_path / "cfg.yaml").write_text("lr: 1")
    first = job(config="file:cfg.yaml", seed=7)
    open_lineage(record, first, plan_of(first))
    other = job(config=sha256("lr: 1"), seed=8)
    with pytest.raises(LineageError, match=r"identity\.config, identity\.seed differ; .* a lineage name of its own"):
        open_lineage(record, other, plan_of(other))


def test_a_job_whose_file_has_changed_holds_with_the_field_and_goes_on_when_it_is_set_back(
    job: MakeJob, record: Record, tmp_path: Path
):
    # given a job whose file changes between its opening and its execution
    config = tmp_path / "cfg.yaml"
    config.write_text("lr: 1")
    resolved = job(config="file:cfg.yaml", command="touch ran")
    state = open_lineage(record, resolved, plan_of(resolved))
    config.write_text("lr: 2")
    # when
    held = carry(record, state)
    # then it holds, and says which
    assert held.hold is not None
    assert held.hold.opened.cause is Cause.IDENTITY_CHANGED
    assert "config changed since the job began: config (file:cfg.yaml) was sha256:" in held.hold.opened.why
    assert not (tmp_path / "ran").exists()
    # and set back it runs
    config.write_text("lr: 1")
    ended = carry(record, run_again(record, who="a person"))
    assert ended.finished is not None and ended.finished.outcome == "succeeded"
    assert (tmp_path / "ran").exists()


def test_a_provider_that_cannot_answer_any_more_holds_and_is_named(job: MakeJob, record: Record, tmp_path: Path):
    (tmp_path / "cfg.yaml").write_text("lr: 1")
    resolved = job(config="file:cfg.yaml")
    state = open_lineage(record, resolved, plan_of(resolved))
    (tmp_path / "cfg.yaml").unlink()
    held = carry(record, state)
    assert held.hold is not None
    assert held.hold.opened.cause is Cause.IDENTITY_CHANGED
    assert "identity field config cannot be told: file:cfg.yaml: " in held.hold.opened.why


def test_changed_code_with_a_declared_schema_is_told_in_the_record_and_of_the_execution(
    job: MakeJob, record: Record, tmp_path: Path
):
    # given
    (tmp_path / "train.py").write_text("one")
    resolved = job(code="file:train.py", checkpoint_schema=3)
    state = open_lineage(record, resolved, plan_of(resolved))
    (tmp_path / "train.py").write_text("two")
    # when
    ended = carry(record, state)
    # then it has run
    assert ended.finished is not None and ended.finished.outcome == "succeeded"
    # and what changed is in the fact of its end, and told of its execution
    [(submission, execution)] = ended.executions
    assert execution.ended is not None
    note = "the code has changed since the job began, its checkpoint_schema has not: code (file:train.py) was sha256:"
    assert note in execution.ended.detail
    root = root_view_of("digits", ended)
    assert root is not None
    assert [text.startswith(note) for text in root.notes(submission.attempt(0))] == [True]
