"""What a supervisor asks of a scheduler for one submission."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prefect_dispatch.format.submission import Submission
from prefect_dispatch.model.spec import Resources


def _always() -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class SubmissionRequest:
    """One submission, ready for a scheduler.

    Attributes:
        document: what the wrapper reads.
        command: the program and its arguments.
        setup: shell lines that run before it, in the same shell.
        workdir: where it runs, absolute.
        environment: variables that the spec sets for it.
        resources: what it needs.
        restarts_allowed: whether the scheduler may restart the object by itself.
        log: where its output goes, absolute; None leaves it to the scheduler.
        secrets: variables that nobody may see: for the job's process, and never for a command line, a record or a log.
        in_time: whether it may still be made; where a scheduler can ask it at the very moment, a caller that stood
            still makes nothing that others have given up.
    """

    document: Submission
    command: tuple[str, ...]
    setup: tuple[str, ...]
    workdir: Path
    environment: Mapping[str, str]
    resources: Resources
    restarts_allowed: bool
    log: Path | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    in_time: Callable[[], bool] = field(default=_always, compare=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """What a copy for another process holds: all but the author's own time."""
        return {**vars(self), "in_time": _always}

    @property
    def token(self) -> str:
        """The submission's token, by which the object is found again."""
        return self.document.token

    @property
    def name(self) -> str:
        """The object's name for people and for ``find``: ``<lineage>.g0n2.<token>``."""
        document = self.document
        return f"{document.lineage}.g{document.generation}n{document.submission}.{document.token}"
