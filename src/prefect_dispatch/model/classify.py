"""From what a scheduler and the helper say of an end to its cause."""

from __future__ import annotations

from dataclasses import dataclass, replace

from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import EndedRestart


@dataclass(frozen=True)
class LastWord:
    """What the root tells of an execution that has ended.

    Attributes:
        claimed: whether the execution claimed its epoch.
        program_started: whether the program was started; None where the helper left no last word.
        detail: the helper's own sentence about the end.
        asked: whether the wrapper was asked to end, and the program with it.
        exit_known: whether the last word knows how the program ended.
        code: what the wrapper was about to exit with; None where it left no last word.
    """

    claimed: bool
    program_started: bool | None = None
    detail: str = ""
    asked: bool = False
    exit_known: bool = True
    code: int | None = None


def joined(word: LastWord | None, report: LastWord | None) -> LastWord | None:
    """What a root without the helper's last word, and the report that was left elsewhere, tell together."""
    if word is None or report is None:
        return report or word
    return replace(report, asked=word.asked or report.asked)


_OWN_CODES = {
    ExitCode.DUPLICATE: Cause.DUPLICATE,
    ExitCode.UNUSABLE_CHECKPOINT: Cause.UNUSABLE_CHECKPOINT,
    ExitCode.IDENTITY_CHANGED: Cause.IDENTITY_CHANGED,
    ExitCode.DEADLINE_PASSED: Cause.DEADLINE,
    ExitCode.UNPUBLISHABLE: Cause.UNPUBLISHABLE,
}
"""The helper remaps a program's own codes of this range to 1, so these are the helper's word (design §7)."""


_HELPERS_FAULTS = frozenset(
    {ExitCode.USAGE, ExitCode.MALFORMED, ExitCode.STORE_UNREACHABLE, ExitCode.INTERNAL, ExitCode.IO_ERROR}
)
"""What the helper exits with when it cannot start a program. A program may use these codes too: the root tells."""


def cause_of(ended: EndedRestart, word: LastWord | None, suspended: bool = False) -> Cause:
    """Say why an execution ended.

    The scheduler's state beats the exit code: a lost node that reports ``0:0`` is no success. Among exit codes the
    helper's reserved ones speak for themselves; any other is the program's own, unless the root shows that the program
    never ran: a line before the wrapper that exits 0 is no success either. Where the root cannot tell, a code that the
    helper fails with is taken for the helper's: the outage that hides the root may be what ended it.

    An end that somebody asked for, and nobody explains, is a preemption, whatever the exit code: a program that saves
    on SIGTERM and exits 0 has not finished. A wrapper that was lost says nothing of its program: that is ``vanished``.

    Args:
        ended: the scheduler's words.
        word: what the root tells; None where it cannot be seen.
        suspended: whether we asked the job to save and exit.
    """
    if ended.cause is not None:
        return ended.cause
    if ended.exit is None:
        return Cause.VANISHED
    code = ended.exit.code
    if code is None and word is not None:
        # A wrapper that was killed after its last word had nothing more to say.
        code = word.code
    if code in _OWN_CODES:
        return _OWN_CODES[ExitCode(code)]
    if code == ExitCode.SAVED_ON_REQUEST:
        return Cause.SUSPENDED if suspended else Cause.PREEMPTED
    if _is_unexplained(ended, word):
        return Cause.VANISHED
    if word is not None and word.asked:
        return Cause.SUSPENDED if suspended and code == ExitCode.DONE else Cause.PREEMPTED
    if word is not None and (not word.claimed or word.program_started is False):
        return Cause.LAUNCH_FAILED
    if word is None and code in _HELPERS_FAULTS:
        return Cause.LAUNCH_FAILED
    return Cause.COMPLETED if code == ExitCode.DONE else Cause.FAILED


def _is_unexplained(ended: EndedRestart, word: LastWord | None) -> bool:
    """Whether a program may have run of which nobody knows how it ended."""
    if word is None or not word.claimed:
        return False
    silent = word.program_started is None
    lost = ended.exit is None or ended.exit.code is None or ended.exit.code in _HELPERS_FAULTS
    return not word.exit_known or (silent and lost)
