"""The report: what the helper leaves beside the record of an execution whose root the supervisor cannot see."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from prefect_dispatch.errors import MalformedDocument
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import field
from prefect_dispatch.format.journal import ExitNote


@dataclass(frozen=True)
class Report:
    """One ``reports/<attempt>.json``.

    Args:
        attempt: whose it is.
        note: how the execution ended.
        published: how many saves it published.
        told: the program's own word of a failure, or the last fault; else empty.
    """

    attempt: str
    note: ExitNote
    published: int
    told: str

    def fields(self) -> Dict[str, Any]:
        """The document's fields."""
        return {"attempt": self.attempt, **self.note.fields(), "published": self.published, "told": self.told}

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any], what: str) -> Report:
        """Read a document's fields.

        Raises:
            MalformedDocument: they are not a report's.
        """
        published = field(fields, "published", int, what)
        if published < 0:
            raise MalformedDocument(f"{what} says that {published} saves were published")
        return cls(
            field(fields, "attempt", str, what),
            ExitNote.of_fields(fields, what),
            published,
            field(fields, "told", str, what),
        )
