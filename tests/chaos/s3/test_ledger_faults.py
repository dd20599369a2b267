"""Every kind of fault at every request of a ledger: what it answers is true, or it is an error."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from prefect_dispatch.errors import Absent, DispatchError, Exists, StoreError
from prefect_dispatch.stores.documents import create_once
from support.s3 import faults
from support.s3.messages import Operation
from support.s3.strikes import Act

FIELDS = {"text": "é" * 1000}
NONCE = "n" * 16
MANY = [f"{number:05d}" for number in range(2500)]
SHARED = "names-that-nobody-changes"


def create_marker(place: Any) -> None:
    try:
        place.store.ledger("pub").create("marker")
    except Exists:
        # Its own lost success, which counts as one: nobody else is there. But then it must be there.
        assert place.direct.keys("pub/") == ["pub/marker"]


def check_marker(place: Any, returned: object, error: DispatchError | None) -> None:
    if error is None:
        assert place.direct.keys("pub/") == ["pub/marker"]
    # Whatever became of it, it can be done again.
    create_marker(place)
    assert place.honest.ledger("pub").names() == ["marker"]
    assert place.direct.get("pub/marker") == b""


def create_document(place: Any) -> object:
    return create_once(place.store.ledger("meta"), "a.json", FIELDS, NONCE)


def check_document(place: Any, returned: object, error: DispatchError | None) -> None:
    if error is None:
        assert place.direct.keys("meta/") == ["meta/a.json"]
    assert create_document(place) == (returned or create_document(place))
    # Another writer's is never taken for one's own.
    with pytest.raises(Exists):
        create_once(place.honest.ledger("meta"), "a.json", FIELDS)


def with_another_writers_document(place: Any) -> None:
    place.direct.put("meta/a.json", b'{"nonce": "of another"}')


def create_where_another_was(place: Any) -> str:
    try:
        create_document(place)
    except Exists:
        return "exists"
    return "created"


def check_another_was_kept(place: Any, returned: object, error: DispatchError | None) -> None:
    assert returned == ("exists" if error is None else None)
    assert place.direct.get("meta/a.json") == b'{"nonce": "of another"}'


def with_document(place: Any) -> None:
    create_once(place.honest.ledger("meta"), "a.json", FIELDS, NONCE)


def read_document(place: Any) -> bytes:
    return place.store.ledger("meta").read("a.json")


def check_read(place: Any, returned: object, error: DispatchError | None) -> None:
    assert returned in (None, place.direct.get("meta/a.json"))


def read_what_is_not_there(place: Any) -> str:
    try:
        place.store.ledger("meta").read("a.json")
    except Absent:
        return "absent"
    return "read"


def check_absent(place: Any, returned: object, error: DispatchError | None) -> None:
    assert returned == ("absent" if error is None else None)


def list_names(place: Any) -> list[list[str]]:
    ledger = place.elsewhere(f"s3://{place.direct.bucket}/{SHARED}").ledger("pub")
    return [ledger.names(), sorted(ledger.unordered_names()), ledger.names(after=MANY[900]), ledger.names(most=5000)]


def check_names(place: Any, returned: object, error: DispatchError | None) -> None:
    if error is None:
        assert returned == [MANY, MANY, MANY[901:], MANY]


def remove_name(place: Any) -> None:
    place.store.ledger("index").remove("a")


def check_removed(place: Any, returned: object, error: DispatchError | None) -> None:
    if error is None:
        assert place.direct.keys("index/") == []
    remove_name(place)
    assert place.direct.keys("index/") == []


ACTS = (
    Act("create a marker", create_marker, check_marker, forbidden=(Absent,)),
    Act("create a document", create_document, check_document, forbidden=(Absent, Exists)),
    Act(
        "create a document where another's is",
        create_where_another_was,
        check_another_was_kept,
        with_another_writers_document,
        forbidden=(Absent,),
    ),
    Act("read a document", read_document, check_read, with_document, forbidden=(Absent,)),
    Act("read what is not there", read_what_is_not_there, check_absent),
    Act("list names", list_names, check_names, forbidden=(Absent,)),
    Act(
        "remove a name",
        remove_name,
        check_removed,
        lambda place: place.direct.put("index/a"),
        forbidden=(Absent,),
    ),
)


@pytest.fixture(scope="module", autouse=True)
def many_names(places: Any) -> None:
    """Three pages of names, for all strikes at listings."""
    store = places.honest(f"s3://{places.server.bucket}/{SHARED}")
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(store.ledger("pub").create, MANY))
        list(pool.map(lambda name: store.ledger(f"many/{name}").create("a"), MANY[:2100]))


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
def test_a_ledger_answers_what_is_true_or_fails(act: Act[Any], sweep: Any) -> None:
    # given an act and the requests that it makes
    # when each kind of fault strikes at one of them (in the full form: at each)
    strikes = sweep.try_all(act)
    # then all that the act's check and the sweep ask for held, and faults did strike
    assert len(strikes) > 10


LOOKS = {
    "all": lambda store: store.ledger("pub").names(),
    "unordered": lambda store: store.ledger("pub").unordered_names(),
    "behind a name": lambda store: store.ledger("pub").names(after=MANY[3]),
    "with a limit": lambda store: store.ledger("pub").names(most=5000),
    "folders": lambda store: store.folders("many"),
    # (of what lies deeper in a save no short file is read)
    "files": lambda store: store.files("many"),
}


@pytest.mark.parametrize(
    ("junk", "page"),
    [(faults.ERROR_IN_200, 0), (faults.LOGIN_PAGE, 0), (faults.ERROR_IN_200, 1), (faults.LOGIN_PAGE, 2)],
    ids=["an error", "a login page", "an error as second page", "a login page as third page"],
)
def test_what_is_no_listing_is_never_taken_for_its_end(junk: Any, page: int, places: Any) -> None:
    def try_one(look: Any) -> None:
        place = places.new()
        store = place.elsewhere(f"s3://{place.direct.bucket}/{SHARED}")
        # given a server whose answer to a page, and to all that is asked of listings later, is a success and no listing
        rule = place.proxy.arm(junk, Operation.LIST, skip=page, times=None)
        # when it is listed, then that is an error that names the server
        with pytest.raises(StoreError, match=r"no listing|did not list") as caught:
            look(store)
        assert not isinstance(caught.value, Absent)
        assert place.proxy.endpoint in str(caught.value) and rule.struck
        # and where it comes to itself meanwhile, the listing is whole
        place.proxy.disarm()
        right = look(store)
        place.proxy.arm(junk, Operation.LIST, skip=page, times=2)
        assert look(store) == right and len(right) > 1000
        place.close()

    with ThreadPoolExecutor(len(LOOKS)) as pool:
        list(pool.map(try_one, LOOKS.values()))


@pytest.mark.parametrize("look", [look for name, look in LOOKS.items() if name != "files"])
def test_a_listing_whose_pages_repeat_comes_to_an_end(look: Any, place: Any) -> None:
    # given a server that answers each further page with the first one, which says that there is another
    place.proxy.arm(faults.RepeatPage(), Operation.LIST, times=None)
    store = place.elsewhere(f"s3://{place.direct.bucket}/{SHARED}")
    # when it is listed, then that is told in time, and never taken for a listing
    began = time.monotonic()
    with pytest.raises(StoreError, match="repeats itself") as caught:
        look(store)
    assert time.monotonic() - began < 15
    assert place.proxy.endpoint in str(caught.value)
