"""The command line: what it prints, and that bad input gets one clear line, its exit code, and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from prefect_dispatch.cli.__main__ import COMMANDS, main
from prefect_dispatch.cli.job_file import resolve_job
from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.documents import encode
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Ended, Finished, HoldOpened, Observed, Outcome, Submitted, Submitting
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.observation import Exit, ObjectRef
from prefect_dispatch.model.plan import plan
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.schedulers.registry import read_settings, scheduler_of
from prefect_dispatch.supervisor.assemble import plan_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.log_file import tail_of
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import open_index, open_record
from prefect_dispatch.supervisor.polls import POLL_CESSATION, note_poll


@pytest.fixture
def job_file(tmp_path, monkeypatch):
    """Writes a job file; fields given replace those of a good job, None leaves one out."""
    monkeypatch.setenv("DISPATCH_STATE", str(tmp_path / "own"))
    monkeypatch.delenv("DISPATCH_STORE", raising=False)

    def write(**fields) -> Path:
        spec = {
            "lineage": "digits",
            "command": ["sh", "-c", "true"],
            "store": {"root": "runs"},
            "scheduler": {"type": "local", "state_folder": "state"},
            **fields,
        }
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump({name: value for name, value in spec.items() if value is not None}))
        return path

    return write


@pytest.fixture
def lineage(tmp_path):
    """A lineage with one execution that ended, written as a supervisor writes it."""
    runs = tmp_path / "runs"
    settings = read_settings({"type": "local", "state_folder": str(tmp_path / "state")}, tmp_path)
    spec = JobSpec.read({"lineage": "digits", "command": ["sh"], "store": {"root": str(runs)}}, "job")
    job = ResolvedJob(spec=spec, workdir=str(tmp_path), root=str(runs), record_root=str(runs), scheduler=settings)
    record = open_record(str(runs), "digits", SystemClock())
    open_lineage(record, job, plan(spec, scheduler_of(settings).capabilities, root_visible=True))
    reference = ObjectRef(scheduler="local", id="7", token="a" * 16)
    now = SystemClock().now()
    for fact in (
        Submitting(n=1, token="a" * 16, writer="me", give_up_at=now, base="latest", floor=0, restarts_allowed=False),
        Submitted(n=1, object=reference),
        Observed(n=1, restart=0, state="running", started_at=now),
        Ended(n=1, restart=0, cause=Cause.FAILED, exit=Exit(code=7), ended_at=now, detail="exit 7"),
    ):
        record.append(fact)
    return record


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


BAD_JOBS = [
    ({"comand": ["x"]}, "comand", "did you mean 'command'"),
    ({"max_pending": "4 fortnights"}, "4 fortnights", "30min"),
    ({"lineage": "My Run"}, "My Run", "a-z"),
    ({"command": ["no-such-program"]}, "no-such-program", "install it"),
    ({"workdir": "nowhere"}, "nowhere", "make it"),
    ({"resources": {"nodes": 2}}, "resources.nodes 2", "use 1"),
    ({"store": {"root": "gs://bucket/prefix"}}, "gs://bucket/prefix", "folder"),
    ({"store": {"root": "s3://Bucket/prefix"}}, "s3://Bucket/prefix", "s3://BUCKET/PREFIX"),
    ({"scheduler": {"type": "kubernetes"}}, "kubernetes", "local"),
    ({"scheduler": {"type": "local", "slot": 2}}, "slot", "slots"),
    ({"scheduler": {"type": "local", "slots": 0}}, "slots", "1"),
    ({"scheduler": {"type": "local", "state_folder": "job.yaml"}}, "state_folder", "is not a folder"),
    ({"scheduler": {"type": "local", "state_folder": "job.yaml/state"}}, "job.yaml/state", "name another one"),
    ({"deadline": {"budget": "8h"}, "scheduler": {"type": "local", "max_deadline": "4h"}}, "deadline.budget", "4h"),
    ({"secrets": {"KEY": "secret/key"}}, "secrets", "this version does not have"),
    ({"identity": {"code": "git:."}}, "identity.code git:.", "not a git repository"),
    ({"identity": {"x": "file:not there"}}, "identity.x file:not there", "No such file or directory"),
    ({"saves": {"kind": "lightning"}}, "lightning", "not in this version"),
    ({"shared_checkpoint": 1}, "shared_checkpoint", "true"),
    ({"command": None}, "command", "missing"),
]


@pytest.mark.parametrize(("fields", "thing", "way_out"), BAD_JOBS, ids=[thing for _, thing, _ in BAD_JOBS])
@pytest.mark.parametrize("command", ["plan", "submit"])
def test_a_bad_job_gets_one_line_with_the_thing_and_the_way_out(
    job_file, capsys, tmp_path, command, fields, thing, way_out
):
    # given
    path = job_file(**fields)
    before = everything(tmp_path)
    # when
    code = main([command, str(path)])
    # then
    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert thing in line
    assert way_out in line
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    "text", ["", "- a list", "{unclosed", "lineage: a\nlineage: b\n", "\x00", "a: !!python/name:os.system"]
)
def test_what_is_no_job_spec_is_one_line(tmp_path, capsys, text):
    # given
    path = tmp_path / "job.yaml"
    path.write_text(text)
    # when
    code = main(["plan", str(path)])
    # then
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert "job.yaml" in line


LAUGH = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        "max_pending: 2001-99-99",
        "max_pending: 2001-02-30",
        "seed: " + "9" * 5000,
        "a: !!int abc",
        "a: !!timestamp soon",
        "a: !!bool perhaps",
        "a: &a [*a]",
        LAUGH,
    ],
    ids=["date", "day", "big", "int", "timestamp", "bool", "endless", "laugh"],
)
def test_yaml_that_blows_up_is_one_line(tmp_path, capsys, text):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert main(["plan", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_fifo_is_no_job_and_nothing_hangs(tmp_path, capsys):
    os.mkfifo(tmp_path / "job.yaml")
    assert main(["plan", str(tmp_path / "job.yaml")]) == 2
    assert "not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "submit"])
def test_a_folder_is_no_job_and_is_named(tmp_path, capsys, command):
    assert main([command, str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert f"job {str(tmp_path)!r} is a folder; give the path of a YAML file" in told and told.count("\n") == 1


def test_run_again_of_a_lineage_that_is_not_there_opens_nothing(job_file, capsys, tmp_path):
    path = job_file()
    before = everything(tmp_path)
    assert main(["submit", str(path), "--run-again"]) == 1
    assert "is not held" in capsys.readouterr().err
    assert everything(tmp_path) == before


@pytest.mark.parametrize("place", ["root", "record_root"])
@pytest.mark.parametrize("command", ["plan", "submit"])
def test_a_store_that_cannot_be_made_is_69_before_anything_is_opened(job_file, capsys, tmp_path, command, place):
    # given
    (tmp_path / "in-the-way").write_text("a file")
    roots = {"root": "runs", "record_root": "records", place: "in-the-way/runs"}
    path = job_file(store=roots)
    before = everything(tmp_path)
    # when
    code = main([command, str(path)])
    # then
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 69
    assert "in-the-way" in line
    assert everything(tmp_path) == before


def test_a_store_that_cannot_be_written_is_69_and_nothing_is_started(job_file, capsys, tmp_path):
    # given a file where the store's folder should be
    (tmp_path / "runs").write_text("in the way")
    # when
    code = main(["submit", str(job_file())])
    # then
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 69
    assert str(tmp_path / "runs") in line
    assert not (tmp_path / "state").exists()


def test_plan_shows_each_substitution_before_anything_starts(job_file, capsys, tmp_path):
    # given
    path = job_file()
    before = everything(tmp_path)
    # when
    code = main(["plan", str(path)])
    out = capsys.readouterr().out
    # then
    assert code == 0
    (preempted,) = [line for line in out.splitlines() if line.startswith("preempted")]
    assert preempted.split()[1:4] == ["requeue", "resubmit", "100"]
    assert "local cannot run the same object again" in preempted
    assert everything(tmp_path) == before


def test_plan_as_json_can_be_read_by_scripts(job_file, capsys):
    main(["plan", str(job_file()), "--json"])
    result = json.loads(capsys.readouterr().out)
    rows = {row["cause"]: row for row in result["plan"]["rows"]}
    assert rows["preempted"]["effective"]["action"] == "resubmit"
    assert result["job"]["spec"]["lineage"] == "digits"


def test_status_of_all_and_of_one(lineage, capsys, tmp_path):
    # when
    assert main(["status", "--store", str(tmp_path / "runs"), "--json"]) == 0
    (everyone,) = json.loads(capsys.readouterr().out)
    assert main(["status", "digits", "--store", str(tmp_path / "runs")]) == 0
    one = capsys.readouterr().out
    # then
    assert everyone["lineage"] == "digits"
    assert everyone["state"] == "between executions"
    assert everyone["spent"] == {"failed": 1}
    assert "g0n1r0" in one
    assert "failed" in one


def test_status_of_all_puts_what_is_open_back_into_an_index_that_was_lost(lineage, capsys, tmp_path):
    # given a record root that was copied without what begins with a dot
    shutil.rmtree(tmp_path / "runs" / ".dispatch")
    # when
    assert main(["status", "--store", str(tmp_path / "runs")]) == 0
    # then pollers look after it again
    assert open_index(str(tmp_path / "runs")).names() == ["digits"]


def test_status_says_why_a_lineage_is_held_or_how_it_ended(lineage, capsys, tmp_path):
    # given
    lineage.append(HoldOpened(hold="h", why="the budget is spent"))
    main(["status", "digits", "--store", str(tmp_path / "runs")])
    held = capsys.readouterr().out
    lineage.append(Finished(outcome=Outcome.FAILED, detail="exit 7"))
    main(["status", "digits", "--store", str(tmp_path / "runs")])
    finished = capsys.readouterr().out
    # then
    assert held.startswith("digits: held — the budget is spent")
    assert finished.startswith("digits: failed — exit 7")


def test_control_characters_of_a_job_do_not_reach_the_terminal(lineage, capsys, tmp_path):
    # given
    lineage.append(HoldOpened(hold="h", why="\x1b[2Jgone\x07"))
    # when
    main(["status", "digits", "--store", str(tmp_path / "runs")])
    main(["record", "digits", "--store", str(tmp_path / "runs")])
    main(["timeline", "digits", "--store", str(tmp_path / "runs")])
    # then
    out = capsys.readouterr().out
    assert "gone" in out
    assert "\x1b" not in out
    assert "\x07" not in out


def test_record_prints_facts_and_exports_without_what_is_private(lineage, capsys, tmp_path):
    # given
    store = ["--store", str(tmp_path / "runs")]
    # when
    main(["record", "digits", *store])
    words = capsys.readouterr().out
    main(["record", "digits", *store, "--json"])
    facts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    main(["record", "digits", *store, "--export", str(tmp_path / "copy.jsonl")])
    copy = (tmp_path / "copy.jsonl").read_text()
    # then
    assert [fact["kind"] for fact in facts] == ["opened", "submitting", "submitted", "observed", "ended"]
    assert "exit 7" in words
    assert len(copy.splitlines()) == 5
    assert str(tmp_path) not in copy
    assert "a" * 16 not in copy
    capsys.readouterr()
    assert main(["record", "digits", *store, "--export", str(tmp_path / "copy.jsonl")]) == 2


def test_timeline_as_picture_and_as_text(lineage, capsys, tmp_path):
    # when
    main(["timeline", "digits", "--store", str(tmp_path / "runs")])
    text = capsys.readouterr().out
    main(["timeline", "digits", "--store", str(tmp_path / "runs"), "-o", str(tmp_path / "t.svg")])
    # then
    assert "submission 1" in text
    assert (tmp_path / "t.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("place", ["pub", "record"])
def test_a_malformed_name_is_65_and_names_it(lineage, capsys, tmp_path, place):
    # given
    folder = tmp_path / "runs" / "digits" / place
    folder.mkdir(exist_ok=True)
    (folder / "what-is-this").touch()
    before = everything(tmp_path)
    # when
    code = main(["status", "digits", "--store", str(tmp_path / "runs")])
    # then
    printed = capsys.readouterr()
    assert code == 65
    assert f"{place}/what-is-this" in printed.err
    assert len(printed.err.splitlines()) == 1
    assert everything(tmp_path) == before


def test_a_forged_epoch_is_listed_but_not_followed(lineage, capsys, tmp_path):
    # given a publication above everything, in a folder of nobody
    forged = Publication(Epoch(9, 1, 0), 5, f"exec/{'b' * 16}-0/step")
    (tmp_path / "runs" / "digits" / "pub" / forged.name).touch()
    # when
    code = main(["status", "digits", "--store", str(tmp_path / "runs"), "--json"])
    # then
    status = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [row["saves"] for row in status["executions"]] == [0]


@pytest.mark.parametrize("name", ["nope", "No Name", "../digits", ""])
def test_a_lineage_that_is_not_there_is_one_line(capsys, tmp_path, name):
    # when
    code = main(["status", name, "--store", str(tmp_path)])
    # then
    (line,) = capsys.readouterr().err.splitlines()
    assert code in (1, 2)
    assert repr(name) in line


def test_a_lineage_of_a_newer_version_is_shown_as_far_as_it_can_be_read(lineage, capsys, tmp_path):
    # given
    last = lineage.entries()[-1]
    newer = {**last.document(), "seq": last.seq + 1, "kind": "teleported"}
    (tmp_path / "runs/digits/record" / f"{last.seq + 1:020d}.json").write_bytes(encode(newer))
    store = ["--store", str(tmp_path / "runs")]
    # when
    codes = [main([command, "digits", *store]) for command in ("status", "record", "timeline")]
    printed = capsys.readouterr()
    # then
    assert codes == [65, 65, 65]
    assert printed.err.count("teleported") == 3
    assert "g0n1r0" in printed.out
    assert "observed" in printed.out


def test_status_of_all_keeps_its_columns_when_one_cannot_be_read(lineage, capsys, tmp_path):
    # given a lineage that sorts first and is damaged
    damaged = tmp_path / "runs" / "a"
    (damaged / "record").mkdir(parents=True)
    (damaged / "record.json").write_text("{}")
    (damaged / "record" / f"{1:020d}.json").write_text("{")
    # when
    code = main(["status", "--store", str(tmp_path / "runs"), "--json"])
    # then
    first, second = json.loads(capsys.readouterr().out)
    assert code == 65
    assert (first["state"], second["state"]) == ("unreadable", "between executions")
    assert set(first) == set(second)


@pytest.mark.parametrize("what", ["digits", "digits/record"])
def test_every_command_tells_of_a_lineage_that_is_away(job_file, lineage, capsys, tmp_path, what):
    # given an open lineage whose folder, or whose record, was moved
    (tmp_path / "runs" / what).rename(tmp_path / "away")
    store = ["--store", str(tmp_path / "runs")]
    before = everything(tmp_path)
    # when people look at all there is, or submit the job once more
    for words in (["status", "--json", *store], ["holds", *store], ["submit", str(job_file())]):
        code = main(words)
        # then it is neither left out nor begun anew
        told = capsys.readouterr()
        assert code == 69 and "bring it back" in told.out + told.err, words
    assert everything(tmp_path) <= {*before, "job.yaml"}


@pytest.mark.parametrize("kind", ["folder", "fifo", "absent"])
def test_a_log_that_is_no_file_is_one_line_and_nothing_hangs(kind, tmp_path):
    # given
    path = tmp_path / "log"
    if kind != "absent":
        path.mkdir() if kind == "folder" else os.mkfifo(path)
    # when
    told = tail_of(str(path))
    # then
    assert told.startswith(f"(log {path} is not")


def test_every_command_has_help(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as caught:
            main([command, "--help"])
        assert caught.value.code == 0
    assert "usage: prefect-dispatch demo" in capsys.readouterr().out


def test_every_error_has_an_exit_code():
    def tree(error):
        return [error, *(below for each in error.__subclasses__() for below in tree(each))]

    assert {error.exit_code for error in tree(DispatchError)} == {1, 2, 3, 65, 69, 74, 190, 191, 192, 193, 194}


@pytest.mark.parametrize("over", [True, False])
def test_what_needs_no_carrying_needs_no_server(job_file, capsys, tmp_path, monkeypatch, over):
    # given a lineage that is finished, or held, and no Prefect anywhere
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    path = job_file()
    job = resolve_job(path)
    record = open_record(job.record_root, "digits", SystemClock())
    open_lineage(record, job, plan_of(job))
    record.append(
        Finished(outcome=Outcome.SUCCEEDED) if over else HoldOpened(hold="h1", why="failed: exit 7", cause=Cause.FAILED)
    )
    # when
    code = main(["submit", str(path), "--wait"])
    # then
    told = capsys.readouterr().err
    assert code == (1 if over else 75)
    assert ("is finished (succeeded)" if over else "prefect-dispatch resume digits --store") in told
    assert "Prefect server" not in told
    assert not (tmp_path / "own").exists()


def test_status_says_when_holds_were_last_looked_after(lineage, capsys, tmp_path):
    # given
    lineage.append(HoldOpened(hold="h1", why="failed: exit 7", cause=Cause.FAILED))
    words = ["status", "digits", "--store", str(tmp_path / "runs")]
    assert main(words) == 0
    before = capsys.readouterr().out
    # when two polls went well
    for minute in (0, 1):
        note_poll(str(tmp_path / "runs"), POLL_CESSATION, datetime(2026, 11, 30, 12, minute, tzinfo=UTC))
    # then
    assert main(words) == 0
    after = capsys.readouterr().out
    assert main(["status", "--store", str(tmp_path / "runs")]) == 0
    assert "last looked after by poll_cessation: never" in before
    assert "last looked after by poll_cessation: 2026-11-30T12:01:00+00:00" in after
    assert "2026-11-30T12:01:00+00:00" in capsys.readouterr().out
    assert len(list((tmp_path / "runs" / ".dispatch" / "polls").iterdir())) == 1


def test_a_note_without_a_hold_to_lift_is_one_line(job_file, capsys, tmp_path):
    # given
    path = job_file()
    before = everything(tmp_path)
    # when
    code = main(["submit", str(path), "--note", "the disk was full"])
    # then
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert "--note 'the disk was full'" in line and "--run-again" in line
    assert everything(tmp_path) == before


@pytest.mark.parametrize("words", [["record", "digits", "--json"], ["status", "digits"], ["record", "digits"]])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_file_breaks_nothing(lineage, tmp_path, words, closed):
    # given a shell that closes it
    program = [sys.executable, "-m", "prefect_dispatch.cli", *words, "--store", str(tmp_path / "runs")]
    # when
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *program], capture_output=True, text=True)
    # then
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_two_lineages_of_one_name_in_two_stores_are_carried_each_by_its_own_process(tmp_path, monkeypatch):
    # given two stores, and one place for the user's own files
    monkeypatch.setenv("DISPATCH_STATE", str(tmp_path / "own"))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    processes = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        job = {
            "lineage": "twin",
            "command": ["sh", "-c", f"echo {name} > {folder}/ran"],
            "store": {"root": "./runs"},
            "scheduler": {"type": "local", "state_folder": "./sched"},
        }
        (folder / "job.yaml").write_text(json.dumps(job))
        # when both are submitted at once
        program = [sys.executable, "-m", "prefect_dispatch.cli", "submit", "job.yaml"]
        processes.append(subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, text=True))
    told = [process.communicate()[0] for process in processes]
    # then each has a process of its own, with a log of its own, and runs its own program to its end
    logs = sorted((tmp_path / "own" / "supervisors").glob("*.log"))
    assert len(logs) == 2
    for name, words in zip(("a", "b"), told, strict=True):
        record = open_record(str(tmp_path / name / "runs"), "twin", SystemClock())
        log = tmp_path / "own" / "supervisors" / f"twin-{record.id()}.log"
        assert log in logs and str(log) in words
        give_up = time.monotonic() + 40
        while (state := record.refresh()).finished is None:
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.1)
        assert state.finished.outcome is Outcome.SUCCEEDED
        assert (tmp_path / name / "ran").read_text() == f"{name}\n"
    # and no copy is left
    assert [*(tmp_path / "own" / "supervisors").glob("*.yaml")] == []


def test_a_process_that_is_started_for_one_record_carries_no_other(job_file, capsys, lineage, tmp_path):
    # given a copy of a job, which the process removes, and another record than the one meant
    path = job_file()
    facts = len(lineage.entries())
    # when
    code = main(["submit", str(path), "--copy-for", "f" * 16])
    # then
    (line,) = capsys.readouterr().err.splitlines()
    assert code != 0 and "f" * 16 in line and "submit the job again" in line
    assert len(lineage.entries()) == facts
