"""A person lifts the hold that the person has seen, and no other."""

from __future__ import annotations

import json
import sys

import pytest

from prefect_dispatch.cli import submit
from prefect_dispatch.cli.__main__ import main
from prefect_dispatch.cli.job_file import resolve_job
from prefect_dispatch.errors import LineageError, StoreUnreachable
from prefect_dispatch.model.facts import HoldLifted, HoldOpened
from prefect_dispatch.supervisor.assemble import plan_of
from prefect_dispatch.supervisor.choices import run_again
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.opening import open_lineage, require_held
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.supervisor.record import Record


@pytest.fixture
def job_file(tmp_path):
    path = tmp_path / "job.yaml"
    job = {
        "lineage": "digits",
        "command": ["true"],
        "store": {"root": "runs"},
        "scheduler": {"type": "local", "state_folder": "state"},
    }
    path.write_text(json.dumps(job))
    return path


@pytest.fixture
def record(job_file) -> Record:
    job = resolve_job(job_file)
    record = open_record(job.record_root, "digits", SystemClock())
    open_lineage(record, job, plan_of(job))
    return record


def hold(record: Record, why: str) -> str:
    """Hold the lineage, in place of any hold that is open. Returns the new hold's name."""
    name = f"h{record.refresh().seq + 1}"
    record.append(HoldOpened(hold=name, why=why))
    return name


def test_a_hold_that_opened_after_the_person_looked_stays(record):
    # given
    hold(record, "the disk was full")
    seen = require_held(record)
    # when the lineage goes on and is held for another reason
    second = hold(record, "the checkpoint is broken")
    # then the person's word is refused, and the error names both
    with pytest.raises(LineageError) as refused:
        run_again(record, seen.opened.hold, who="ann")
    for text in (seen.opened.hold, second, "the checkpoint is broken"):
        assert text in str(refused.value)
    assert record.refresh().hold.opened.hold == second


def test_a_hold_that_opens_between_reading_and_appending_stays(record, job_file):
    # given somebody who moves between the look and the append
    first = hold(record, "the disk was full")
    other = open_record(resolve_job(job_file).record_root, "digits", SystemClock())
    seen = require_held(record)
    append = record.append

    def append_late(fact, generation=None):
        if isinstance(fact, HoldLifted) and other.refresh().hold.opened.hold == first:
            hold(other, "the checkpoint is broken")
        return append(fact, generation)

    record.append = append_late
    # then
    with pytest.raises(LineageError, match="the checkpoint is broken"):
        run_again(record, seen.opened.hold, who="ann")
    assert not any(isinstance(entry.fact, HoldLifted) for entry in record.entries())


def test_the_command_refuses_another_hold_than_the_one_that_is_named(record, job_file, capsys):
    # given
    name = hold(record, "the checkpoint is broken")
    before = record.refresh().seq
    # when
    code = main(["submit", str(job_file), "--run-again", "h1"])
    # then
    told = capsys.readouterr().err
    assert code == 1 and len(told.splitlines()) == 1
    assert "h1" in told and f"--run-again {name}" in told and "the checkpoint is broken" in told
    assert record.refresh().seq == before


def test_the_command_says_which_hold_there_is(record, job_file, capsys):
    name = hold(record, "the checkpoint is broken")
    assert main(["submit", str(job_file)]) == 75
    assert f"add --run-again {name}" in capsys.readouterr().err


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("order", ["job first", "option first"])
def test_the_command_lifts_the_hold_that_it_tells_of(record, job_file, capsys, monkeypatch, named, order):
    # given a command that starts nothing
    name = hold(record, "the disk was full")
    monkeypatch.setattr("prefect_dispatch.cli.submit.supervise_apart", lambda job, record, generation: 0)
    option = ["--run-again", *([name] if named else [])]
    words = [str(job_file), *option] if order == "job first" else [*option, str(job_file)]
    # when
    code = main(["submit", *words])
    # then
    assert code == 0
    assert f"lifting hold {name} of digits: the disk was full" in capsys.readouterr().out
    assert record.refresh().hold is None


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--run-again"], "no JOB is given"),
        ([], "no JOB is given"),
        (["job.yaml", "--run-again", "yes"], "'yes' is no hold's name"),
    ],
)
def test_what_is_no_hold_is_refused_in_one_line(capsys, words, text):
    assert main(["submit", *words]) == 2
    assert text in capsys.readouterr().err


def test_the_job_that_is_checked_is_the_one_that_is_run(job_file, record, monkeypatch, capsys):
    # given a held job, and how often its file is opened
    hold(record, "the disk was full")
    opened: list[str] = []
    watching = [True]
    sys.addaudithook(lambda event, about: opened.append(str(about[0])) if event == "open" and watching else None)
    monkeypatch.chdir(job_file.parent)
    # when, then each command reads it once
    for words in (["submit", str(job_file), "--wait"], ["supersede", "digits", str(job_file), "--resume", "nothing"]):
        opened.clear()
        assert main(words) != 0
        assert opened.count(str(job_file)) == 1, words
    watching.clear()
    assert "is held" in capsys.readouterr().err


def test_a_copy_of_a_job_with_its_environment_is_gone_whatever_follows(job_file, record, monkeypatch, tmp_path):
    # given a copy, and a server that does not come up for the process that is to carry it
    copy = tmp_path / "copy.yaml"
    copy.write_text(job_file.read_text())

    def fails() -> None:
        raise StoreUnreachable("no server")

    monkeypatch.setattr(submit, "prefect_api", fails)
    # when
    code = main(["submit", str(copy), "--wait", "--copy-for", record.id(), "--generation", "0"])
    # then
    assert code == 69
    assert not copy.exists()
