"""A hold in words: why, in a few of them, and as the page above the form on which a person answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from textwrap import wrap

from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import Cessation, Ended, Entry
from prefect_dispatch.model.state import Execution, Hold, LineageState, SubmissionState
from prefect_dispatch.pictures.execution_page import as_words
from prefect_dispatch.pictures.tables import describe_rule

MOST_SAVES_SHOWN = 3
MOST_ANSWERS_SHOWN = 10
MOST_CELL = 46
"""The longest line for which a cell has room, in characters."""
MOST_WHY = 300
MOST_DETAIL = 200


def short_reason(state: LineageState) -> str:
    """Why a lineage is held, in so few words that a list of runs has room for them.

    They come from what was counted alone: a job's own text has no place in the name of a run.
    """
    hold = state.hold
    if hold is None:
        return ""
    opened, cause = hold.opened, hold.opened.cause
    if opened.token is not None:
        return f"submission {opened.n} is not accounted for"
    if opened.signal_may_lift:
        return f"{cause or 'ended'}, shared checkpoint"
    if cause is None:
        return "a person is asked"
    if cause is Cause.SUSPENDED or opened.stands_for is None:
        return str(cause).replace("_", " ")
    rule = state.opened.plan.recovery(cause) if state.opened is not None else None
    if rule is not None and state.spent.get(cause, 0) > rule.budget:
        return f"budget for {cause} spent"
    return f"{state.fruitless} executions without a new save"


def hold_page(
    lineage: str,
    state: LineageState,
    entries: Sequence[Entry],
    saves: Sequence[tuple[Publication, datetime | None]],
) -> str:
    """Write what a person must know to answer a hold, in Markdown. No text of a job becomes markup.

    Args:
        lineage: the lineage's name.
        state: its state; with the hold.
        entries: its record.
        saves: its publications, newest first, and when they were written, as far as that is known.
    """
    hold = state.hold
    if hold is None:
        return f"{lineage} is not held any more."
    rows = [
        *_end_rows(state, hold),
        ("The rule", _rule(state, hold)),
        *_save_rows(saves, hold),
        *_answers(entries, hold),
        ("Waits until", _moment(hold.opened.until) if hold.opened.until is not None else "a person answers"),
    ]
    table = "".join(_row(name, value) for name, value in rows if value)
    head = f"**{lineage}** is held: {as_words(hold.opened.why, MOST_WHY)}"
    return f"{head}\n\n| Hold {hold.opened.hold} | since {_moment(hold.at)} |\n|---|---|\n{table}"


def _row(name: str, value: str) -> str:
    """One row, or more of them: the window that the UI shows this in cuts a long cell off."""
    first, *rest = wrap(value, MOST_CELL)
    return "".join([f"| {name} | {first} |\n", *(f"| | {each} |\n" for each in rest)])


def _end_rows(state: LineageState, hold: Hold) -> list[tuple[str, str]]:
    opened = hold.opened
    submission = state.submission_of(opened.object) if opened.object is not None else None
    if submission is None and opened.n is not None:
        submission = state.submission(state.generation, opened.n)
    if submission is None:
        return []
    execution = _execution(submission, opened.restart)
    if execution is None or execution.ended is None:
        return [("What ended", f"submission {submission.n}{_told(submission.detail)}")]
    ended: Ended = execution.ended
    nodes = ", ".join(ended.nodes or execution.nodes)
    at = ended.ended_at or execution.ended_at
    return [
        ("What ended", f"{submission.epoch(execution.restart)} as {ended.cause}{_told(ended.detail)}"),
        ("Where it ran", as_words(nodes, MOST_DETAIL)),
        ("When", _before(at, hold) if at is not None else ""),
    ]


def _execution(submission: SubmissionState, restart: int | None) -> Execution | None:
    return next((each for each in submission.executions if each.restart == restart), submission.newest)


def _rule(state: LineageState, hold: Hold) -> str:
    """What would follow without the hold, and how often it has."""
    cause, stands_for = hold.opened.cause, hold.opened.stands_for
    if cause is None or state.opened is None:
        return ""
    if stands_for is None:
        return f"asks a person after {cause}"
    rule = state.opened.plan.recovery(cause)
    action = describe_rule(rule) if rule.action is stands_for else str(stands_for)
    return f"would {action}; {state.spent.get(cause, 0)} {cause}, budget {rule.budget}"


def _save_rows(saves: Sequence[tuple[Publication, datetime | None]], hold: Hold) -> list[tuple[str, str]]:
    """One row for each of the newest."""
    rows = [
        (f"Save {number}", f"{save.epoch} step {save.step}{f', {_before(at, hold)}' if at is not None else ''}")
        for number, (save, at) in enumerate(saves[:MOST_SAVES_SHOWN], start=1)
    ]
    return rows or [("Saves", "none that can be seen")]


def _answers(entries: Sequence[Entry], hold: Hold) -> list[tuple[str, str]]:
    answers = [
        (entry.at, entry.fact)
        for entry in entries
        if isinstance(entry.fact, Cessation) and entry.fact.hold == hold.opened.hold
    ]
    rows = [
        ("The site said", f"{fact.answer}{_told(fact.detail)}; {_moment(at)}")
        for at, fact in answers[-MOST_ANSWERS_SHOWN:]
    ]
    if hold.opened.signal_may_lift and not rows:
        return [("The site", "has not answered yet; a word of it that all processes are gone lifts the hold")]
    return rows


def _told(detail: str) -> str:
    return f": {as_words(detail, MOST_DETAIL)}" if detail else ""


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _before(at: datetime, hold: Hold) -> str:
    """How long before the hold something was: the page is read hours later, and nobody writes it anew."""
    return f"{describe_duration(hold.at - at)} before the hold" if at <= hold.at else "during the hold"
