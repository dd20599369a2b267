"""What ``dispatch-job`` exits with on its own account."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of the helper itself. 65, 69, 70 and 74 are those of BSD's sysexits.h."""

    DONE = 0
    """It did what was asked."""
    USAGE = 2
    """A command, option or document is wrong as given; nothing was changed."""
    NOTHING_PUBLISHED = 3
    """There is no save to resume from."""
    MALFORMED = 65
    """Stored data is malformed; the line names it."""
    STORE_UNREACHABLE = 69
    """The store cannot be reached."""
    INTERNAL = 70
    """A defect of the helper itself."""
    IO_ERROR = 74
    """Reading or writing failed."""
    DUPLICATE = 190
    """Another execution has this epoch, or a later one."""
    UNUSABLE_CHECKPOINT = 191
    """Publications exist and none is whole."""
    IDENTITY_CHANGED = 192
    """The save belongs to a different run, this execution would become one, or that cannot be told."""
    DEADLINE_PASSED = 193
    """The total deadline has passed."""
    UNPUBLISHABLE = 194
    """The program's saves could not be published."""
    SAVED_ON_REQUEST = 195
    """The wrapper was asked to end, and the program then exited 0: it saved, and it may not be done."""


RESERVED = range(190, 196)
"""A program's own exit code in this range comes out as 1, so that a supervisor never takes it for the helper's word."""


def program_exit_code(code: int) -> int:
    """The code that ``run`` exits with for a program's own code: the same, or 1 where the range is reserved."""
    return 1 if code in RESERVED else code
