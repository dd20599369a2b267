"""holds, resume and reopen on the command line: what is shown, that nothing is decided by default, and clear noes."""

from __future__ import annotations

import json
import sys

import pytest

from prefect_dispatch.cli import holds
from prefect_dispatch.cli.__main__ import main
from prefect_dispatch.model.facts import Cessation, Finished, LiftedBy, Outcome, Resolution
from prefect_dispatch.supervisor.cessation import Polled
from support.held_lineage import HeldLineage


@pytest.fixture
def held(tmp_path, monkeypatch) -> HeldLineage:
    monkeypatch.setenv("DISPATCH_STORE", str(tmp_path))
    return HeldLineage(tmp_path)


def test_holds_shows_what_waits_and_how_to_answer(held, capsys):
    assert main(["holds"]) == 0
    shown = capsys.readouterr().out
    assert held.hold in shown and "digits" in shown and "resubmit" in shown and "prefect-dispatch resume" in shown
    assert main(["holds", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["lineage"], row["hold"], row["stands_for"], row["signal_may_lift"]) == (
        "digits",
        held.hold,
        "resubmit",
        True,
    )
    assert row["until"] > row["since"] and row["site_says"] is None


def test_holds_of_a_store_without_any_says_so(tmp_path, capsys):
    assert main(["holds", "--store", str(tmp_path)]) == 0
    assert "nothing is held" in capsys.readouterr().out
    assert main(["holds", "--store", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("choice", [[], ["--run-again", "--stop"], ["--scratch", "--from", "x"]])
def test_resume_decides_nothing_by_default_nor_two_things(held, choice, capsys):
    with pytest.raises(SystemExit) as refused:
        main(["resume", "digits", *choice])
    assert refused.value.code == 2
    assert held.lifts() == []


@pytest.mark.parametrize(
    ("option", "resolution"),
    [("--run-again", Resolution.RUN_AGAIN), ("--stop", Resolution.STOP), ("--scratch", Resolution.FROM_SCRATCH)],
)
def test_resume_writes_the_answer_once(held, option, resolution, capsys):
    # when it is given twice
    assert main(["resume", "digits", "--hold", held.hold, option, "--note", "looked: all gone"]) == 0
    assert main(["resume", "digits", "--hold", held.hold, option]) == 1
    # then the second one is told
    assert "was answered already, by " in capsys.readouterr().err
    (lift,) = held.lifts()
    assert (lift.resolution, lift.lifted_by, lift.note) == (resolution, LiftedBy.PERSON, "looked: all gone")


def test_a_save_that_is_not_published_is_refused_by_name(held, capsys):
    held.root()
    assert main(["resume", "digits", "--from", "no-such-save"]) == 1
    assert "no-such-save" in capsys.readouterr().err
    assert held.lifts() == []


def test_the_site_is_asked_with_its_own_command_and_lifts(held, capsys):
    # given a command that looks at what it is asked about
    script = "import sys; print('ceased' if sys.argv[1:] == ['node1', 'a' * 16 + '-0'] else 'running')"
    command = [sys.executable, "-c", script, "{node}", "{attempt}"]
    # when
    assert main(["holds", "--ask", "--command", *command]) == 0
    # then
    told = capsys.readouterr()
    assert f"hold {held.hold} of digits is lifted: signal" in told.err
    (row,) = json.loads(_json(capsys))
    assert row["site_says"] == "lifted by signal"
    assert any(isinstance(entry.fact, Cessation) for entry in held.record().entries())


def test_the_newest_answer_is_shown_though_it_is_no_news(held, capsys):
    # given a site that cannot tell, each time for another reason
    script = "import sys; print('unknown ' + sys.argv[1])"
    for reason in ("node1 is not reachable", "the daemon is\033[2J down"):
        # when
        assert main(["holds", "--json", "--ask", "--command", sys.executable, "-c", script, reason]) == 0
        # then
        (row,) = json.loads(capsys.readouterr().out)
        assert row["site_says"].startswith("unknown: ")
        assert reason.partition("\033")[0] in row["site_says"] and "\033" not in row["site_says"]
    # and the record has the first one alone
    assert len([entry for entry in held.record().entries() if isinstance(entry.fact, Cessation)]) == 1
    assert main(["holds"]) == 0
    assert "node1 is not reachable" in capsys.readouterr().out


def _json(capsys) -> str:
    assert main(["holds", "--json"]) == 0
    return capsys.readouterr().out


def test_a_command_without_a_question_is_refused(held, capsys):
    assert main(["holds", "--command", "true"]) == 2
    assert "--ask" in capsys.readouterr().err


def test_reopen_takes_up_what_is_over_and_holds(held, capsys):
    # given
    assert main(["reopen", "digits"]) == 1
    assert "not finished" in capsys.readouterr().err
    record = held.record()
    record.refresh()
    record.append(Finished(outcome=Outcome.HOLD_EXPIRED))
    # when
    assert main(["reopen", "digits", "--note", "back"]) == 0
    # then
    (row,) = json.loads(_json(capsys).split("\n", 1)[1])
    assert "reopened by" in row["why"] and row["hold"] != held.hold and not row["signal_may_lift"]


def test_a_site_that_could_not_be_asked_is_told_by_the_exit_code(held, capsys, monkeypatch):
    # given a lineage of which nothing could be found out
    async def ask(*_: object, **__: object) -> list[Polled]:
        return [Polled("digits", trouble="the site is away")]

    monkeypatch.setattr(holds, "ask_about_holds", ask)
    # when, then
    assert main(["holds", "--ask"]) == 1
    told = capsys.readouterr()
    assert "digits: the site is away" in told.err and held.hold in told.out
