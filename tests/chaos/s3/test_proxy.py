"""The proxy that makes the faults: what a bare client sees through it, so that the tests of ours mean what they say."""

from __future__ import annotations

import time

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError

from support.s3 import faults
from support.s3.messages import Operation
from support.s3.signature import sign_anew

BODY = bytes(range(256)) * 400


def test_what_no_rule_takes_passes_unchanged_on_connections_that_are_kept(proxy, bare, direct):
    # given a client whose requests are signed for the proxy's own address
    # when it writes, reads and lists names with all that has to be quoted
    for name in ("plain", "a b+c'é%2F~&=?#", "x" * 200):
        obstore.put(bare, f"t/{name}", BODY, mode="create")
        assert bytes(obstore.get(bare, f"t/{name}").bytes()) == BODY
        assert direct.get(f"t/{name}") == BODY
    # then the server has taken each for what it is, and the proxy has seen it so
    assert sorted(entry["path"] for page in obstore.list(bare, "t") for entry in page) == direct.keys("t/")
    assert [proxy.count(each) for each in (Operation.PUT, Operation.GET, Operation.LIST)] == [3, 3, 1]
    assert proxy.connections <= 2


def test_a_reply_that_is_lost_was_served(proxy, bare, direct):
    rule = proxy.arm(faults.lose_reply, Operation.PUT)
    with pytest.raises(GenericError):
        obstore.put(bare, "a", b"1", mode="create")
    assert direct.get("a") == b"1" and len(rule.struck) == 1


def test_a_request_that_is_lost_was_not_served(proxy, bare, direct):
    proxy.arm(faults.lose_request, Operation.PUT)
    with pytest.raises(GenericError):
        obstore.put(bare, "a", b"1", mode="create")
    assert direct.keys("") == []


@pytest.mark.parametrize("fault", [faults.INTERNAL_ERROR, faults.INTERNAL_ERROR_SERVED], ids=["before", "after"])
def test_an_error_is_answered_before_or_after_the_server_has_served(fault, proxy, bare, direct):
    proxy.arm(fault, Operation.PUT)
    with pytest.raises(GenericError, match="500"):
        obstore.put(bare, "a", b"1", mode="create")
    assert direct.keys("") == (["a"] if fault.served else [])
    # The connection is good for the next request.
    obstore.put(bare, "b", b"1", mode="create")
    assert proxy.connections == 1


def test_a_body_that_breaks_off_is_seen_and_one_that_is_shortened_is_not(proxy, bare):
    obstore.put(bare, "a", BODY)
    proxy.arm(faults.Cut(1000), Operation.GET)
    with pytest.raises(GenericError):
        obstore.get(bare, "a").bytes()
    proxy.arm(faults.Shorten(10), Operation.GET)
    assert bytes(obstore.get(bare, "a").bytes()) == BODY[:-10]
    proxy.arm(faults.corrupt, Operation.GET)
    taken = bytes(obstore.get(bare, "a").bytes())
    assert len(taken) == len(BODY) and taken != BODY


def test_what_hangs_hangs_until_the_client_goes(proxy, bare):
    obstore.put(bare, "a", BODY)
    for fault in (faults.hang, faults.hang_served, faults.HangInBody(1000)):
        rule = proxy.arm(fault, Operation.GET)
        began = time.monotonic()
        with pytest.raises(GenericError):
            obstore.get(bare, "a").bytes()
        assert time.monotonic() - began > 1.5
        assert len(rule.struck) == 1


def test_a_body_drips(proxy, bare):
    obstore.put(bare, "a", BODY)
    proxy.arm(faults.Drip(bytes_at_once=10, pause=0.01, total=200), Operation.GET)
    began = time.monotonic()
    assert bytes(obstore.get(bare, "a").bytes()) == BODY
    assert time.monotonic() - began > 0.2


def test_a_condition_that_is_stripped_lets_a_second_writer_win(proxy, bare, s3_server, direct):
    proxy.authority = lambda request, body: sign_anew(request, body, s3_server.key, s3_server.secret)
    proxy.arm(faults.strip_condition, Operation.PUT, skip=1)
    obstore.put(bare, "a", b"1", mode="create")
    obstore.put(bare, "a", b"2", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(bare, "a", b"3", mode="create")
    assert direct.get("a") == b"2"


def test_a_listing_is_answered_as_it_was(proxy, bare):
    obstore.put(bare, "p/a", b"")
    replay = faults.Replay()
    proxy.arm(replay, Operation.LIST, times=None)
    assert len(next(iter(obstore.list(bare, "p")))) == 1
    obstore.put(bare, "p/b", b"")
    replay.recording = False
    assert len(next(iter(obstore.list(bare, "p")))) == 1
    proxy.disarm()
    assert len(next(iter(obstore.list(bare, "p")))) == 2


def test_a_port_is_refused_and_open_again(proxy, bare):
    obstore.put(bare, "a", b"1")
    proxy.refuse()
    with pytest.raises(GenericError):
        obstore.get(bare, "a")
    proxy.accept()
    assert bytes(obstore.get(bare, "a").bytes()) == b"1"
