"""What Slurm's commands complain about, where it matters to know for certain. The texts are those of slurm_errno.c."""

from __future__ import annotations

import re

_SAID = re.compile(r"(?:\S*/)?sbatch: (?:error|fatal): (.*)")
"""What is sbatch's own. A login banner, a shell and ssh write to standard error as well."""
_USAGE = re.compile(
    r"(?:\S*/)?sbatch: (?:unrecognized option|invalid option|option '[^']*' "
    r"(?:is ambiguous|requires an argument|doesn't allow an argument))"
)
"""What getopt_long(3) prints. Nobody asked the controller then: sbatch ends at once, with 255."""
_REFUSED = (
    "access/permission denied",
    "account or partition",
    "batch job submission failed: requested",
    "batch script",
    "bf_",
    "burst buffer",
    "invalid account",
    "invalid constraint",
    "invalid dependency",
    "invalid feature",
    "invalid generic resource",
    "invalid gres",
    "invalid job array",
    "invalid license",
    "invalid node",
    "invalid partition",
    "invalid qos",
    "invalid reservation",
    "invalid --",
    "invalid option",
    "invalid time",
    "is not a valid",
    "job violates",
    "job size specification",
    "memory specification",
    "more processors requested",
    "mutually exclusive",
    "node count specification",
    "not allowed",
    "reached maximum",
    "request exceeds",
    "requested node configuration is not available",
    "requested partition configuration not available",
    "requested time limit",
    "reservation is invalid",
    "tres specification",
    "unable to open file",
    "unsatisfiable",
    "user's group not permitted",
)
_DOUBTFUL = (
    "communication",
    "connect failure",
    "contact slurm",
    "backup controller",
    "message receive failure",
    "retry",
    "socket",
    "timed out",
    "timeout",
    "try again",
    "zero bytes",
)


def is_refusal(complaint: str, code: int, prefixed: bool) -> bool:
    """Whether ``sbatch`` said for certain that there is no job and will be none. A text nobody knows is no refusal.

    Args:
        complaint: what was printed on standard error, line by line.
        code: the exit code. A connection that was cut off is 255 (ssh(1)), whatever came before it.
        prefixed: whether it ran behind a prefix, which may be the one that exited.
    """
    lines = [line.strip() for line in complaint.splitlines()]
    if code > 0 and any(_USAGE.match(line) for line in lines):
        return True
    if not (0 < code < 128 or (code == 255 and not prefixed)):
        return False
    text = "\n".join(found.group(1) for line in lines if (found := _SAID.match(line))).lower()
    return any(word in text for word in _REFUSED) and not any(word in text for word in _DOUBTFUL)


def is_absent(complaint: str) -> bool:
    """Whether Slurm knows no such job."""
    return "invalid job id" in complaint.lower()


def is_disabled(complaint: str) -> bool:
    """Whether the job may not be requeued."""
    return "operation is presently disabled" in complaint.lower()


def is_over(complaint: str) -> bool:
    """Whether the job has ended, or is about to."""
    text = complaint.lower()
    return "already completing or completed" in text or "already finished" in text
