"""Supersession with real jobs: one winner, the old object ended, and what the new one goes on from."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefect_dispatch.cli import see_to_end as cli_see_to_end
from prefect_dispatch.cli.__main__ import main
from prefect_dispatch.cli.job_file import resolve_job
from prefect_dispatch.cli.see_to_end import see_to_end
from prefect_dispatch.errors import LineageError, SchedulerError, StoreUnreachable
from prefect_dispatch.flows.supervise import meant_generation, over_already
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Opened
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.model.state import Landing, LineageState, SubmissionState
from prefect_dispatch.schedulers.local import LocalScheduler
from prefect_dispatch.supervisor.assemble import plan_of, supervisor_of
from prefect_dispatch.supervisor.choices import run_again
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.drive import JobOver, JobSuperseded
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import open_lineage_root, open_record
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.supervisor.stop_requests import ask_to_stop, ask_to_suspend
from prefect_dispatch.supervisor.superseding import supersede
from prefect_dispatch.tasks.supersede import supersede as supersede_task
from support.marked_processes import kill_each
from support.waiting import until

SAVE = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["DISPATCH_EXEC_DIR"])
source = os.environ["DISPATCH_RESUME_FROM"]
begun = int(pathlib.Path(source, ".complete").read_text()) if source else 0
with open("began", "a") as out:
    out.write(f"{int(os.environ['DISPATCH_EPOCH']) // 10**12} {begun}\\n")
def save(step):
    (folder / f"step-{step}").mkdir()
    (folder / f"step-{step}" / ".complete").write_text(str(step))
"""
SAVES_FOR_EVER = SAVE + "step = begun + 1000\nwhile True:\n    step += 1\n    save(step)\n    time.sleep(0.2)\n"
SAVES_ONCE = SAVE + "save(begun + 1)\npathlib.Path('saved').touch()\ntime.sleep(120)\n"
WAITS = SAVE + "time.sleep(120)\n"
DONE = SAVE + "sys.exit(0)\n"
# Fails before its first save, then after it, then is done.
STUMBLES = SAVE + (
    "tries = sum(line.startswith('1 ') for line in open('began'))\n"
    "if tries == 2:\n    save(5)\nsys.exit(0 if tries == 3 else 9)\n"
)


class Bench:
    """One lineage, whose jobs nobody carries but the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scheduler = LocalScheduler(folder / "state", 2, timedelta(seconds=60))

    def job(self, program: str, name: str = "old", **fields: Any) -> Path:
        (self.folder / f"{name}.py").write_text(program)
        path = self.folder / f"{name}.yaml"
        spec = {
            "lineage": "digits",
            "command": ["python", f"{name}.py"],
            "store": {"root": "runs"},
            "scheduler": {"type": "local", "state_folder": "state", "slots": 2, "linger": "60s"},
            "saves": {"kind": "marker"},
            "watch_interval": "100ms",
            "recovery": {"failed": {"action": "resubmit", "budget": 5}},
        }
        path.write_text(yaml.safe_dump({**spec, **fields}))
        return path

    def record(self) -> Record:
        return open_record(str(self.folder / "runs"), "digits", SystemClock())

    def open(self, program: str, **fields: Any) -> Record:
        job, record = resolve_job(self.job(program, **fields)), self.record()
        open_lineage(record, job, plan_of(job))
        return record

    def resolved(self, program: str, **fields: Any) -> ResolvedJob:
        return resolve_job(self.job(program, "new", **fields))

    def supersede(self, program: str, resume: str | None = None, request: str = "", **fields: Any) -> LineageState:
        job = self.resolved(program, **fields)
        return supersede(self.record(), job, plan_of(job), who="ann", resume=resume, request=request)

    def advance_until(self, record: Record, condition: Callable[[LineageState], Any]) -> LineageState:
        async def go() -> LineageState:
            supervisor = supervisor_of(record, record.refresh(), SystemClock())
            async with asyncio.timeout(60):
                while not condition(state := (await supervisor.advance()).state):
                    await asyncio.sleep(0.05)
            return state

        return asyncio.run(go())

    def finish(self) -> LineageState:
        return self.advance_until(self.record(), lambda state: state.finished is not None)

    def run_until(self, record: Record, there: Callable[[], Any]) -> LineageState:
        """Carry a lineage until its program has come so far."""
        state = self.advance_until(record, lambda state: state.newest is not None and state.newest.object is not None)
        until(there)
        return state

    def publications(self) -> list[str]:
        return [each.name for each in open_lineage_root(str(self.folder / "runs"), "digits").publications()]

    def began(self) -> list[tuple[int, int]]:
        """Of each program that began: its generation, and the step that it went on from."""
        lines = (self.folder / "began").read_text().splitlines()
        return [(int(generation), int(step)) for generation, step in map(str.split, lines)]

    def command(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "prefect_dispatch.cli", *words],
            cwd=self.folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=280,
        )

    def close(self) -> None:
        state = self.record().refresh()
        known = (*state.obligations, *state.submissions)
        for reference in [each.object for each in known if each.object is not None]:
            with contextlib.suppress(SchedulerError):  # It may be another scheduler's.
                asyncio.run(self.scheduler.stop(reference, None))
            kill_each(self.scheduler.processes(reference))  # They outlive a lost node as long as they linger.
            until(lambda reference=reference: not self.scheduler.processes(reference))


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def openings(record: Record) -> list[tuple[int, Opened]]:
    return [(each.generation, each.fact) for each in record.entries() if isinstance(each.fact, Opened)]


def ended(state: LineageState) -> bool:
    return state.newest is not None and state.newest.newest is not None and state.newest.newest.ended is not None


def is_unknown(submission: SubmissionState) -> bool:
    return submission.newest is not None and submission.newest.state is ObjectState.UNKNOWN


class TestTheNewOne:
    def test_it_goes_on_from_the_old_ones_saves_and_the_old_object_is_ended(self, bench):
        # given a job that runs and has saved
        record = bench.open(SAVES_ONCE)
        old = bench.run_until(record, lambda: bench.publications()).newest.object
        # when it is superseded
        state = bench.supersede(DONE, environment={"RATE": "0.1"})
        assert (state.generation, state.base, state.floor) == (1, "latest", 0)
        finished = bench.finish()
        # then the new one went on from that save
        assert bench.began() == [(0, 0), (1, 1)]
        assert finished.finished.outcome == "succeeded" and finished.generation == 1
        # and the old object was ended by us, which is recorded
        (before,) = finished.obligations
        assert before.object == old and before.newest.ended.cause == "stopped"
        until(lambda: not bench.scheduler.processes(old))
        # and the parent is recorded
        assert [(generation, fact.parent) for generation, fact in openings(record)] == [(0, None), (1, 0)]

    def test_it_does_not_wait_for_the_old_object_and_its_saves_outrank_every_late_one(self, bench):
        # given an old job that its scheduler takes for lost, and that goes on saving with ever higher steps
        record = bench.open(SAVES_FOR_EVER)
        old = bench.run_until(record, lambda: bench.publications()).newest.object
        asyncio.run(bench.scheduler.lose_node(old))
        # when it is superseded by one that fails before its first save, and again after it
        bench.supersede(STUMBLES)
        state = bench.advance_until(bench.record(), lambda state: len(state.submissions) == 3)
        seen_alive = bench.scheduler.processes(old)
        bench.finish()
        # then it began beside the old one
        assert seen_alive and state.generation == 1
        # and until it had a save it went on from the old one's newest, then from its own, however low its step
        (_, first), (_, second), (_, third) = [each for each in bench.began() if each[0] == 1]
        assert 1000 < first <= second and third == 5
        assert max(int(name.split("-")[1]) for name in bench.publications()) > 1000

    def test_from_scratch_survives_a_failure_before_the_first_save(self, bench):
        record = bench.open(SAVES_FOR_EVER)
        old = bench.run_until(record, lambda: bench.publications()).newest.object
        asyncio.run(bench.scheduler.lose_node(old))
        state = bench.supersede(STUMBLES, "scratch")
        assert (state.base, state.floor) == ("scratch", Epoch(1, 1, 0).number)
        bench.finish()
        assert [each for each in bench.began() if each[0] == 1] == [(1, 0), (1, 0), (1, 5)]

    def test_a_named_save_survives_a_failure_before_the_first_save(self, bench):
        record = bench.open(SAVES_FOR_EVER)
        old = bench.run_until(record, lambda: len(bench.publications()) > 2).newest.object
        asyncio.run(bench.scheduler.lose_node(old))
        named = bench.publications()[1]
        bench.supersede(STUMBLES, named)
        bench.finish()
        assert [each for each in bench.began() if each[0] == 1] == [(1, 1002), (1, 1002), (1, 5)]

    def test_a_changed_identity_is_what_was_decided_and_is_noted(self, bench):
        # given a save of a run with another configuration
        record = bench.open(SAVES_ONCE, identity={"config": "a", "seed": 7})
        bench.run_until(record, lambda: bench.publications())
        # when a job with a changed one supersedes it
        bench.supersede(DONE, identity={"config": "b", "seed": 7})
        finished = bench.finish()
        # then it goes on from that save, and says that it is another run's
        assert bench.began()[-1] == (1, 1) and finished.finished.outcome == "succeeded"
        log = Path(bench.scheduler.log(finished.newest.object)).read_text()
        assert "config changed since generation 0" in log

    def test_a_finished_lineage_is_the_parent_of_a_new_run(self, bench):
        record = bench.open(SAVE + "save(3)\n")
        bench.advance_until(record, lambda state: state.finished is not None)
        bench.supersede(DONE)
        finished = bench.finish()
        assert bench.began() == [(0, 0), (1, 3)]
        assert (finished.generation, finished.parent.generation, finished.parent.outcome) == (1, 0, "succeeded")


class TestARefusal:
    def test_a_save_that_is_not_there_or_not_whole(self, bench):
        record = bench.open(SAVES_ONCE)
        bench.run_until(record, lambda: bench.publications())
        (name,) = bench.publications()
        with pytest.raises(LineageError, match="is not published"):
            bench.supersede(DONE, name.replace("-00000000000000000001-", "-00000000000000000002-"))
        shutil.rmtree(next((bench.folder / "runs" / "digits" / "exec").iterdir()) / "step-1")
        with pytest.raises(LineageError, match=r"is lost: .* choose another"):
            bench.supersede(DONE, name)
        with pytest.raises(LineageError, match="dispatch-job list"):
            bench.supersede(DONE, "newest")
        assert record.refresh().generation == 0

    def test_a_changed_schema_without_a_choice(self, bench):
        bench.open(WAITS, identity={"checkpoint_schema": "3"})
        with pytest.raises(
            LineageError, match=r"checkpoint_schema has changed; .* supersede digits JOB --resume scratch"
        ):
            bench.supersede(DONE, identity={"checkpoint_schema": "4"})
        for number, resume in enumerate(("scratch", "latest"), 1):
            state = bench.supersede(DONE, resume, identity={"checkpoint_schema": f"{number + 3}"})
            assert (state.generation, state.base) == (number, resume)

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"store": {"root": "elsewhere"}}, "keeps the root of its lineage"),
            ({"scheduler": {"type": "local", "state_folder": "elsewhere"}}, "at another scheduler"),
            ({"resources": {"nodes": 2}}, "nodes"),
        ],
    )
    def test_what_its_old_object_could_not_be_ended_from_or_nobody_could_run(self, bench, fields, why):
        record = bench.open(WAITS)
        bench.advance_until(record, lambda state: state.newest is not None and state.newest.object is not None)
        job = bench.resolved(DONE, **fields)
        with pytest.raises(Exception, match=why):
            supersede(bench.record(), job, plan_of(job), who="ann")
        assert record.refresh().generation == 0

    def test_another_scheduler_is_taken_once_nothing_is_left_at_the_old_one(self, bench):
        record = bench.open(SAVE + "save(1)\n")
        bench.advance_until(record, lambda state: state.finished is not None)
        bench.supersede(DONE, scheduler={"type": "local", "state_folder": "elsewhere"})
        assert bench.finish().finished.outcome == "succeeded"

    def test_a_lineage_that_was_never_opened(self, bench):
        with pytest.raises(LineageError, match="never opened in ") as refused:
            bench.supersede(DONE)
        assert "submit" not in str(refused.value)
        assert not (bench.folder / "runs").exists()
        bench.open(DONE)

    def test_a_generation_that_is_meant_is_not_opened_anew_where_its_record_is_away(self, bench):
        # given who was started to go on with a generation, and a record root that is away as a whole
        bench.open(WAITS)
        job = bench.resolved(WAITS)
        (bench.folder / "runs").rename(bench.folder / "away")
        # when
        with pytest.raises(StoreUnreachable, match="generation 0 of lineage 'digits' was opened"):
            open_lineage(bench.record(), job, plan_of(job), meant=0)
        # then nothing is begun
        assert not (bench.folder / "runs").exists()
        (bench.folder / "away").rename(bench.folder / "runs")

    @pytest.mark.parametrize("words", [("supersede", "digits", "new.yaml"), ("stop", "digits", "--store", "runs")])
    def test_a_lineage_whose_record_is_away(self, bench, words):
        # given an open lineage whose folder was moved
        bench.open(WAITS)
        bench.job(DONE, "new")
        (bench.folder / "runs" / "digits").rename(bench.folder / "away")
        # when
        refused = bench.command(*words)
        # then it is not taken for one that there is not, and nobody is told to begin it anew
        assert refused.returncode == 69 and "is open" in refused.stderr and "bring it back" in refused.stderr
        assert str(bench.folder / "runs" / "digits") in refused.stderr and "submit" not in refused.stderr
        assert refused.stderr.count("\n") == 1 and not (bench.folder / "runs" / "digits").exists()
        # and when it is back, it is what it was
        (bench.folder / "away").rename(bench.folder / "runs" / "digits")
        assert bench.record().refresh().generation == 0

    def test_a_changed_job_is_told_of_the_command(self, bench):
        record = bench.open(WAITS)
        job = bench.resolved(WAITS, environment={"A": "1"})
        with pytest.raises(LineageError, match=r"command, environment differ; .* prefect-dispatch supersede digits"):
            open_lineage(record, job, plan_of(job))


class TestAtOnce:
    def test_of_many_one_wins_and_the_others_are_told(self, bench):
        # given many who have all seen generation 0
        bench.open(WAITS)
        job = bench.resolved(DONE)
        planned, start = plan_of(job), threading.Barrier(8)

        def go(number: int) -> str:
            record = bench.record()
            record.refresh()
            start.wait(timeout=30)
            try:
                state = supersede(record, job, planned, who=f"person-{number}", meant=0)
            except LineageError as error:
                assert "superseded already, by person-" in str(error)
                return "told"
            assert state.generation == 1
            return "won"

        # when they supersede it at once
        with ThreadPoolExecutor(8) as pool:
            found = sorted(pool.map(go, range(8)))
        # then there is one generation more
        assert found == ["told"] * 7 + ["won"]
        assert [generation for generation, _ in openings(bench.record())] == [0, 1]

    def test_who_asks_again_with_the_same_words_finds_it_done(self, bench):
        bench.open(WAITS)
        first = bench.supersede(DONE, request="run-1")
        again = bench.supersede(DONE, request="run-1")
        assert first.generation == again.generation == 1
        # also after somebody else superseded that one
        bench.supersede(DONE)
        assert bench.supersede(DONE, request="run-1").generation == 2
        assert len(openings(bench.record())) == 3


class TestASubmissionInFlight:
    def test_it_is_searched_for_and_stopped(self, bench):
        # given a supervisor that was killed between the scheduler's answer and the fact that tells of it
        bench.open(WAITS)
        killed = bench.command("submit", "old.yaml", "--wait", DISPATCH_FAILPOINT="submitted")
        assert killed.returncode == -9
        (lost,) = bench.record().refresh().submissions
        assert lost.landing is Landing.INTENDED
        # when the job is superseded and comes to its end
        bench.supersede(DONE)
        finished = bench.finish()
        # then the old object was found by its token, and ended
        assert finished.finished.outcome == "succeeded" and finished.generation == 1
        (old,) = finished.obligations
        assert old.token == lost.token and old.newest.ended.cause == "stopped"
        until(lambda: not bench.scheduler.processes(old.object))

    def test_a_supervisor_that_did_not_know_submits_nothing_more(self, bench):
        # given a supervisor of the old generation that stands right before its first step
        record = bench.open(WAITS)
        late = supervisor_of(record, record.refresh(), SystemClock())
        # when the job is superseded
        bench.supersede(DONE)
        # then that one leaves it alone, and says so
        advanced = asyncio.run(late.advance())
        assert type(advanced.step).__name__ == "Overtaken"
        assert bench.record().refresh().submissions == ()


class TestASharedCheckpoint:
    def test_nothing_is_submitted_before_a_word(self, bench):
        # given
        record = bench.open(SAVES_ONCE, shared_checkpoint=True)
        bench.run_until(record, lambda: bench.publications())
        # when
        bench.supersede(DONE, shared_checkpoint=True)
        held = bench.advance_until(bench.record(), lambda state: state.hold is not None)
        # then the old object has ended, and a person or the site is asked
        assert held.obligations[0].newest.ended.cause == "stopped" and held.submissions == ()
        assert held.hold.opened.signal_may_lift and held.hold.opened.object == held.obligations[0].object
        # when the person says so
        run_again(bench.record(), held.hold.opened.hold, who="ann")
        # then it goes on
        assert bench.finish().finished.outcome == "succeeded"
        assert bench.began() == [(0, 0), (1, 1)]


class TestWhoWaitsForTheOldOne:
    @pytest.mark.parametrize("ask", [ask_to_suspend, ask_to_stop])
    def test_is_told_that_it_did_not_come_about(self, bench, capsys, ask):
        # given a person who waits for a job to be suspended or stopped
        record = bench.open(WAITS)
        asked = ask(record, who="ann")
        # when it is superseded meanwhile
        bench.supersede(DONE)
        code = see_to_end([(record, asked)])
        # then that is no success, and the new one goes on
        told = capsys.readouterr().err
        assert code == 1 and "did not come about: generation 0 was superseded" in told
        assert bench.record().refresh().stop is None


class Later(SystemClock):
    """The machine's clock, and so much later."""

    def __init__(self, by: timedelta = timedelta(0)) -> None:
        self.by = by

    def turn(self, by: timedelta) -> None:
        self.by += by

    def now(self) -> datetime:
        return super().now() + self.by

    def monotonic(self) -> float:
        return super().monotonic() + self.by.total_seconds()


def removed(folder):
    """Remove a folder. What still writes to it, as a launcher does about an end that it just saw, may be in the way."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


class TestALostStateFolder:
    @pytest.mark.parametrize("answer", ["--run-again", "--stop"])
    def test_the_new_one_ends_and_a_person_is_asked_about_the_old_object(self, bench, monkeypatch, capsys, answer):
        # given an old object whose processes were killed and whose state folder is lost, as after a restart
        record = bench.open(SAVES_ONCE)
        old = bench.run_until(record, bench.publications).newest.object
        asyncio.run(bench.scheduler.stop(old, None))
        until(lambda: not bench.scheduler.processes(old))
        until(lambda: removed(bench.folder / "state"))
        # when it is superseded, with another state folder in the place of that one
        bench.supersede(DONE)
        state = bench.advance_until(bench.record(), lambda state: ended(state) and is_unknown(state.obligations[0]))
        # then the end of the new one is seen, and status tells what is waited for
        assert (state.newest.newest.ended.cause, state.hold) == (Cause.COMPLETED, None)
        assert bench.began() == [(0, 0), (1, 1)]
        assert main(["status", "digits", "--store", str(bench.folder / "runs")]) == 0
        assert "waits for the end of submission 1 of generation 0 (unknown)" in capsys.readouterr().out
        # and a person who stops the job is told, after the bound, that nobody knows what became of the old object
        clock = Later()
        monkeypatch.setattr(cli_see_to_end, "SystemClock", lambda: clock)
        monkeypatch.setattr(cli_see_to_end.Waiting, "note", lambda *_: clock.turn(timedelta(minutes=4)))
        assert main(["stop", "digits", "--store", str(bench.folder / "runs")]) == 75
        told = capsys.readouterr().out
        hold = record.refresh().hold.opened
        assert hold.object == old and "is another one" in hold.why and "once it is gone, stop the job" in hold.why
        store = f"--store {bench.folder / 'runs'}"
        assert f"to end it: prefect-dispatch resume digits {store} --hold {hold.hold} --stop" in told
        # when that person has looked, and says so
        assert main(["resume", "digits", answer, "--store", str(bench.folder / "runs")]) == 0
        # then the job is over, and nothing ran again
        over = bench.finish()
        assert (over.generation, len(over.submissions), len(bench.began())) == (1, 1, 2)
        assert over.finished.outcome == "succeeded"


class TestOnFinished:
    def test_a_finished_lineage_begins_its_next_generation_where_the_job_says_so(self, bench):
        record = bench.open(SAVE + "save(begun + 1)\n", on_finished="supersede")
        for generation in range(3):
            # given the same job once more
            job = resolve_job(bench.folder / "old.yaml")
            assert open_lineage(bench.record(), job, plan_of(job)).generation == generation
            # while it is open, it is joined
            assert open_lineage(bench.record(), job, plan_of(job)).generation == generation
            bench.finish()
        # then each went on from the one before
        assert bench.began() == [(0, 0), (1, 1), (2, 2)]
        assert [fact.parent for _, fact in openings(record)] == [None, 0, 1]

    def test_what_was_stopped_before_anybody_carried_it_is_not_begun_again_by_who_was_to_carry_it(self, bench):
        # given a job that was opened for a flow run, and stopped before that run began
        job = resolve_job(bench.job(WAITS, on_finished="supersede"))
        first = open_lineage(bench.record(), job, plan_of(job), request="run")
        assert bench.command("stop", "digits", "--store", "runs").returncode == 0
        # when that run comes, or another process that is to carry what was opened
        meant = meant_generation(bench.record(), "run")
        found = open_lineage(bench.record(), job, plan_of(job), meant=meant, request="run")
        # then
        assert meant == first.generation == 0
        assert over_already(found, meant) == JobOver(found) and found.finished.outcome == "stopped"
        assert len(openings(bench.record())) == 1
        # while whoever submits it anew begins the next one, and the first run finds itself superseded
        begun = open_lineage(bench.record(), job, plan_of(job), request="another")
        assert (begun.generation, begun.carried_by, meant_generation(bench.record(), "another")) == (1, "another", 1)
        found = open_lineage(bench.record(), job, plan_of(job), meant=meant, request="run")
        assert over_already(found, meant) == JobSuperseded(found)

    def test_any_other_is_refused_with_the_way_out(self, bench):
        record = bench.open(DONE)
        bench.finish()
        job = resolve_job(bench.folder / "old.yaml")
        with pytest.raises(LineageError, match=r"is finished \(succeeded\).*supersede digits JOB.*on_finished"):
            open_lineage(record, job, plan_of(job))

    def test_a_changed_schema_is_refused_with_the_command_that_takes_the_choice(self, bench):
        record = bench.open(DONE, on_finished="supersede", identity={"checkpoint_schema": "3"})
        bench.finish()
        job = bench.resolved(DONE, on_finished="supersede", identity={"checkpoint_schema": "4"})
        with pytest.raises(LineageError, match="prefect-dispatch supersede digits JOB --resume scratch"):
            open_lineage(record, job, plan_of(job))


class TestTheCommand:
    def test_killed_before_its_fact_it_has_changed_nothing(self, bench):
        # given
        record = bench.open(WAITS)
        bench.job(DONE, "new")
        before = record.refresh()
        # when
        killed = bench.command("supersede", "digits", "new.yaml", DISPATCH_FAILPOINT="fact")
        # then
        assert killed.returncode == -9 and bench.record().refresh() == before

    def test_killed_after_its_fact_it_has_changed_all(self, bench):
        # given a finished lineage, which is marked as open again before the fact, and nothing after it is durable
        record = bench.open(DONE)
        bench.advance_until(record, lambda state: state.finished is not None)
        bench.job(DONE, "new")
        killed = bench.command("supersede", "digits", "new.yaml", DISPATCH_FAILPOINT="open-mark")
        assert killed.returncode == -9 and bench.record().refresh().generation == 0
        killed = bench.command("supersede", "digits", "new.yaml", DISPATCH_FAILPOINT="fact")
        assert killed.returncode == -9 and bench.record().refresh().generation == 0
        # when the process dies with the fact, whoever comes next carries the new generation
        bench.supersede(DONE)
        assert bench.finish().generation == 1

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (("supersede", "other", "new.yaml"), "is a job of lineage 'digits', not of 'other'"),
            (("supersede", "digits", "new.yaml", "--resume", "newest"), "dispatch-job list"),
        ],
    )
    def test_what_is_wrong_is_told_in_one_line(self, bench, words, told):
        bench.open(WAITS)
        bench.job(DONE, "new")
        refused = bench.command(*words)
        assert refused.returncode in (1, 2) and told in refused.stderr and refused.stderr.count("\n") == 1
        assert bench.record().refresh().generation == 0

    def test_status_plan_and_record_tell_of_generations(self, bench, capsys):
        # given a job, and what a changed one would be
        bench.open(WAITS)
        assert main(["plan", str(bench.folder / "old.yaml")]) == 0
        assert "open as generation 0 with this very job" in capsys.readouterr().out
        new = str(bench.job(DONE, "new"))
        assert main(["plan", new]) == 0
        assert "supersede digits JOB begins generation 1" in capsys.readouterr().out
        # when it was superseded from scratch, and that one is done
        bench.supersede(DONE, "scratch")
        bench.finish()
        # then
        store = ("--store", str(bench.folder / "runs"))
        assert main(["status", "digits", "--json", *store]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["generation"], told["parent"]) == (1, 0)
        shown = [(row["generation"], row["parent"], row["goes_on_from"], row["outcome"]) for row in told["generations"]]
        assert shown == [(0, None, "the newest save", "superseded"), (1, 0, "scratch", "succeeded")]
        assert main(["status", "digits", *store]) == 0
        assert "superseded" in capsys.readouterr().out
        assert main(["record", "digits", *store]) == 0
        assert "parent 0" in capsys.readouterr().out
        export = bench.folder / "export"
        assert main(["record", "digits", "--export", str(export), *store]) == 0
        assert '"parent": 0' in export.read_text() and "ann" not in export.read_text()
        assert main(["timeline", "digits", *store]) == 0
        assert "generation 1 opened" in capsys.readouterr().out


def test_a_try_of_the_task_takes_no_generations_place_that_opened_since_it_was_asked_for(bench, monkeypatch):
    # given a request to supersede generation 0, whose first try failed before it wrote anything
    record = bench.open(WAITS)
    job, meant = bench.resolved(WAITS, environment={"RATE": "3"}), record.refresh().generation
    # when somebody else supersedes it before the second one
    bench.supersede(WAITS, environment={"RATE": "2"})
    monkeypatch.setattr("prefect_dispatch.tasks.refusal.get_run_logger", lambda: logging.getLogger("run"))
    state = asyncio.run(supersede_task.fn(bench.record(), job, plan_of(job), None, "", "a-run", meant))
    # then theirs stays
    assert (state.name, bench.record().refresh().generation) == ("Refused", 1)
    assert "generation 0 of lineage 'digits' was superseded already" in state.message
