"""Reference of a generation's identity: what its first execution found where no supervisor could look."""

from __future__ import annotations

from prefect_dispatch.errors import Exists, MalformedDocument
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.documents import field, text_map
from prefect_dispatch.stores.documents import create_once, read_document
from prefect_dispatch.stores.layout import IDENTITY, generation_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Mapping

    from prefect_dispatch.stores.port import Store


def agree_on_reference(store: Store, generation: int, attempt: str, values: Mapping[str, str]) -> Dict[str, str]:
    """Note what an execution found, or learn what the generation's first one had noted. That is never changed.

    Args:
        store: the lineage's root.
        generation: whose executions have to agree.
        attempt: the execution that found the values.
        values: digests, by field.

    Returns:
        The values that count.

    Raises:
        MalformedDocument: what was noted is no such document, or another generation's.
        StoreError: the store failed.
    """
    ledger, name = store.ledger(IDENTITY), generation_name(generation)
    reach("identity")
    try:
        create_once(ledger, name, {"generation": generation, "attempt": attempt, "identity": dict(values)})
    except Exists:
        return read_reference(store, generation)
    return dict(values)


def read_reference(store: Store, generation: int) -> Dict[str, str]:
    """What the first execution of a generation had noted.

    Raises:
        Absent: nothing is noted.
        MalformedDocument: it is no such document, or another generation's.
        StoreError: the store failed.
    """
    name = generation_name(generation)
    what = f"{store.location}/{IDENTITY}/{name}"
    document = read_document(store.ledger(IDENTITY), name, what)
    if field(document, "generation", int, what) != generation:
        raise MalformedDocument(f"{what} is of generation {document['generation']}; find out who wrote it")
    field(document, "attempt", str, what)
    return text_map(document, "identity", what)
