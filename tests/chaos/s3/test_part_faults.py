"""Faults of multipart uploads and of ranges: a large save is published whole, or not at all."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.errors import Absent, DispatchError, Unpublishable, UnusableCheckpoint
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.s3_managed import ManagedStore
from prefect_dispatch.stores.s3_mover import PART
from support.full_form import FULL
from support.root_faults import faults_of
from support.s3 import faults
from support.s3.kinds import KINDS
from support.s3.messages import Operation
from support.s3.strikes import Act, Strike

EPOCH = Epoch(0, 1, 0)
ATTEMPT = "k3v7q2m5x4c6b7a2-0"
PATH = f"exec/{ATTEMPT}/step-1"
OF_UPLOADS = (Operation.BEGIN, Operation.PART, Operation.COMPLETE)
TRIED = {
    Operation.BEGIN: ("reply lost", "login page"),
    Operation.PART: ("reply lost", "upload broken", "upload corrupted", "403", "login page"),
    Operation.COMPLETE: ("reply lost", "500 after", "409", "error in 200", "error in 200 after", "login page"),
}
"""In the full form it is every kind."""


def publish(scene: Any) -> object:
    root = scene.root
    place = Path(root.absolute(PATH), "model")
    os.makedirs(scene.folder / "own", mode=0o700, exist_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(scene.content)
    return root.publish(EPOCH, ATTEMPT, PATH, 1)


def begin(scene: Any) -> None:
    root = LineageRoot(scene.honest)
    root.prepare("record-1", "digits")
    root.claim(EPOCH, ATTEMPT, "record-1", new_nonce())
    root.start(EPOCH, ATTEMPT, {})


def check(scene: Any, returned: object, error: DispatchError | None) -> None:
    root = LineageRoot(scene.honest)
    assert faults_of(root) == []
    names = root.publications()
    assert names == ([returned] if error is None else [])
    if error is None:
        assert scene.direct.get(f"{PATH}/model") == scene.content
        assert root.latest().publication == returned
    # What lies there without a name is no save, and the same one can be published after all.
    else:
        again = publish(scene)
        assert root.latest().publication == again
        assert scene.direct.get(f"{root.latest().publication.path}/model") == scene.content


class Scene:
    """A root, an execution's folder on this machine, and what is in its save: a file of two parts and a bit."""

    def __init__(self, place: Any, folder: Path, part: int) -> None:
        folder.mkdir(parents=True)
        self.proxy, self.direct, self.store, self.honest = place.proxy, place.direct, place.store, place.honest
        self.places = place.places
        self.folder = folder
        self.content = bytes(range(256)) * (2 * part // 256) + b"the end"
        self.close = place.close

    @property
    def root(self) -> LineageRoot:
        return LineageRoot(ManagedStore(self.store, str(self.folder / "own")))


PUBLISH = Act("publish in parts", publish, check, begin, forbidden=(Absent, UnusableCheckpoint, Unpublishable))


@pytest.mark.parametrize("operation", OF_UPLOADS, ids=lambda operation: operation.name.lower())
def test_a_large_save_is_published_whole_or_not_at_all(
    operation: Operation, sweep: Any, places: Any, tmp_path: Path, part: int
) -> None:
    # given a save with a file that is sent in parts
    scenes = sweep.over(lambda patience: Scene(places.new(patience), tmp_path / new_nonce(), part))
    numbers = [number for number, request in enumerate(scenes.census(PUBLISH)) if request.operation is operation]
    assert numbers, "it is not sent in parts"
    # when a fault strikes at one of its requests of this kind
    kinds = [kind for kind in KINDS if FULL or kind.name in TRIED[operation]]
    strikes = [Strike(kind, numbers[-1]) for kind in kinds if not kind.operations or operation in kind.operations]
    # then what the act's check asks for holds
    scenes.try_these(PUBLISH, strikes, side_by_side=2)


def test_a_file_that_takes_longer_to_read_back_than_a_request_may_is_proved_all_the_same(
    place: Any, tmp_path: Path
) -> None:
    # given a server whose tags are not those of the bytes, on a line that is slow, and breaks off once
    for operation in (Operation.COMPLETE, Operation.HEAD):
        place.proxy.arm(faults.tag_of_its_own, operation, times=None)
    slow = place.proxy.arm(faults.Drip(2 * 2**20, 0.2), Operation.GET, key="model", times=None)
    broken = place.proxy.arm(faults.Cut(1000), Operation.GET, key="model", skip=1)
    scene = Scene(place, tmp_path / "scene", PART)
    begin(scene)
    # when a large file is published
    began = time.monotonic()
    published = publish(scene)
    # then it was read back piece by piece, and is there
    assert time.monotonic() - began > place.access.patience.request.total_seconds()
    assert len(slow.struck) > 3 and broken.struck
    place.proxy.disarm()
    check(scene, published, None)
