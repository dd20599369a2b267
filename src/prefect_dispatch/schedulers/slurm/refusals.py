"""What Slurm's commands complain about, where it matters to know for certain. The texts are those of slurm_errno.c."""

from __future__ import annotations

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
    "job violates",
    "job size specification",
    "memory specification",
    "more processors requested",
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
    "unrecognized option",
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


def is_refusal(complaint: str) -> bool:
    """Whether ``sbatch`` said for certain that there is no job and will be none. A text nobody knows is no refusal."""
    text = complaint.lower()
    return any(word in text for word in _REFUSED) and not any(word in text for word in _DOUBTFUL)


def is_absent(complaint: str) -> bool:
    """Whether Slurm knows no such job."""
    return "invalid job id" in complaint.lower()


def is_over(complaint: str) -> bool:
    """Whether the job has ended, or is about to."""
    text = complaint.lower()
    return "already completing or completed" in text or "already finished" in text
