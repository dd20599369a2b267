"""``prefect-dispatch status``: all lineages of a store, or one."""

from __future__ import annotations

import argparse
from typing import Any

from prefect_dispatch.cli.output import print_json, print_table, report_faults, say
from prefect_dispatch.cli.places import add_store, existing_record, record_root_of
from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.state import Landing, LineageState
from prefect_dispatch.model.unaccounted import name_of
from prefect_dispatch.pictures.history import History, history_of, resumed_words
from prefect_dispatch.pictures.tables import identity_table
from prefect_dispatch.supervisor.assemble import root_view_of
from prefect_dispatch.supervisor.places import known_lineages, open_index
from prefect_dispatch.supervisor.polls import POLL_CESSATION, RECONCILE, last_poll


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("lineage", metavar="LINEAGE", nargs="?", help="one lineage; all where left out")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    record_root = record_root_of(options)
    if options.lineage is None:
        return _show_all(record_root, options.json)
    record, state = existing_record(record_root, options.lineage)
    history = history_of(record.entries(), root_view_of(options.lineage, state))
    summary = summarise(options.lineage, history.state)
    summary["generations"] = generation_rows(history)
    summary["executions"] = execution_rows(history)
    opened = history.state.opened
    summary["identity"] = identity_table(opened.plan, opened.identity) if opened is not None else []
    summary["holds_polled_at"] = _polled_at(record_root)
    summary["reconciled_at"] = _polled_at(record_root, RECONCILE)
    summary["faults"] = [*history.faults, *([record.unreadable] if record.unreadable else [])]
    if options.json:
        print_json(summary)
    else:
        detail = f" — {summary['detail']}" if summary["detail"] else ""
        say(f"{summary['lineage']}: {summary['state']}{detail}")
        if len(summary["generations"]) > 1:
            print_table([{name: _cell(value) for name, value in row.items()} for row in summary["generations"]])
        print_table([{name: _cell(value) for name, value in row.items()} for row in summary["executions"]])
        print_table(summary["identity"])
        if history.state.hold is not None:
            say(f"holds were last looked after by poll_cessation: {summary['holds_polled_at'] or 'never'}")
        if history.state.open and summary["reconciled_at"]:
            say(f"runs that are gone were last looked for by reconcile: {summary['reconciled_at']}")
    return report_faults(history, record)


def _show_all(record_root: str, as_json: bool) -> int:
    summaries: list[dict[str, Any]] = []
    code = 0
    marked = set(open_index(record_root).names())
    for lineage in known_lineages(record_root):
        try:
            record, state = existing_record(record_root, lineage)
            summaries.append(summarise(lineage, state))
            if state.open and lineage not in marked:
                # Pollers look at what is marked alone, and here all records are read anyway.
                record.settle_index()
        except DispatchError as error:
            unreadable = summarise(lineage, LineageState())
            summaries.append({**unreadable, "state": "unreadable", "detail": str(error)})
            code = max(code, int(error.exit_code))
    if as_json:
        print_json(summaries)
    else:
        print_table([{**{name: _cell(each[name]) for name in each}, "final_save": _save(each)} for each in summaries])
        if not summaries:
            print(f"no lineage in {record_root}")
        if any(each["state"] == "held" for each in summaries):
            say(f"holds were last looked after by poll_cessation: {_polled_at(record_root) or 'never'}")
    return code


def _polled_at(record_root: str, poller: str = POLL_CESSATION) -> str | None:
    polled = last_poll(record_root, poller)
    return polled.isoformat() if polled is not None else None


def summarise(lineage: str, state: LineageState) -> dict[str, Any]:
    """One lineage in one line: its state in a word, and why."""
    word, detail = _state_word(state)
    detail = "; ".join(text for text in (detail, _older_ones(state)) if text)
    return {
        "lineage": lineage,
        "generation": state.generation,
        "parent": state.parent.generation if state.parent is not None else None,
        "state": word,
        "submissions": len(state.submissions),
        "spent": {str(cause): count for cause, count in state.spent.items()},
        "detail": detail,
        "final_save": state.finished.final_save if state.finished is not None else None,
    }


def generation_rows(history: History) -> list[dict[str, Any]]:
    """The generations of a lineage, for scripts."""
    return [
        {
            "generation": row.generation,
            "parent": row.parent,
            "opened_at": row.opened_at.isoformat(timespec="seconds"),
            "by": row.owner,
            "goes_on_from": row.goes_on_from,
            "outcome": str(row.outcome) if row.outcome is not None else None,
            "note": row.note,
        }
        for row in history.generations
    ]


def execution_rows(history: History) -> list[dict[str, Any]]:
    """The executions of a lineage, for scripts."""
    return [
        {
            "epoch": str(row.epoch),
            "state": str(row.state),
            "cause": str(row.cause) if row.cause is not None else None,
            "started_at": row.started_at.isoformat() if row.started_at is not None else None,
            "ended_at": row.ended_at.isoformat() if row.ended_at is not None else None,
            "overlap_seconds": round(row.overlap.total_seconds(), 2) if row.overlap is not None else None,
            "resumed_from": resumed_words(row),
            "saves": row.saves,
            "newest_step": row.newest_step,
            "attempt": row.attempt,
            "notes": list(row.notes),
        }
        for row in history.rows
    ]


def _state_word(state: LineageState) -> tuple[str, str]:
    if state.opened is None:
        return "empty", ""
    if state.finished is not None:
        return str(state.finished.outcome), state.finished.detail
    if state.hold is not None:
        return "held", state.hold.opened.why
    if state.stop is not None:
        return "stopping", f"asked by {state.stop.who or 'a person'}"
    submission = state.newest
    if submission is None:
        return "opened", ""
    if submission.landing is not Landing.LANDED:
        return "submitting", submission.detail
    execution = submission.newest
    if execution is None:
        return "submitted", ""
    if execution.ended is not None:
        return "between executions", f"{submission.epoch(execution.restart)} ended as {execution.ended.cause}"
    return str(execution.state), f"{submission.epoch(execution.restart)} on {', '.join(execution.nodes) or '?'}"


def _older_ones(state: LineageState) -> str:
    """What the lineage's end waits for that is older than its newest submission, once nothing else keeps it from it."""
    newest = state.newest
    if not state.open or state.hold is not None or (newest is not None and newest.unsettled):
        return ""
    told = [
        f"submission {name_of(state, each)} ({each.newest.state if each.newest is not None else each.landing})"
        for each in state.stale
        if each.may_run
    ]
    return f"waits for the end of {', '.join(told)}" if told else ""


def _save(summary: dict[str, Any]) -> str:
    """A final save in words, as the tables of executions say it."""
    if not summary["final_save"]:
        return ""
    publication = Publication.parse(summary["final_save"])
    return f"{publication.epoch} step {publication.step}"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items())
    if isinstance(value, list):
        return "; ".join(value)
    return "" if value is None else str(value)
