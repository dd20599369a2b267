"""The total deadline in a lineage's root: who comes first writes it down, and whoever follows is bound by it."""

from __future__ import annotations

from prefect_dispatch.errors import Absent, Exists, MalformedDocument, MalformedError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.deadline import TotalDeadline, take_time
from prefect_dispatch.stores.claim import parse_claim_name, read_claim
from prefect_dispatch.stores.documents import create_once, read_document
from prefect_dispatch.stores.journal import Journal
from prefect_dispatch.stores.layout import CLAIMS, DEADLINE, generation_name, journal_folder
from prefect_dispatch.stores.started import read_started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Optional

    from prefect_dispatch.stores.port import Store

_NEWEST = 16
"""Executions whose last words are looked for. A claim is never earlier than what its execution found, so what older
ones wrote before it is in it; this many may have lived on side by side."""


@dataclass(frozen=True)
class Past:
    """What the executions of a generation have written of time, in seconds since 1970.

    Args:
        first_claim: when the first of them claimed; None where no claim says when.
        latest: the greatest time that any of them has written; 0 where none has.
    """

    first_claim: Optional[float] = None
    latest: float = 0.0


def read_past(store: Store, generation: int) -> Past:
    """Read when the executions of a generation began, and what time it was when they last wrote.

    Raises:
        MalformedName: ``claims/`` holds a name that is no epoch.
        MalformedDocument: a claim, or what an execution noted at its start, is not one.
        StoreError: the store failed.
    """
    epochs = sorted(parse_claim_name(name) for name in store.ledger(CLAIMS).names())
    claims = [read_claim(store, epoch) for epoch in epochs if epoch.generation == generation]
    times = [claim.at for claim in claims if claim.at is not None]
    words = [at for claim in claims[-_NEWEST:] for at in _last_words(store, claim.attempt)]
    return Past(min(times, default=None), max([*times, *words], default=0.0))


def agree_on_deadline(store: Store, wanted: TotalDeadline) -> TotalDeadline:
    """Write down a generation's deadline, or learn what its first execution wrote. That is never changed.

    Args:
        store: the lineage's root.
        wanted: as it would be if this execution were the first one.

    Returns:
        The one that counts.

    Raises:
        MalformedDocument: what is written is no such document, or that of another lineage, generation, budget or
            identity; the text names both.
        StoreError: the store failed.
    """
    name = generation_name(wanted.generation)
    reach("deadline")
    try:
        create_once(store.ledger(DEADLINE), name, wanted.fields())
    except Exists:
        counts = read_deadline(store, wanted.generation)
        difference = counts.difference(wanted)
        if difference:
            raise MalformedDocument(
                f"{store.location}/{DEADLINE}/{name}, which {counts.attempt} made, is another deadline than that of "
                f"this execution: {difference}; find out which one is right: a deadline is never changed, so a job "
                "that is to have another one supersedes this one"
            ) from None
        return counts
    return wanted


def read_deadline(store: Store, generation: int) -> TotalDeadline:
    """The total deadline of a generation.

    Raises:
        Absent: none is written down.
        MalformedDocument: it is no such document, or another generation's.
        StoreError: the store failed.
    """
    name = generation_name(generation)
    what = f"{store.location}/{DEADLINE}/{name}"
    try:
        found = TotalDeadline.of_fields(read_document(store.ledger(DEADLINE), name, what), what)
    except MalformedDocument as error:
        raise MalformedDocument(
            f"{error}; a deadline that cannot be read is not made anew: supersede the job, whose next generation has "
            "its own"
        ) from None
    if found.generation != generation:
        raise MalformedDocument(f"{what} is of generation {found.generation}; find out who wrote it")
    return found


def _last_words(store: Store, attempt: str) -> Iterator[float]:
    """The times of an execution's start and of its last entry that has one. What cannot be read bounds nothing."""
    started = read_started(store, attempt)
    if started is not None and "started_at" in started.details:
        yield take_time(started.details, "started_at", f"{store.location}: what {attempt} noted at its start")
    folder = journal_folder(attempt)
    ledger = store.ledger(folder)
    journal = Journal(ledger, folder)
    try:
        # An entry that a command of the program wrote has no time: whoever wrote the one before had the clock.
        for name in reversed(ledger.names()):
            fields = journal.read(name).fields
            if "at" in fields:
                yield take_time(fields, "at", f"{store.location}/{folder}")
                return
    except (Absent, MalformedError):
        return
