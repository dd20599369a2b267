"""The execution as its own processes know it: who they are, and where their saves come from."""

from __future__ import annotations

import os

from prefect_dispatch.errors import StoreUnreachable, UsageError
from prefect_dispatch.format import contract
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import field
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import split_attempt
from prefect_dispatch.format.printable import shorten
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.saves import Saves
from prefect_dispatch.stores.layout import exec_folder
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.opening import is_url, open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional

    from prefect_dispatch.stores.transfer import Report


@dataclass(frozen=True)
class Execution:
    """One execution.

    Args:
        lineage: the lineage's name.
        epoch: its epoch.
        attempt: its token.
        root: the lineage's own root.
        saves: the one source of its saves.
        choice: which saves it may resume from.
        identity: digests of what makes the run this run.
    """

    lineage: str
    epoch: Epoch
    attempt: str
    root: LineageRoot
    saves: Saves
    choice: ResumeChoice
    identity: Mapping[str, str]

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Execution:
        """The execution that this process belongs to, by the contract in its environment and what the start noted.

        Raises:
            UsageError: the contract is not there, or no execution has started under it.
            MalformedDocument: what the start noted is not readable.
            StoreError: the store failed.
        """
        lineage, attempt, number, root = (
            _required(environment, name) for name in (contract.LINEAGE, contract.ATTEMPT, contract.EPOCH, contract.ROOT)
        )
        split_attempt(attempt)
        if len(number) > 20 or not (number.isascii() and number.isdigit()):
            raise UsageError(f"{contract.EPOCH} {shorten(number)} is no epoch; leave it as dispatch-job run has set it")
        epoch = Epoch.of(int(number))
        lineage_root = lineage_root_at(root, environment.get(contract.WORKPLACE, ""))
        started = lineage_root.started(attempt)
        if started is None or started.epoch != epoch:
            raise UsageError(
                f"attempt {attempt!r} of epoch {epoch} has not started in {root!r}; "
                "call this inside of what dispatch-job run started"
            )
        what = f"{root}: what {attempt} noted at its start"
        return cls(
            lineage,
            epoch,
            attempt,
            lineage_root,
            Saves.decode(field(started.details, "saves", dict, what)),
            ResumeChoice.decode(
                field(started.details, "base", str, what), field(started.details, "floor", int, what), what
            ),
            started.identity,
        )

    @property
    def folder(self) -> str:
        """The folder that belongs to it alone, absolute."""
        return self.root.absolute(exec_folder(self.attempt))

    def details(self) -> Dict[str, Any]:
        """What its start notes, so that its other processes find it again."""
        return {"saves": self.saves.encode(), **self.choice.encode()}

    def inside(self, path: str) -> Optional[str]:
        """A path, absolute or relative to the working folder, as one relative to the execution's folder.

        Returns:
            The relative path; None where it is not inside the folder, whichever way links in front of it are read.
        """
        place = os.path.abspath(path)
        real = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
        for candidate in (place, real):
            for folder in (self.folder, os.path.realpath(self.folder)):
                if candidate.startswith(folder + "/"):
                    return candidate[len(folder) + 1 :]
        return None


def open_root(root: str) -> LineageRoot:
    """A lineage's root, to be read.

    Raises:
        UsageError: there is no such kind of root.
        StoreUnreachable: there is no such folder.
    """
    lineage_root = lineage_root_at(root)
    if not is_url(root) and not os.path.isdir(root):
        raise StoreUnreachable(
            f"root {root!r} is not there; check that its file system is mounted, or start a job first"
        )
    return lineage_root


def lineage_root_at(root: str, workplace: str = "", report: Optional[Report] = None) -> LineageRoot:
    """A lineage's root, whether it is there yet or not.

    Args:
        root: a folder or a URL.
        workplace: where the caller's execution has its saves on this machine; empty for who only reads.
        report: is told how far a save is on its way between the two.

    Raises:
        UsageError: there is no such kind of root.
    """
    if not workplace or not is_url(root):
        return LineageRoot(open_store(root))
    from prefect_dispatch.stores.opening import open_managed_store

    return LineageRoot(open_managed_store(root, workplace, report))


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise UsageError(f"{name} is not set; call this inside of what dispatch-job run started")
    return value
