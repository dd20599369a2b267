"""From what a scheduler and the helper say of an end to its cause."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    claimed: bool
    program_started: bool | None = None
    detail: str = ""


_OWN_CODES = {
    ExitCode.DONE: Cause.COMPLETED,
    ExitCode.DUPLICATE: Cause.DUPLICATE,
    ExitCode.UNUSABLE_CHECKPOINT: Cause.UNUSABLE_CHECKPOINT,
    ExitCode.IDENTITY_CHANGED: Cause.IDENTITY_CHANGED,
    ExitCode.DEADLINE_PASSED: Cause.DEADLINE,
    ExitCode.UNPUBLISHABLE: Cause.UNPUBLISHABLE,
    ExitCode.SAVED_ON_REQUEST: Cause.SUSPENDED,
}
"""The helper remaps a program's own codes of this range to 1, so these are the helper's word (design §7)."""


_HELPERS_FAULTS = frozenset(
    {ExitCode.USAGE, ExitCode.MALFORMED, ExitCode.STORE_UNREACHABLE, ExitCode.INTERNAL, ExitCode.IO_ERROR}
)
"""What the helper exits with when it cannot start a program. A program may use these codes too: the root tells."""


def cause_of(ended: EndedRestart, word: LastWord | None) -> Cause:
    """Say why an execution ended.

    The scheduler's state beats the exit code: a lost node that reports ``0:0`` is no success. Among exit codes the
    helper's reserved ones speak for themselves; any other is the program's own, 0 included, unless the root shows that
    the program never ran: a line before the wrapper that exits 0 is no success either. Where the root cannot tell, a
    code that the helper fails with is taken for the helper's: the outage that hides the root may be what ended it.

    Args:
        ended: the scheduler's words.
        word: what the root tells; None where it cannot be seen.
    """
    if ended.cause is not None:
        return ended.cause
    if ended.exit is None:
        return Cause.VANISHED
    never_ran = word is not None and (not word.claimed or word.program_started is False)
    if ended.exit.code == ExitCode.DONE and never_ran:
        return Cause.LAUNCH_FAILED
    if ended.exit.code in _OWN_CODES:
        return _OWN_CODES[ExitCode(ended.exit.code)]
    if never_ran or (word is None and ended.exit.code in _HELPERS_FAULTS):
        return Cause.LAUNCH_FAILED
    return Cause.FAILED
