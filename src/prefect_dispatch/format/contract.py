"""The contract: what the wrapper tells the program through its environment."""

from __future__ import annotations

from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.epoch import Epoch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Mapping, Optional

LINEAGE = "DISPATCH_LINEAGE"
ATTEMPT = "DISPATCH_ATTEMPT"
EPOCH = "DISPATCH_EPOCH"
ROOT = "DISPATCH_ROOT"
EXEC_DIR = "DISPATCH_EXEC_DIR"
RESUME_FROM = "DISPATCH_RESUME_FROM"
RESUME_STEP = "DISPATCH_RESUME_STEP"
RESUME_STATE = "DISPATCH_RESUME_STATE"
DEADLINE = "DISPATCH_DEADLINE"
NOTICE = "DISPATCH_NOTICE"
"""Path of a file that is there once the program has been asked to save and exit."""
NOTICE_SIGNAL = "DISPATCH_NOTICE_SIGNAL"
"""The signal that asks it, without SIG."""
WORKPLACE = "DISPATCH_WORKPLACE"
"""For the wrapper the folder of all workplaces; for the program its own one, empty where the root is a folder."""

SUBMISSION = "DISPATCH_SUBMISSION"
"""Path of the submission document; for the wrapper, not for the program."""
RESTART = "DISPATCH_RESTART"
"""The restart R, where the submission says so; for the wrapper, not for the program."""
PATIENCE = ("DISPATCH_S3_TIMEOUT", "DISPATCH_S3_RETRY")
"""How patient with an object store the wrapper is, and the commands that its program calls as well."""
PREFIX = "DISPATCH_"
VARIABLES = (
    LINEAGE,
    ATTEMPT,
    EPOCH,
    ROOT,
    EXEC_DIR,
    RESUME_FROM,
    RESUME_STEP,
    RESUME_STATE,
    DEADLINE,
    NOTICE,
    NOTICE_SIGNAL,
    WORKPLACE,
)
"""What the program is told. Of other ``DISPATCH_*`` it has those of ``PATIENCE`` alone."""


@dataclass(frozen=True)
class Contract:
    """What one execution's program is told.

    Args:
        lineage: the lineage's name.
        attempt: this execution's token.
        epoch: this execution's epoch.
        root: the lineage's own root, absolute; or its URL.
        exec_dir: the folder that belongs to this execution alone, absolute.
        resume_from: the imported save to go on from, absolute; None at a start from scratch.
        resume_step: its step; None at a start from scratch.
        resume_state: the program's own state string of that save, else empty.
        workplace: where this execution's saves lie on its machine, absolute; empty where the root is a folder.
        deadline: when the total deadline passes, in seconds since 1970; None where there is none.
        notice: the file by which it is asked to save and exit, absolute.
        notice_signal: the signal by which it is, without SIG.
    """

    lineage: str
    attempt: str
    epoch: Epoch
    root: str
    exec_dir: str
    resume_from: Optional[str] = None
    resume_step: Optional[int] = None
    resume_state: str = ""
    workplace: str = ""
    deadline: Optional[float] = None
    notice: str = ""
    notice_signal: str = ""

    def environment(self, inherited: Mapping[str, str]) -> Dict[str, str]:
        """The program's environment: what was inherited, less ``DISPATCH_*`` but for ``PATIENCE``, plus the contract.

        ``PYTHONUNBUFFERED=1`` is set unless it is set already, so that messages are not held back in a buffer.
        """
        environment = {
            name: value for name, value in inherited.items() if name in PATIENCE or not name.startswith(PREFIX)
        }
        environment.setdefault("PYTHONUNBUFFERED", "1")
        environment.update(self.variables())
        return environment

    def variables(self) -> Dict[str, str]:
        """The contract alone."""
        return {
            LINEAGE: self.lineage,
            ATTEMPT: self.attempt,
            EPOCH: str(self.epoch.number),
            ROOT: self.root,
            EXEC_DIR: self.exec_dir,
            RESUME_FROM: self.resume_from or "",
            RESUME_STEP: "" if self.resume_step is None else str(self.resume_step),
            RESUME_STATE: self.resume_state,
            DEADLINE: "" if self.deadline is None else str(int(self.deadline)),
            NOTICE: self.notice,
            NOTICE_SIGNAL: self.notice_signal,
            WORKPLACE: self.workplace,
        }
