"""What an execution said of itself when it started."""

from __future__ import annotations

from prefect_dispatch.errors import Absent, MalformedDocument, UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import field, text_map
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.printable import shorten
from prefect_dispatch.stores.documents import read_document
from prefect_dispatch.stores.layout import STARTED_DOCUMENT, meta_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

    from prefect_dispatch.stores.port import Store


@dataclass(frozen=True)
class Started:
    """One execution's ``started.json``.

    Args:
        epoch: its epoch.
        attempt: its attempt.
        identity: the digests of what makes the run this run.
        details: what else it noted, such as its host.
    """

    epoch: Epoch
    attempt: str
    identity: Mapping[str, str]
    details: Mapping[str, Any]


def read_started(store: Store, attempt: str) -> Optional[Started]:
    """Read what an execution said of itself, or None where it has not started.

    Raises:
        MalformedDocument: it is not such a document, or another attempt's.
        UnknownFormat: it is of a newer format.
        StoreError: it cannot be told.
    """
    folder = meta_folder(attempt)
    what = f"{store.location}/{folder}/{STARTED_DOCUMENT}"
    try:
        document = read_document(store.ledger(folder), STARTED_DOCUMENT, what)
    except Absent:
        return None
    try:
        epoch = Epoch.of(field(document, "epoch", int, what))
    except UsageError as error:
        raise MalformedDocument(f"{what}: {error}") from None
    if field(document, "attempt", str, what) != attempt:
        raise MalformedDocument(f"{what} is of attempt {shorten(document['attempt'])}; find out who wrote it")
    details = {
        name: value
        for name, value in document.items()
        if name not in ("format", "nonce", "epoch", "attempt", "identity")
    }
    return Started(epoch, attempt, text_map(document, "identity", what), details)
