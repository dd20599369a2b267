"""The total deadline: how long a generation may take in all, and the document that says when that time is over."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

from prefect_dispatch.errors import MalformedDocument, UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import field, text_map
from prefect_dispatch.format.durations import parse_duration
from prefect_dispatch.format.identity import CODE, compare_identity
from prefect_dispatch.format.printable import printable, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional

TERMINATE_BEFORE = timedelta(seconds=5)
"""How long before the deadline a program that is still there gets SIGTERM."""
LATEST = 253402300799.0
"""The last second of the year 9999: no time that anybody writes is greater."""
_TERMS = ("budget", "margin", "opened_at", "now")


def check_terms(budget: timedelta, margin: timedelta) -> str:
    """Say what is wrong with a budget and a margin; empty where nothing is."""
    if margin < TERMINATE_BEFORE:
        seconds = TERMINATE_BEFORE.total_seconds()
        return (
            f"margin {margin.total_seconds():g}s is too short: SIGTERM comes at {seconds:g}s; give {seconds:g}s or more"
        )
    if budget <= margin:
        return (
            f"budget {budget.total_seconds():g}s is not longer than the margin of {margin.total_seconds():g}s, within "
            "which nothing is started; give more, or a shorter margin"
        )
    return ""


@dataclass(frozen=True)
class DeadlineTerms:
    """What a submission says of the total deadline.

    Args:
        budget: how long the whole generation may take.
        margin: how long before the end the program is asked to save; within it nothing is started.
        now: a time that is over for certain, in seconds since 1970: no clock of the job counts if it shows less.
        opened_at: when the generation was opened, where its time in the queue counts; None where it begins with the
            first claim.
    """

    budget: timedelta
    margin: timedelta
    now: float = 0.0
    opened_at: Optional[float] = None

    def __post_init__(self) -> None:
        wrong = check_terms(self.budget, self.margin)
        if wrong:
            raise UsageError(f"deadline: {wrong}")

    def encode(self) -> Dict[str, Any]:
        """Write it as a submission holds it."""
        return {
            "budget": self.budget.total_seconds(),
            "margin": self.margin.total_seconds(),
            "now": self.now,
            "opened_at": self.opened_at,
        }

    @classmethod
    def decode(cls, document: Mapping[str, Any], what: str) -> DeadlineTerms:
        """Read the ``deadline`` of a submission.

        Raises:
            UsageError: a field is unknown, or no duration.
            MalformedDocument: a field is missing, or no time.
        """
        for name in document:
            if name not in _TERMS:
                raise UsageError(f"unknown field {'deadline.' + name!r}; a deadline has {', '.join(sorted(_TERMS))}")
        for name in ("budget", "margin"):
            field(document, name, (int, float, str), what)
        return cls(
            parse_duration(document["budget"]),
            parse_duration(document["margin"]),
            take_time({"now": 0.0, **document}, "now", what),
            None if document.get("opened_at") is None else take_time(document, "opened_at", what),
        )


@dataclass(frozen=True)
class TotalDeadline:
    """The document of one generation, made by its first execution and never changed.

    Args:
        lineage: whose it is.
        generation: which of its generations.
        attempt: the execution that made it.
        began_at: when its time began, in seconds since 1970.
        budget_seconds: how long it lasts.
        identity: digests of what makes the run this run, without its code.
    """

    lineage: str
    generation: int
    attempt: str
    began_at: float
    budget_seconds: float
    identity: Mapping[str, str]

    @property
    def ends_at(self) -> float:
        """When it is over, in seconds since 1970."""
        return self.began_at + self.budget_seconds

    def fields(self) -> Dict[str, Any]:
        """The document's fields. That of the end is for people: it follows from two others."""
        return {
            "lineage": self.lineage,
            "generation": self.generation,
            "attempt": self.attempt,
            "began_at": self.began_at,
            "budget_seconds": self.budget_seconds,
            "ends_at": self.ends_at,
            "identity": dict(self.identity),
        }

    @classmethod
    def of_fields(cls, document: Mapping[str, Any], what: str) -> TotalDeadline:
        """Read a document.

        Raises:
            MalformedDocument: it is no such document.
        """
        return cls(
            field(document, "lineage", str, what),
            field(document, "generation", int, what),
            field(document, "attempt", str, what),
            take_time(document, "began_at", what),
            take_time(document, "budget_seconds", what),
            text_map(document, "identity", what),
        )

    def difference(self, wanted: TotalDeadline) -> str:
        """Say in what another execution's is not this one, both values named; empty where it is this one."""
        told = [
            f"{name} {shorten(mine)} there and {shorten(theirs)} here"
            for name, mine, theirs in (
                ("lineage", self.lineage, wanted.lineage),
                ("generation", self.generation, wanted.generation),
                ("budget", f"{self.budget_seconds:.15g}s", f"{wanted.budget_seconds:.15g}s"),
            )
            if mine != theirs
        ]
        for name in compare_identity(self.identity, wanted.identity).fields:
            mine, theirs = (each.identity.get(name, "missing") for each in (self, wanted))
            told.append(f"identity {printable(name)} {shorten(mine)} there and {shorten(theirs)} here")
        return "; ".join(told)


def without_code(identity: Mapping[str, str]) -> Dict[str, str]:
    """The identity that a deadline is bound to: a mended program is the same run, and gets no new time for it."""
    return {name: value for name, value in identity.items() if name != CODE}


def describe_time(at: float) -> str:
    """Write a time for people, such as ``2027-01-15T16:00:00Z``.

    Args:
        at: seconds since 1970.
    """
    return datetime.fromtimestamp(int(at), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def take_time(document: Mapping[str, Any], name: str, what: str) -> float:
    """Take a field that is a number of seconds since 1970, or of seconds.

    Raises:
        MalformedDocument: it is missing or none.
    """
    value = float(field(document, name, (int, float), what))
    if not math.isfinite(value) or not 0 <= value <= LATEST:
        raise MalformedDocument(f"{what} has {name} = {shorten(document[name])}, which is no time")
    return value
