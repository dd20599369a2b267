"""Documents in ledgers: created once, by whom they say, and read with a bound."""

from __future__ import annotations

from prefect_dispatch.errors import Exists, MalformedDocument
from prefect_dispatch.format.documents import FORMAT, SMALL_DOCUMENT_BYTES, Json, decode, encode
from prefect_dispatch.format.names import new_nonce

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping

    from prefect_dispatch.stores.port import Ledger


def create_once(
    ledger: Ledger, name: str, fields: Mapping[str, Any], nonce: str = "", most: int = SMALL_DOCUMENT_BYTES
) -> Json:
    """Create a document that carries its writer's nonce; finding one's own there is success.

    A store that retries by itself (NFS, S3) may answer "exists" to the retry of a success.

    Args:
        ledger: where.
        name: the document's name.
        fields: its fields; ``format`` and ``nonce`` are added.
        nonce: the writer's mark, where the caller retries by itself; else a new one.
        most: how many bytes its readers accept.

    Returns:
        The document as it is stored.

    Raises:
        Exists: another writer's document has the name.
        MalformedDocument: the document would be longer than a reader accepts; nothing was written.
        StoreError: the store failed.
    """
    document = {**fields, "format": FORMAT, "nonce": nonce or new_nonce()}
    content = encode(document)
    if len(content) > most:
        raise MalformedDocument(f"{name} would have {len(content)} bytes; a document has at most {most}")
    try:
        ledger.create(name, content)
    except Exists:
        if ledger.read(name, most) != content:
            raise
    return document


def read_document(ledger: Ledger, name: str, what: str) -> Json:
    """Read a document of at most 1 MiB, as all but manifests, facts and snapshots are.

    Args:
        ledger: where.
        name: the document's name.
        what: its place, for errors.

    Raises:
        Absent: it is confirmed not to be there.
        MalformedDocument: it is not a document, or too long for one.
        UnknownFormat: it is of a newer format.
        StoreError: it cannot be told.
    """
    return decode(ledger.read(name, SMALL_DOCUMENT_BYTES), what, SMALL_DOCUMENT_BYTES)
