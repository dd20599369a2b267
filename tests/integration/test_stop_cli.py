"""The commands by which a person ends a job, or has it save and wait, though nobody else carries it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefect_dispatch.cli import see_to_end
from prefect_dispatch.cli.__main__ import main
from prefect_dispatch.cli.job_file import resolve_job
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import StopRequested
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.schedulers.local import LocalScheduler
from prefect_dispatch.supervisor.assemble import plan_of, supervisor_of
from prefect_dispatch.supervisor.choices import from_scratch, reopen, run_again
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import known_lineages, open_record
from prefect_dispatch.supervisor.record import Record
from support.waiting import until

SAVES_WHEN_ASKED = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["DISPATCH_EXEC_DIR"])
source = os.environ["DISPATCH_RESUME_FROM"]
step = int(pathlib.Path(source, ".complete").read_text()) if source else 0
if step >= 7:
    sys.exit(0)
def save(*_):
    (folder / "save").mkdir()
    (folder / "save" / ".complete").write_text("7")
    time.sleep(0.5)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path("begun").touch()
time.sleep(120)
"""
DIES_WHEN_ASKED = "import pathlib, time; pathlib.Path('begun').touch(); time.sleep(120)"


class Bench:
    """One store and jobs in it, which nobody carries but the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.scheduler = LocalScheduler(folder / "state", 1, timedelta(seconds=5))

    def open(self, program: str, lineage: str = "digits") -> Record:
        (self.folder / f"{lineage}.py").write_text(program)
        path = self.folder / f"{lineage}.yaml"
        spec = {
            "lineage": lineage,
            "command": ["python", f"{lineage}.py"],
            "store": {"root": "runs"},
            "scheduler": {"type": "local", "state_folder": "state"},
            "saves": {"kind": "marker"},
            "watch_interval": "100ms",
        }
        path.write_text(yaml.safe_dump(spec))
        job = resolve_job(path)
        record = open_record(job.record_root, lineage, SystemClock())
        open_lineage(record, job, plan_of(job))
        return record

    def advance_until(self, record: Record, condition: Callable[[LineageState], Any]) -> LineageState:
        async def go() -> LineageState:
            supervisor = supervisor_of(record, record.refresh(), SystemClock())
            while not condition(state := (await supervisor.advance()).state):
                await asyncio.sleep(0.05)
            return state

        return asyncio.run(go())

    def run(self, record: Record) -> LineageState:
        """Carry a lineage until its program has begun."""
        state = self.advance_until(record, lambda state: state.newest is not None and state.newest.object is not None)
        until((self.folder / "begun").exists)
        return state

    def command(self, *words: str) -> int:
        return main([*words, "--store", str(self.runs)])

    def close(self) -> None:
        for lineage in known_lineages(str(self.runs)):
            state = open_record(str(self.runs), lineage, SystemClock()).refresh()
            for reference in [each.object for each in state.submissions if each.object is not None]:
                asyncio.run(self.scheduler.stop(reference, None))
                until(lambda reference=reference: not self.scheduler.processes(reference))


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def stops(record: Record) -> list[StopRequested]:
    return [entry.fact for entry in record.entries() if isinstance(entry.fact, StopRequested)]


def test_a_running_job_is_stopped_though_nobody_carries_it(bench, capsys):
    # given
    record = bench.open(DIES_WHEN_ASKED)
    running = bench.run(record).newest.object
    # when
    assert bench.command("stop", "digits", "--note", "wrong data") == 0
    # then the object has ended, and so has the job
    state = record.refresh()
    assert state.finished.outcome == "stopped"
    until(lambda: not bench.scheduler.processes(running))
    assert [(fact.intent, fact.note) for fact in stops(record)] == [("abandon", "wrong data")]
    assert "lineage digits is stopped" in capsys.readouterr().out
    # and a second request is a clear no
    assert bench.command("stop", "digits") == 1
    assert "is over already: stopped" in capsys.readouterr().err


def test_a_job_that_was_never_submitted_is_stopped_without_a_submission(bench):
    record = bench.open(DIES_WHEN_ASKED)
    assert bench.command("stop", "digits") == 0
    state = record.refresh()
    assert state.finished.outcome == "stopped" and state.submissions == ()


def test_two_requests_are_one_fact_and_a_stop_beats_a_suspension(bench, capsys):
    # given a job that is asked to save and exit
    record = bench.open(DIES_WHEN_ASKED)
    bench.run(record)
    assert bench.command("suspend", "digits", "--no-wait") == 0
    assert bench.command("suspend", "digits", "--no-wait") == 0
    assert [fact.intent for fact in stops(record)] == ["suspend"]
    # when a person stops it
    assert bench.command("stop", "digits", "--no-wait") == 0
    assert bench.command("suspend", "digits") == 1
    assert "is being stopped" in capsys.readouterr().err
    # then it is stopped, and no hold is left
    assert bench.command("stop", "digits") == 0
    state = record.refresh()
    assert state.finished.outcome == "stopped" and state.hold is None
    assert [fact.intent for fact in stops(record)] == ["suspend", "abandon"]


def test_a_suspended_job_saves_is_held_and_goes_on_from_that_save(bench, capsys):
    # given
    record = bench.open(SAVES_WHEN_ASKED)
    bench.run(record)
    # when
    assert bench.command("suspend", "digits") == 0
    # then it is held, without an end, by our own request
    state = record.refresh()
    assert state.hold is not None and state.hold.opened.until is None
    assert "suspended on request of" in state.hold.opened.why
    assert "nothing" not in state.hold.opened.why
    assert state.newest.newest.ended.cause is Cause.SUSPENDED
    assert state.published == 1
    assert f"prefect-dispatch resume digits --store {bench.runs} --hold" in capsys.readouterr().out
    # and a second request is a clear no that names the hold
    assert bench.command("suspend", "digits") == 1
    assert state.hold.opened.hold in capsys.readouterr().err
    # when it is run again
    run_again(record, who="ann")
    ended = bench.advance_until(record, lambda state: state.finished is not None)
    # then it resumed from that save
    assert ended.finished.outcome == "succeeded"
    assert len(ended.submissions) == 2


@pytest.mark.parametrize("generations", range(4), ids=["launcher", "wrapper", "guardian", "program"])
def test_what_of_a_job_is_stopped_still_hears_that_it_is_to_save_and_exit(bench, capsys, generations):
    # given a running job of which one process was sent SIGSTOP
    record = bench.open(SAVES_WHEN_ASKED)
    token = bench.run(record).newest.object.token
    pid = json.loads((bench.folder / "state" / "objects" / token / "process-0").read_text())["pid"]
    for _ in range(generations):
        (pid,) = children_of(pid)
    os.kill(pid, signal.SIGSTOP)
    # when
    assert bench.command("suspend", "digits") == 0
    # then it has saved and is held, and the person was told what was waited for
    state = record.refresh()
    assert state.hold is not None and "suspended on request of" in state.hold.opened.why
    assert state.newest.newest.ended.cause is Cause.SUSPENDED
    assert state.published == 1
    told = capsys.readouterr().out
    assert "digits: waits for the job's processes to end; its program has 30s to save and exit" in told


def children_of(pid: int) -> list[int]:
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for text in texts for child in text.split()]


def test_who_waits_long_is_told_again_and_again(bench, capsys, monkeypatch):
    # given a program that takes its time
    monkeypatch.setattr(see_to_end, "TELL_EVERY", timedelta(seconds=0.5))
    record = bench.open(SAVES_WHEN_ASKED.replace("sleep(0.5)", "sleep(3)"))
    bench.run(record)
    # when
    assert bench.command("suspend", "digits") == 0
    # then
    assert capsys.readouterr().out.count("digits: still waits for the job's processes to end, after ") >= 2


def test_a_suspended_job_that_saves_nothing_is_held_all_the_same(bench):
    record = bench.open(DIES_WHEN_ASKED)
    bench.run(record)
    assert bench.command("suspend", "digits") == 0
    state = record.refresh()
    assert state.finished is None and state.hold is not None
    assert "suspended on request of" in state.hold.opened.why
    assert "has saved nothing new" in state.hold.opened.why


def test_a_held_job_is_stopped_by_the_command(bench):
    record = bench.open(DIES_WHEN_ASKED)
    bench.run(record)
    assert bench.command("suspend", "digits") == 0
    assert bench.command("stop", "digits") == 0
    state = record.refresh()
    assert state.finished.outcome == "stopped" and state.hold is None


def test_all_that_runs_is_suspended_and_what_is_held_or_over_is_left_alone(bench):
    # given one that runs, one that is held and one that is over
    over, held = bench.open(DIES_WHEN_ASKED, "over"), bench.open(DIES_WHEN_ASKED, "held")
    assert bench.command("stop", "over") == 0
    assert bench.command("suspend", "held") == 0
    facts = [len(each.entries()) for each in (over, held)]
    running = bench.open(DIES_WHEN_ASKED)
    bench.run(running)
    # when
    assert bench.command("suspend", "--all") == 0
    # then
    assert running.refresh().hold is not None
    assert [len(each.entries()) for each in (over, held)] == facts


def test_what_runs_on_a_node_is_suspended_and_what_runs_elsewhere_is_left_alone(bench, capsys):
    # given a job that runs here, and one that waits for its slot
    record = bench.open(DIES_WHEN_ASKED)
    bench.run(record)
    bench.advance_until(record, lambda state: state.newest.newest is not None and state.newest.newest.nodes)
    (node,) = record.refresh().newest.newest.nodes
    queued = bench.open(DIES_WHEN_ASKED, "queued")
    bench.advance_until(queued, lambda state: state.newest is not None and state.newest.newest is not None)
    # when another node is to be emptied
    assert bench.command("suspend", "--node", "elsewhere") == 0
    # then nothing is asked of either
    assert "runs on elsewhere" in capsys.readouterr().out
    assert stops(record) == stops(queued) == []
    # when it is this one
    assert bench.command("suspend", "--node", node) == 0
    # then what runs on it is held, and what is queued is not
    assert record.refresh().hold is not None
    assert stops(queued) == []


@pytest.mark.parametrize("words", [["suspend"], ["suspend", "digits", "--all"], ["suspend", "--all", "--node", "n"]])
def test_one_lineage_or_all_of_them_is_named(bench, capsys, words):
    bench.open(DIES_WHEN_ASKED)
    assert bench.command(*words) == 2
    assert "name one LINEAGE, or give --all" in capsys.readouterr().err


def test_what_is_not_there_cannot_be_stopped(bench, capsys):
    bench.open(DIES_WHEN_ASKED)
    assert bench.command("stop", "nothing") == 1
    assert "'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("between", [["suspend"], ["stop"]], ids=["suspended", "stopped and reopened"])
def test_a_choice_of_where_to_go_on_outlives_whatever_is_asked_before_the_next_submission(bench, between):
    # given a job that has saved and is held, and a person who has it start from scratch
    record = bench.open(SAVES_WHEN_ASKED)
    bench.run(record)
    assert bench.command("suspend", "digits") == 0
    assert record.refresh().published == 1
    from_scratch(record, who="ann")
    # when it is held again before anybody has submitted it
    assert bench.command(*between, "digits") == 0
    if between == ["stop"]:
        reopen(record, who="ann")
    run_again(record, who="ann")
    # then the next submission starts from scratch all the same
    state = bench.advance_until(record, lambda state: state.newest is not None and state.newest.n == 2)
    assert state.newest.base == "scratch"
    assert state.newest.floor == state.newest.epoch(0).number
    assert bench.command("stop", "digits") == 0
