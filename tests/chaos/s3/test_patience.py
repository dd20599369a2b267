"""For how long what fails is tried again: from its first failure on, and anew for what comes after a success."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.stores.s3_listings import S3Listings
from prefect_dispatch.stores.s3_patience import S3Patience
from prefect_dispatch.stores.s3_place import S3Place
from support.s3 import faults
from support.s3.messages import Operation
from support.s3.place import access_by

RETRY = timedelta(seconds=0.5)
FOLDER = "three-pages"
NAMES = [f"{number:05d}" for number in range(2500)]


def impatient(place: Any, patience: S3Patience) -> S3Store:
    """A store of the place with another patience."""
    access = access_by(place.proxy.endpoint, place.places.server, patience)
    access.require_no_redirect(place.places.server.bucket)
    return S3Store(S3Place.parse(place.direct.url), access)


@pytest.fixture(scope="module", autouse=True)
def three_pages(places: Any) -> None:
    store = places.honest(f"s3://{places.server.bucket}/{FOLDER}")
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(store.ledger("pub").create, NAMES))


def listings_of(place: Any) -> S3Listings:
    return impatient(place, S3Patience(timedelta(seconds=30), RETRY)).listings


@pytest.mark.parametrize("fault", [faults.hang, faults.hang_served])
def test_a_request_that_hangs_for_all_its_time_is_made_again(fault: Any, place: Any) -> None:
    # given a patience whose parts are as long as each other, as they are where nothing is set
    store = impatient(place, S3Patience(timedelta(seconds=2), timedelta(seconds=2)))
    assert S3Patience().request == S3Patience().retry
    rule = place.proxy.arm(fault, Operation.PUT)
    # when nothing comes of a request / then it is made again
    store.ledger("meta").create("a", b"content")
    assert rule.struck and place.direct.get("meta/a") == b"content"


def test_a_page_that_fails_is_asked_for_again_however_long_the_pages_before_took(place: Any) -> None:
    listings = listings_of(place)
    # given a listing that had a fault at its beginning
    place.proxy.arm(faults.INTERNAL_ERROR, Operation.LIST)
    pages = listings.pages(f"{FOLDER}/pub")
    found = list(next(pages))
    # when longer than a request is tried again goes by, and there is another fault
    time.sleep(RETRY.total_seconds())
    rule = place.proxy.arm(faults.INTERNAL_ERROR, Operation.LIST)
    found += [one for page in pages for one in page]
    # then it goes on
    assert rule.struck and [one.key.rpartition("/")[2] for one in found] == NAMES


LOOKS: dict[str, Callable[[S3Listings], object]] = {
    "keys": lambda listings: listings.keys(f"{FOLDER}/pub"),
    "pages": lambda listings: [one.key for page in listings.pages(f"{FOLDER}/pub") for one in page],
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_long_listing_goes_on_behind_the_last_page_that_came(look: str, place: Any) -> None:
    listings = listings_of(place)
    # given a listing of three pages, the last of which fails once
    rule = place.proxy.arm(faults.INTERNAL_ERROR, Operation.LIST, skip=2)
    # when / then it is whole, and what had come is not asked for again
    assert LOOKS[look](listings) == [f"{FOLDER}/pub/{name}" for name in NAMES]
    assert rule.struck and place.proxy.count(Operation.LIST) == 5
