"""The port to what knows when a save of one kind is whole."""

from __future__ import annotations

from typing import List, Protocol

from prefect_dispatch.job.watch import Found


class Watch(Protocol):
    """Looks for whole saves of one kind."""

    def look(self, folder: str, ended_well: bool = False) -> List[Found]:
        """Return the whole saves that are not known to be published as they are, the oldest first.

        Args:
            folder: the execution's folder, absolute.
            ended_well: nobody writes any more, and the program ended by its own will, so what lies there is finished.

        Raises:
            Unpublishable: a sign is there and says nothing that can be used.
            OSError: the folder cannot be read.
        """
        ...

    def still_whole(self, folder: str, found: Found) -> bool:
        """Whether the sign by which a save was found still says the same."""
        ...

    def done_with(self, found: Found) -> None:
        """Take note that a save was dealt with, so that it is not found again until its sign changes."""
        ...

    def check_nothing_left(self) -> None:
        """Find out, after the last look at what a program left that ended well, that all of it could be published.

        Raises:
            Unpublishable: something is meant as a save and cannot be one.
        """
        ...
