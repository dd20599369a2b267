"""The assignment: which execution this wrapper is to run, from its submission document and the scheduler's restart."""

from __future__ import annotations

import os

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format import contract
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.epoch import MAX_RESTART, Epoch
from prefect_dispatch.format.names import read_restart
from prefect_dispatch.format.submission import RestartSource, Submission
from prefect_dispatch.stores.opening import is_url, join_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Optional

_SLURM_RESTART = "SLURM_RESTART_COUNT"


@dataclass(frozen=True)
class Assignment:
    """One execution to be run.

    Args:
        submission: what the supervisor handed over.
        restart: how often the scheduler itself has restarted the object so far.
    """

    submission: Submission
    restart: int

    @classmethod
    def read(cls, document: Optional[str], environment: Mapping[str, str]) -> Assignment:
        """Read the submission document and the restart that belongs to it.

        Args:
            document: its path; None to take the one in ``DISPATCH_SUBMISSION``.
            environment: the wrapper's own environment.

        Raises:
            UsageError: there is no document, it is not one, or the restart is not known.
            DuplicateExecution: it is a restart that may not run, since the checkpoint is shared.
        """
        path = document or environment.get(contract.SUBMISSION)
        if not path:
            raise UsageError(f"no submission document; give --submission FILE or set {contract.SUBMISSION}")
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise UsageError(f"submission {path!r} cannot be read: {error.strerror}") from None
        submission = Submission.decode(data, path)
        try:
            os.fsencode(submission.root)
        except UnicodeEncodeError:
            raise UsageError(
                f"submission {path}: root {submission.root!r} holds what no path can hold; give the root's true path"
            ) from None
        restart = _restart(submission.restart_source, environment)
        submission.check_restart(restart)
        return cls(submission, restart)

    @property
    def epoch(self) -> Epoch:
        """The execution's epoch."""
        return self.submission.epoch(self.restart)

    @property
    def attempt(self) -> str:
        """The execution's token."""
        return self.submission.attempt(self.restart)

    @property
    def root(self) -> str:
        """The lineage's own root."""
        return join_root(self.submission.root, self.submission.lineage)

    def workplace(self, environment: Mapping[str, str]) -> str:
        """Where this execution's saves lie on this machine; empty where the root is a folder."""
        if not is_url(self.submission.root):
            return ""
        from prefect_dispatch.stores.workplace import workplace_of

        base = environment.get(contract.WORKPLACE, "") or self.submission.workplace
        return workplace_of(base, self.submission.lineage, self.attempt)

    def inherited(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """What the program may inherit: no restart count of a scheduler that is not the one that restarts it."""
        if self.submission.restart_source is RestartSource.SLURM:
            return environment
        return {name: value for name, value in environment.items() if name != _SLURM_RESTART}


def refuse_inside_step(environment: Mapping[str, str]) -> None:
    """Refuse to be one of several tasks of a Slurm step, each of which would claim the same execution.

    Raises:
        UsageError: this process is such a task.
    """
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if "SLURM_PROCID" in environment and tasks.isdigit() and int(tasks) > 1:
        raise UsageError(
            f"dispatch-job run is inside a Slurm step of {tasks} tasks; put it outside: "
            "dispatch-job run -- srun COMMAND"
        )


def check_command(command: str, environment: Mapping[str, str]) -> None:
    """Check that a command can be found and executed, as execvp(3) would look for it.

    Raises:
        UsageError: it cannot.
    """
    folders = [""] if "/" in command else environment.get("PATH", os.defpath).split(os.pathsep)
    found = [path for path in (os.path.join(folder, command) for folder in folders) if os.path.isfile(path)]
    if not found:
        where = "there is no such file" if "/" in command else "it is not on PATH"
        raise UsageError(f"command {command!r} does not exist: {where}; nothing was started")
    if not any(os.access(path, os.X_OK) for path in found):
        raise UsageError(f"command {command!r} cannot be executed: {found[0]} is not executable; nothing was started")


def _restart(source: RestartSource, environment: Mapping[str, str]) -> int:
    if source is RestartSource.SLURM:
        name, text = _SLURM_RESTART, environment.get(_SLURM_RESTART, "0")
    else:
        name, text = contract.RESTART, environment.get(contract.RESTART, "")
        if not text:
            raise UsageError(f"{name} is not set, and the submission says that the restart is found there; set it to 0")
    restart = read_restart(text)
    if restart is None:
        raise UsageError(f"{name} {text!r} is not a restart; it must be a whole number from 0 to {MAX_RESTART}")
    return restart
