"""The port to a site's cessation signal, which knows whether the processes of an ended object are gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from prefect_dispatch.model.observation import ObjectRef


@dataclass(frozen=True, kw_only=True)
class EndedObject:
    """One run of a scheduler's object, which the scheduler says has ended.

    Attributes:
        lineage: whose it is.
        object: the scheduler's object.
        restart: which of its runs, R.
        attempt: what its processes carry in their environment as ``DISPATCH_ATTEMPT``.
        nodes: where it ran, as far as the record knows.
    """

    lineage: str
    object: ObjectRef
    restart: int
    attempt: str
    nodes: tuple[str, ...]


Answer = Literal["ceased", "running", "unknown"]


@dataclass(frozen=True)
class CessationAnswer:
    """What a site says.

    Attributes:
        answer: ``ceased`` is a positive word about every node; ``running`` names a process that lives; all else, a
            question that got no answer included, is ``unknown``.
        detail: how it is known, for people.
    """

    answer: Answer
    detail: str = ""


class CessationSignal(Protocol):
    """A site's word in a person's place."""

    async def ask(self, ended: EndedObject) -> CessationAnswer:
        """Say whether the processes of an ended object are gone. Changes nothing; may be asked again and again.

        Whatever it cannot know is ``unknown``, never an error that somebody else would have to interpret. It may be
        cancelled at any moment, and then leaves nothing behind.
        """
        ...
