"""What is published: the names of ``pub/`` as publications, all of them, or the greatest first."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from prefect_dispatch.format.publication import RANK_LENGTH, Publication, check_forms
from prefect_dispatch.stores.layout import PUBLICATIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator, List, Optional, Sequence

    from prefect_dispatch.stores.port import Store

_rank = itemgetter(slice(RANK_LENGTH))


def list_publications(store: Store, most: Optional[int] = None) -> List[Publication]:
    """All publications, ordered by epoch, step and path.

    Args:
        store: the lineage's root.
        most: how many there may be; None for any.

    Raises:
        MalformedName: a name of ``pub/`` is not a publication's.
        StoreError: the store failed, or there are more.
    """
    return _decode(store.ledger(PUBLICATIONS).names(most=most))


def list_names(store: Store) -> List[str]:
    """All names of ``pub/`` in no order, each of which has the form of a publication's.

    Raises:
        MalformedName: one has not.
        StoreError: the store failed.
    """
    names = store.ledger(PUBLICATIONS).unordered_names()
    check_forms(names)
    return names


def greatest_first(names: Sequence[str]) -> Iterator[Publication]:
    """The publications from the greatest down by epoch, step and path, each decoded when its turn comes.

    Whoever resumes takes the first one nearly always, and may have 100,000 names before them. So all are listed and
    checked for their form, which orders them, but neither put in order nor decoded before somebody asks.

    Raises:
        MalformedName: a name whose turn comes is none.
    """
    if not names:
        return
    rest = list(names)
    greatest = max(rest)
    rest.remove(greatest)
    if not rest or _rank(max(rest)) < _rank(greatest):
        yield Publication.parse(greatest)
    else:
        rest.append(greatest)
    rest.sort(reverse=True)
    for _, tied in groupby(rest, _rank):
        yield from reversed(_decode(tied))


def _decode(names: Iterable[str]) -> List[Publication]:
    """Publications, in order: paths by their own bytes, which base32 does not keep in order."""
    return sorted(map(Publication.parse, names), key=lambda publication: publication.order)
