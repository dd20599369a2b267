"""The policy that the page about S3 shows is enough for all that is done in a bucket, and no more is allowed by it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.errors import StoreUnreachable
from prefect_dispatch.model.facts import CarriedBy
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_managed import ManagedStore
from prefect_dispatch.stores.s3_mover import PART
from prefect_dispatch.stores.s3_place import S3Place
from prefect_dispatch.supervisor.record import Record
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.plain_opening import plain_opening
from support.s3.begun import begin
from support.s3.server import BUCKET, SECRET, Server, serve

PAGE = Path(__file__).resolve().parents[2] / "docs" / "s3.md"
PREFIX = "runs"
SHOWN = "shown-key"
WITHOUT_LIST = "key-without-list"


def policy_of_the_page() -> Any:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return json.loads(block.replace("BUCKET", BUCKET).replace("PREFIX", PREFIX))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that enforces the page's policy for one key, and for another one all of it but the listing."""
    policy = policy_of_the_page()
    less = {**policy, "Statement": [each for each in policy["Statement"] if each["Action"] != "s3:ListBucket"]}
    assert len(less["Statement"]) == len(policy["Statement"]) - 1
    with serve("seaweed", tmp_path_factory.mktemp("server"), policies={SHOWN: policy, WITHOUT_LIST: less}) as found:
        yield found


def store(server: Server, path: str, key: str = SHOWN) -> S3Store:
    return S3Store(S3Place(BUCKET, path), S3Access(server.endpoint, "", lambda again: Credentials(key, SECRET)))


def test_a_lineage_is_kept_and_read_with_the_permissions_of_the_page(server: Server, tmp_path: Path) -> None:
    # given nothing but those permissions
    whole = store(server, PREFIX)
    root = LineageRoot(ManagedStore(store(server, f"{PREFIX}/digits"), str(tmp_path / "workplace")))
    # when a supervisor keeps a record and makes a root, and an execution saves there, once in parts and once as a copy
    whole.probe()
    record = Record(store(server, f"{PREFIX}/digits"), whole.ledger(".dispatch/open"), "digits", ManualClock())
    record.append(plain_opening())
    record.append(CarriedBy(flow_run="1"))
    epoch, attempt = begin(root)
    save = Path(root.absolute(f"exec/{attempt}/save"))
    save.mkdir(parents=True)
    (save / "large").write_bytes(os.urandom(2**20) * (2 * PART // 2**20))
    (save / "small").write_bytes(b"weights")
    root.publish(epoch, attempt, f"exec/{attempt}/save", 1)
    published = root.publish(epoch, attempt, f"exec/{attempt}/save", 2, snapshot=True)
    # then all that was written is found, fetched and sound, and the index is kept
    resume = root.latest()
    assert resume.publication == published and resume.manifest is not None
    root.store.copy(published.path, "meta/next/resume/save", resume.manifest.files)
    assert root.check() == []
    assert len(record.entries()) == 2
    assert whole.ledger(".dispatch/open").names() == ["digits"]
    whole.ledger(".dispatch/open").remove("digits")
    # and what is published cannot be deleted, nor anything be written beside the root
    with pytest.raises(StoreUnreachable, match="AccessDenied"):
        root.store.ledger("pub").remove(published.name)
    with pytest.raises(StoreUnreachable, match="AccessDenied"):
        store(server, "elsewhere").ledger("pub").create("name")
    assert root.latest().publication == published


def test_a_missing_permission_to_list_is_named_at_first_use(server: Server) -> None:
    with pytest.raises(StoreUnreachable, match="s3:ListBucket") as failure:
        LineageRoot(store(server, f"{PREFIX}/other", WITHOUT_LIST)).prepare("", "other")
    assert server.endpoint in str(failure.value)
