"""The total deadline in a lineage's root: who comes first writes it down, and whoever follows is bound by it."""

from __future__ import annotations

from prefect_dispatch.errors import Absent, Exists, MalformedDocument, MalformedError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.deadline import TotalDeadline, take_time
from prefect_dispatch.stores.claim import parse_claim_name, read_claim
from prefect_dispatch.stores.documents import create_once, read_document
from prefect_dispatch.stores.journal import Journal
from prefect_dispatch.stores.layout import CLAIMS, DEADLINE, journal_folder
from prefect_dispatch.stores.started import read_started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional

    from prefect_dispatch.stores.claim import Claim
    from prefect_dispatch.stores.port import Store

_NEWEST = 16
"""Executions whose last words are looked for. A claim is never earlier than what its execution found, so what older
ones wrote before it is in it; this many may have lived on side by side."""


def greatest_time(store: Store, generation: int) -> float:
    """The greatest time that any execution of a generation has written, in seconds since 1970; 0 where none has.

    Raises:
        MalformedName: ``claims/`` holds a name that is no epoch.
        MalformedDocument: a claim, or what an execution noted at its start, is not one.
        StoreError: the store failed.
    """
    greatest = 0.0
    claims = _claims(store, generation)
    for claim in claims:
        greatest = max(greatest, claim.at or 0.0)
    for claim in claims[-_NEWEST:]:
        greatest = max(greatest, *_last_words(store, claim.attempt))
    return greatest


def first_claim(store: Store, generation: int) -> Optional[float]:
    """When the first execution of a generation claimed; None where no claim says when.

    Raises:
        MalformedName: ``claims/`` holds a name that is no epoch.
        MalformedDocument: a claim is not one.
        StoreError: the store failed.
    """
    return min((claim.at for claim in _claims(store, generation) if claim.at is not None), default=None)


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
    name = deadline_name(wanted.generation)
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
    name = deadline_name(generation)
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


def deadline_name(generation: int) -> str:
    """The name of a generation's deadline."""
    return f"{generation:020d}.json"


def _claims(store: Store, generation: int) -> List[Claim]:
    epochs = sorted(parse_claim_name(name) for name in store.ledger(CLAIMS).names())
    return [read_claim(store, epoch) for epoch in epochs if epoch.generation == generation]


def _last_words(store: Store, attempt: str) -> Iterator[float]:
    """The times of an execution's start and of its last entry. A journal that cannot be read bounds nothing."""
    yield 0.0
    started = read_started(store, attempt)
    if started is not None and "started_at" in started.details:
        yield take_time(started.details, "started_at", f"{store.location}: what {attempt} noted at its start")
    folder = journal_folder(attempt)
    try:
        entries = Journal(store.ledger(folder), folder).entries(limit=1)
        for entry in entries:
            if "at" in entry.fields:
                yield take_time(entry.fields, "at", f"{store.location}/{folder}")
    except (Absent, MalformedError):
        return
