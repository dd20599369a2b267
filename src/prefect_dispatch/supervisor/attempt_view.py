"""What an execution's claim and journal tell of it: how far it is, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from prefect_dispatch.errors import Absent
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.journal import ExitNote, ExitReason, JournalKind
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.classify import LastWord
from prefect_dispatch.stores.claim import read_claim
from prefect_dispatch.stores.journal import JournalEntry
from prefect_dispatch.supervisor.root_look import MOST_NAMES, RootLook, number

MOST_ENTRIES = 200
"""Journal entries that one look at an execution reads at most."""
MOST_JOURNAL_BYTES = 2 * 1024 * 1024
"""Bytes of a journal that one look reads, the newest: hostile ones take 25 times as much in memory, and 200 of the
longest would take gigabytes. Those of an honest job have some hundred bytes each."""
MOST_DETAIL = 500
MOST_STATUS = 200
MAX_NOTES = 10

_WHY = {
    ExitReason.PROGRAM: "",
    ExitReason.NOTICE: "it ended after it was asked to",
    ExitReason.KILLED: "it was killed when its notice period was over",
    ExitReason.FAIL: "the program said that it has failed",
    ExitReason.SAVES: "its saves could not be published",
    ExitReason.DEADLINE: "its total deadline ended it",
    ExitReason.GUARDIAN_LOST: "its guardian was killed",
    ExitReason.REFUSED: "the helper did not start the program",
}
"""What the helper's last word adds to an exit code, for people."""


@dataclass(frozen=True)
class Progress:
    """What a program says of itself.

    Attributes:
        percent: how much is done, 0 to 100; None where it has not said.
        status: what it is doing; empty where it has not said.
        seq: the number of the journal's entry up to which this was told.
    """

    percent: float | None = None
    status: str = ""
    seq: int = field(default=0, compare=False)


class AttemptView:
    """One execution, seen from outside.

    Args:
        look: asks the root.
        attempt: the execution's attempt.
    """

    def __init__(self, look: RootLook, attempt: str) -> None:
        self._look = look
        self._attempt = attempt

    def last_word(self, epoch: Epoch) -> LastWord | None:
        """What it left behind about its end."""

        def question() -> LastWord:
            try:
                read_claim(self._look.root.store, epoch)
            except Absent:
                return LastWord(claimed=False)
            told, asked = "", False
            for entry in self._entries():
                if entry.kind in (JournalKind.FAIL.value, JournalKind.FAULT.value):
                    told = f": {_text(entry, MOST_DETAIL)}"
                asked = asked or entry.kind == JournalKind.NOTICE.value
                if entry.kind == JournalKind.EXIT.value:
                    return last_word_of(ExitNote.of_fields(entry.fields, f"the last word of {self._attempt}"), told)
            return LastWord(claimed=True, asked=asked)

        return self._look.ask(question)

    def notes(self) -> tuple[str, ...] | None:
        """What it found worth telling when it started."""

        def question() -> tuple[str, ...]:
            started = self._look.root.started(self._attempt)
            told = started.details.get("notes", []) if started is not None else []
            texts = told[:MAX_NOTES] if isinstance(told, list) else []
            return tuple(printable(text, MOST_DETAIL) for text in texts if isinstance(text, str))

        return self._look.ask(question)

    def exited_at(self) -> datetime | None:
        """When its wrapper wrote its last word, by its host's clock."""

        def question() -> datetime | None:
            for entry in reversed(self._entries()):
                if entry.kind == JournalKind.EXIT.value:
                    return self._look.moment(entry.fields.get("at"))
            return None

        return self._look.ask(question)

    def progress(self, known: Progress | None = None) -> Progress | None:
        """What its program last said of itself.

        Args:
            known: what was told before; only entries behind it are read.
        """
        before = known or Progress()

        def question() -> Progress:
            percent, status, seq = before.percent, before.status, before.seq
            for entry in self._entries(before.seq):
                seq = entry.seq
                told = number(entry.fields.get("percent"))
                if entry.kind == JournalKind.PROGRESS.value and told is not None:
                    percent = min(100.0, max(0.0, told))
                if entry.kind == JournalKind.STATUS.value:
                    status = _text(entry, MOST_STATUS)
                if entry.kind == JournalKind.TRANSFER.value:
                    status = _transfer(entry)
            return Progress(percent, status, seq)

        return self._look.ask(question)

    def _entries(self, after: int = 0) -> list[JournalEntry]:
        journal = self._look.root.journal(self._attempt)
        return journal.entries(after, limit=MOST_ENTRIES, most_names=MOST_NAMES, most_bytes=MOST_JOURNAL_BYTES)


def last_word_of(note: ExitNote, told: str) -> LastWord:
    """What an exit note says to people, with what else was told before it."""
    why = _WHY[note.reason]
    return LastWord(
        claimed=True,
        program_started=note.program_started,
        detail=f"{why}{told}" if why else "",
        asked=note.reason in (ExitReason.NOTICE, ExitReason.KILLED),
        exit_known=note.reason is not ExitReason.GUARDIAN_LOST,
        code=note.own_exit_code,
    )


def _transfer(entry: JournalEntry) -> str:
    """How far a save is on its way, in words; empty where the entry does not say."""
    done, total = number(entry.fields.get("done")), number(entry.fields.get("total"))
    words = {"upload": "uploading", "download": "downloading"}
    direction = entry.fields.get("direction")
    if done is None or not total or not isinstance(direction, str) or direction not in words:
        return ""
    return f"{words[direction]} a save: {max(0.0, min(1.0, done / total)):.0%} of {total / 1e6:,.1f} MB"


def _text(entry: JournalEntry, most: int) -> str:
    """What an entry tells, as one harmless line."""
    text = entry.fields.get("text", "")
    return printable(text, most) if isinstance(text, str) else ""
