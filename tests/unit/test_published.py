"""What is published comes the greatest first, and is decoded no further than somebody looks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prefect_dispatch.errors import MalformedName
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import encode_part
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.layout import PUBLICATIONS
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.stores.published import greatest_first, list_names, list_publications

# Few values, so that many have the same epoch and step; in base32 these paths have another order than in bytes.
publications = some.builds(
    Publication,
    some.builds(Epoch, some.just(0), some.integers(1, 2), some.integers(0, 1)),
    some.sampled_from([0, 9, 10]),
    some.sampled_from(["a", "b", "Z", "é", "\U00010000", "\uffff", "ab"]),
)


def store_of(*names: str) -> MemoryStore:
    """A store in which these names were created, in this order."""
    store = MemoryStore()
    for name in names:
        store.ledger(PUBLICATIONS).create(name)
    return store


@given(some.lists(publications, unique=True, max_size=20))
def test_they_come_in_their_order_from_either_end(listed: list[Publication]) -> None:
    # given publications in the order in which they came
    store = store_of(*(publication.name for publication in listed))
    # when both ways of reading them are gone
    ordered, downwards = list_publications(store), list(greatest_first(list_names(store)))
    # then both are in order by epoch, step and path bytes
    assert ordered == sorted(listed, key=lambda publication: publication.order)
    assert downwards == ordered[::-1]


def test_a_name_is_decoded_when_its_turn_comes() -> None:
    # given a publication, and below it a name that has the form of one and spells no path
    newest = Publication(Epoch(0, 2, 0), 1, "a")
    lesser = f"{Epoch(0, 1, 0).digits}-{7:020d}-{encode_part('../a')}"
    store = store_of(lesser, newest.name)
    # when they are read one by one
    downwards = greatest_first(list_names(store))
    # then the greatest is there, and the other one is an error that names it
    assert next(downwards) == newest
    with pytest.raises(MalformedName, match=lesser):
        next(downwards)
    with pytest.raises(MalformedName, match=lesser):
        list_publications(store)


@pytest.mark.parametrize("lesser", ["garbage", "0" * 20 + "-" + "0" * 20 + "-ME"])
def test_a_name_that_has_no_place_in_the_order_is_an_error_before_anything_is_taken(lesser: str) -> None:
    store = store_of(Publication(Epoch(0, 2, 0), 1, "a").name, lesser)
    with pytest.raises(MalformedName, match=lesser):
        next(greatest_first(list_names(store)))
