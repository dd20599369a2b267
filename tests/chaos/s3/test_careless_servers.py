"""Servers that do not keep what S3 promises are refused by name, before a save is trusted to them."""

from __future__ import annotations

from typing import Any

import pytest

from prefect_dispatch.errors import Absent, StoreUnreachable
from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.format.manifest import SHORT_BYTES
from prefect_dispatch.stores.lineage_root import LineageRoot
from support.s3 import faults
from support.s3.messages import Operation
from support.s3.signature import sign_anew


def test_a_server_that_ignores_the_condition_is_refused(place: Any) -> None:
    # given a server that takes every PUT
    server = place.places.server
    place.proxy.authority = lambda request, body: sign_anew(request, body, server.key, server.secret)
    place.proxy.arm(faults.strip_condition, Operation.PUT, times=None)
    # when a root is to be made there
    with pytest.raises(StoreUnreachable, match="If-None-Match") as caught:
        LineageRoot(place.store).prepare("record-1", "digits")
    # then it is not, the error names the server, and nothing is left there
    assert place.proxy.endpoint in str(caught.value) and place.direct.bucket in str(caught.value)
    assert place.direct.keys() == []


def test_a_run_is_refused_by_a_server_whose_listings_lag(runs: Any) -> None:
    # given a root with one save as the server's listings show it, and a second save that they lack
    runs.seed(1)
    replay = faults.Replay()
    runs.proxy.arm(replay, Operation.LIST, times=None)
    before = runs.run(2, until=1)
    assert before.began_at == 1, before.told
    replay.recording = False
    # when a run would resume
    ended = runs.run(3)
    # then it is told that this server cannot be trusted, and resumes from nothing
    assert ended.code == ExitCode.STORE_UNREACHABLE, ended.told
    assert "strongly consistent" in ended.told and runs.proxy.endpoint in ended.told
    assert ended.began_at is None
    runs.check()


def test_a_file_that_a_listing_still_has_and_the_server_has_not_is_gone(place: Any) -> None:
    # given a save of many files, and a server whose listings are behind
    for number in range(20):
        place.direct.put(f"exec/a/save/{number:02d}", bytes(SHORT_BYTES + 1))
    files = place.store.files("exec/a/save")
    stale = faults.Replay()
    place.proxy.arm(stale, Operation.LIST, times=None)
    place.store.files("exec/a/save")
    stale.recording = False
    # when one of its files is removed
    place.direct.delete("exec/a/save/07")
    # then that is seen: each is asked for by its name
    assert len(place.store.files("exec/a/save")) == 20
    assert place.store.difference("exec/a/save", files) == "07 is gone"
    with pytest.raises(Absent, match="07 is gone"):
        place.store.sync("exec/a/save", files)
