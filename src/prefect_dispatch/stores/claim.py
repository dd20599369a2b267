"""The claim: one execution per epoch, and none below one that has started."""

from __future__ import annotations

from prefect_dispatch.errors import DuplicateExecution, Exists, MalformedDocument, MalformedName
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import field
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import split_attempt
from prefect_dispatch.stores.documents import create_once, read_document
from prefect_dispatch.stores.layout import CLAIMS
from prefect_dispatch.stores.started import read_started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from prefect_dispatch.stores.port import Store


@dataclass(frozen=True)
class Claim:
    """One execution's hold on its epoch.

    Args:
        epoch: the epoch.
        attempt: whose it is.
        record: the record's id, or empty where it ran by hand.
        run: the random id of the wrapper that made it.
        at: when, in seconds since 1970; None for a generation without a total deadline, which alone needs it.
    """

    epoch: Epoch
    attempt: str
    record: str
    run: str
    at: Optional[float] = None


def parse_claim_name(name: str) -> Epoch:
    """Read a name of ``claims/``.

    Raises:
        MalformedName: it is not an epoch.
    """
    try:
        return Epoch.parse(name)
    except MalformedName as error:
        raise MalformedName(
            f"{CLAIMS}/{name} is not a claim's name: {error}; find out who wrote it, then move it away"
        ) from None


def read_claim(store: Store, epoch: Epoch) -> Claim:
    """Read a claim.

    Raises:
        Absent: the epoch is not claimed.
        MalformedDocument: it is not a claim.
        UnknownFormat: it is of a newer format.
        StoreError: it cannot be told.
    """
    what = f"{store.location}/{CLAIMS}/{epoch.digits}"
    document = read_document(store.ledger(CLAIMS), epoch.digits, what)
    attempt = field(document, "attempt", str, what)
    try:
        split_attempt(attempt)
    except MalformedName as error:
        raise MalformedDocument(f"{what}: {error}") from None
    at = None
    if "at" in document:
        from prefect_dispatch.format.deadline import take_time

        at = take_time(document, "at", what)
    return Claim(epoch, attempt, field(document, "record", str, what), field(document, "run", str, what), at)


def make_claim(store: Store, claim: Claim) -> None:
    """Claim an epoch; see :meth:`~prefect_dispatch.stores.lineage_root.LineageRoot.claim`."""
    later = _started_later(store, claim.epoch)
    if later is not None:
        raise DuplicateExecution(
            f"epoch {claim.epoch} of {store.location} comes too late: {later.attempt} of epoch {later.epoch} "
            "has started; leave the work to that one"
        )
    fields = {"attempt": claim.attempt, "record": claim.record, "run": claim.run}
    reach("claim")
    try:
        create_once(
            store.ledger(CLAIMS), claim.epoch.digits, fields if claim.at is None else {**fields, "at": claim.at}
        )
    except Exists:
        held = read_claim(store, claim.epoch)
        raise DuplicateExecution(
            f"epoch {claim.epoch} of {store.location} is claimed already, by {held.attempt} (run {held.run}); "
            "submit again for an epoch of its own"
        ) from None


def _started_later(store: Store, epoch: Epoch) -> Optional[Claim]:
    """The greatest claim of a later epoch, of this generation or an older one, whose execution has started.

    A claim alone does not count: its wrapper may have died before it did anything. Nor does one of a later generation,
    which this submission knows nothing of: the overlap is harmless, and who superseded this job stops it.
    """
    for other in sorted((parse_claim_name(name) for name in store.ledger(CLAIMS).names()), reverse=True):
        if other <= epoch:
            return None
        if other.generation <= epoch.generation:
            claim = read_claim(store, other)
            started = read_started(store, claim.attempt)
            if started is not None and started.epoch == other:
                return claim
    return None
