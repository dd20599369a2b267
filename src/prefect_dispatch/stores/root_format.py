"""The document by which a folder is known as a lineage's root."""

from __future__ import annotations

from prefect_dispatch.errors import Absent, StoreUnreachable
from prefect_dispatch.format.documents import Json
from prefect_dispatch.stores.documents import read_document
from prefect_dispatch.stores.layout import FORMAT_DOCUMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from prefect_dispatch.stores.port import Store


def read_root_format(store: Store) -> Json:
    """Read ``format.json``.

    Raises:
        Absent: it is confirmed not to be there.
        MalformedDocument: it is not a document.
        UnknownFormat: it is of a newer format.
        StoreError: it cannot be told.
    """
    return read_document(store.ledger(""), FORMAT_DOCUMENT, f"{store.location}/{FORMAT_DOCUMENT}")


def require_root(store: Store) -> None:
    """Make sure that a lineage's root of a known format is there; changes nothing.

    Raises:
        StoreUnreachable: it is not there, or no lineage's root.
        MalformedDocument: ``format.json`` is not a document.
        UnknownFormat: it is of a newer format.
    """
    try:
        read_root_format(store)
    except Absent:
        raise StoreUnreachable(
            f"{store.location} is not a lineage's root: it holds no {FORMAT_DOCUMENT}; give <root>/<lineage>, and "
            "check that its file system is mounted"
        ) from None
