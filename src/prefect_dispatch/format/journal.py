"""The words of the journal: what kinds of entries there are, and what the last one says."""

from __future__ import annotations

import enum

from prefect_dispatch.errors import MalformedDocument
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import field
from prefect_dispatch.format.printable import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional


class JournalKind(enum.Enum):
    """The kinds of entries that the wrapper writes.

    Each has ``at``, seconds since 1970 by the wrapper's clock, and what is named here.
    """

    PROGRESS = "progress"
    """``percent``: how much is done. Not every change is written, the last one is."""
    STATUS = "status"
    """``text``: what the program is doing. Not every change is written, the last one is."""
    FAIL = "fail"
    """``text``: why the program says that it has failed."""
    REFUSED = "refused"
    """``line``, ``reason``: a message that could not be taken."""
    FAULT = "fault"
    """``text``: looking for saves or publishing one failed."""
    NOTE = "note"
    """``text``: what stops nothing and should be known, such as changed code."""
    TRANSFER = "transfer"
    """``direction`` (``upload`` or ``download``), ``path``, ``done``, ``total``: how many bytes of a save have arrived.
    Of transfers that take their time, now and then."""
    RESUME_STATUS = "resume_status"
    """``status``: whether a resumed program says that it goes on from its save."""
    NOTICE = "notice"
    """``signal``, ``cause``, ``period_seconds``: the program was asked to save and exit."""
    EXIT = "exit"
    """The last entry: see :class:`ExitNote`."""


class ExitReason(enum.Enum):
    """Why an execution ended as it did."""

    REFUSED = "refused"
    """The execution could not start; the exit code says why."""
    PROGRAM = "program"
    """The program ended by itself."""
    NOTICE = "notice"
    """The program ended after somebody asked for that, or was not started because the notice came first."""
    KILLED = "killed"
    """The program was still there when its notice period was over."""
    FAIL = "fail"
    """The program said ``openjd_fail``."""
    SAVES = "saves"
    """The program's saves could not be published."""
    DEADLINE = "deadline"
    """The total deadline ended the program: it was asked to save, and ended or was killed."""
    GUARDIAN_LOST = "guardian_lost"
    """The guardian was killed; what was left of the program was killed too, and its own exit is not known."""


@dataclass(frozen=True)
class ExitNote:
    """The ``exit`` entry.

    Args:
        program_started: whether user code ran at all.
        exit_code: the program's own exit code; None where a signal ended it or nobody knows.
        signal: the number of the signal that ended it, if one did.
        own_exit_code: what the wrapper exited with; 1 where the program's own code is a reserved one.
        reason: why.
    """

    program_started: bool
    exit_code: Optional[int]
    signal: Optional[int]
    own_exit_code: int
    reason: ExitReason

    def fields(self) -> Dict[str, Any]:
        """The entry's fields."""
        return {
            "program_started": self.program_started,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "own_exit_code": self.own_exit_code,
            "reason": self.reason.value,
        }

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any], what: str) -> ExitNote:
        """Read an entry's fields.

        Raises:
            MalformedDocument: they are not those of an ``exit`` entry.
        """
        word = field(fields, "reason", str, what)
        try:
            reason = ExitReason(word)
        except ValueError:
            raise MalformedDocument(f"{what} has reason {shorten(word)}, which is not one") from None
        return cls(
            field(fields, "program_started", bool, what),
            field(fields, "exit_code", (int, type(None)), what),
            field(fields, "signal", (int, type(None)), what),
            field(fields, "own_exit_code", int, what),
            reason,
        )
