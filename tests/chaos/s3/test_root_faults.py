"""Every kind of fault at every request of what an execution does with its root: nothing is lost, halved or made up."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.errors import (
    Absent,
    DispatchError,
    DuplicateExecution,
    Exists,
    NothingPublished,
    Unpublishable,
    UnusableCheckpoint,
)
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import attempt_of, new_nonce, new_token
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.s3_managed import ManagedStore
from support.root_faults import faults_of
from support.s3 import faults
from support.s3.begun import begin
from support.s3.messages import Operation
from support.s3.place import Place
from support.s3.strikes import Act

RECORD = "record-1"
LINEAGE = "digits"
OLD, OWN = Epoch(0, 1, 0), Epoch(0, 2, 0)
FILES = {"weights": b"step %d", "deep/ballast": b"x" * 100_000, ".complete": b"%d"}
LAST_WORD = (Absent, UnusableCheckpoint, NothingPublished, DuplicateExecution, Unpublishable, Exists)
"""What a fault is never taken for."""


@dataclass
class Scene(Place):
    """A root with two saves of an older execution, and an execution that comes after it.

    Attributes:
        folder: a folder of its own on this machine.
        attempt: the attempt that comes after it.
    """

    folder: Path = field(default_factory=Path)
    old: str = ""
    attempt: str = ""

    @classmethod
    def at(cls, place: Place, folder: Path) -> Scene:
        folder.mkdir(parents=True)
        attempts = (attempt_of(new_token(), 0) for _ in range(2))
        return cls(**vars(place), folder=folder, old=next(attempts), attempt=next(attempts))

    @property
    def root(self) -> LineageRoot:
        """As the execution has it, through the proxy."""
        return LineageRoot(ManagedStore(self.store, str(self.folder / "own")))

    @property
    def calm(self) -> LineageRoot:
        """As the older execution has it, past the proxy."""
        return LineageRoot(ManagedStore(self.honest, str(self.folder / "old")))

    @property
    def plain(self) -> LineageRoot:
        return LineageRoot(self.honest)

    def begin(self, root: LineageRoot, epoch: Epoch, attempt: str) -> None:
        root.claim(epoch, attempt, RECORD, new_nonce())
        root.start(epoch, attempt, {"host": "node1"})

    def write(self, root: LineageRoot, attempt: str, step: int) -> str:
        path = f"exec/{attempt}/step-{step}"
        for name, content in files_of(step).items():
            place = Path(root.absolute(path), name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        return path

    def check_sound(self) -> None:
        """The root is sound, and each publication is whole and right, byte by byte."""
        assert faults_of(self.plain) == []
        for publication in self.plain.publications():
            below = f"{publication.path}/"
            stored = {key.removeprefix(below): self.direct.get(key) for key in self.direct.keys(below)}
            assert stored == files_of(publication.step), publication

    def steps(self, epoch: Epoch) -> list[int]:
        return [publication.step for publication in self.plain.publications() if publication.epoch == epoch]


def files_of(step: int) -> dict[str, bytes]:
    return {name: content % step if b"%" in content else content for name, content in FILES.items()}


def with_older_saves(scene: Scene) -> None:
    root = scene.calm
    root.prepare(RECORD, LINEAGE)
    scene.begin(root, OLD, scene.old)
    for step in (1, 2):
        root.publish(OLD, scene.old, scene.write(root, scene.old, step), step)


def with_older_saves_and_own_start(scene: Scene) -> None:
    with_older_saves(scene)
    scene.begin(scene.plain, OWN, scene.attempt)
    os.makedirs(scene.root.absolute(f"exec/{scene.attempt}"), mode=0o700)
    os.chmod(scene.folder / "own", 0o700)


def prepare(scene: Scene) -> None:
    scene.root.prepare(RECORD, LINEAGE)


def check_prepared(scene: Scene, returned: object, error: DispatchError | None) -> None:
    prepare(scene)
    assert scene.plain.record() == RECORD
    assert scene.direct.keys("tmp/") == [] or error is not None


def enter_and_begin(scene: Scene) -> None:
    root = scene.root
    root.enter(RECORD, LINEAGE)
    scene.begin(root, OWN, scene.attempt)


def check_begun(scene: Scene, returned: object, error: DispatchError | None) -> None:
    if error is None:
        started = scene.plain.started(scene.attempt)
        assert started is not None and started.epoch == OWN
        with pytest.raises(DuplicateExecution):
            scene.begin(scene.plain, OWN, attempt_of(new_token(), 0))
    assert faults_of(scene.plain) == []
    assert scene.steps(OLD) == [1, 2]


def publish(scene: Scene) -> object:
    return scene.root.publish(OWN, scene.attempt, scene.write(scene.root, scene.attempt, 3), 3)


def check_published(scene: Scene, returned: object, error: DispatchError | None) -> None:
    scene.check_sound()
    if error is None:
        assert scene.plain.latest().publication == returned
        assert scene.steps(OWN) == [3]
    # What was published before is there, and the same save can be published after all: once.
    assert scene.steps(OLD) == [1, 2]
    publish(scene)
    assert scene.steps(OWN) == [3]
    scene.check_sound()


def publish_copy(scene: Scene) -> object:
    path = scene.write(scene.root, scene.attempt, 3)
    return scene.root.publish(OWN, scene.attempt, path, 3, snapshot=True)


def check_copy(scene: Scene, returned: object, error: DispatchError | None) -> None:
    scene.check_sound()
    if error is None:
        assert scene.plain.latest().publication == returned
        assert scene.steps(OWN) == [3]


def publish_state(scene: Scene) -> object:
    return scene.root.publish_state(OWN, scene.attempt, "the state")


def check_state(scene: Scene, returned: Any, error: DispatchError | None) -> None:
    assert faults_of(scene.plain) == []
    if error is None:
        resume = scene.plain.latest()
        assert resume.publication == returned
        assert resume.manifest is not None and resume.manifest.state == "the state"


def latest(scene: Scene) -> Any:
    return scene.root.latest(below=OWN)


def check_latest(scene: Scene, returned: Any, error: DispatchError | None) -> None:
    # Never an older one, never none.
    if error is None:
        assert (returned.publication.step, returned.passed_over) == (2, ())


def pin(scene: Scene) -> Any:
    return scene.root.pin(OWN, scene.attempt, ResumeChoice())


def check_pinned(scene: Scene, returned: Any, error: DispatchError | None) -> None:
    for taken in (returned, None if error is None else pin(scene)):
        if taken is not None:
            assert (taken.publication.step, taken.passed_over) == (2, ())
            place = Path(scene.root.absolute(taken.path))
            stored = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
            assert stored == files_of(2)
    assert [entry.name for entry in Path(scene.folder, "own", "tmp").iterdir()] == []
    scene.check_sound()


def complete(scene: Scene) -> Any:
    scene.root.complete(OWN, scene.attempt, "shard-7", {"file": "out"}, "n" * 16)
    return sorted(scene.root.completions().parts)


def check_complete(scene: Scene, returned: Any, error: DispatchError | None) -> None:
    if error is None:
        assert returned == ["shard-7"]
    assert complete(scene) == ["shard-7"]


def journal(scene: Scene) -> None:
    for text in ("a", "b"):
        scene.root.journal(scene.attempt).append("status", at=1.0, text=text)


def check_journal(scene: Scene, returned: Any, error: DispatchError | None) -> None:
    told = [entry.fields["text"] for entry in scene.plain.journal(scene.attempt).entries()]
    assert told == ["a", "b"] if error is None else told in ([], ["a"], ["a", "b"])


ACTS = (
    Act("prepare", prepare, check_prepared, forbidden=LAST_WORD),
    Act("enter, claim and start", enter_and_begin, check_begun, with_older_saves, forbidden=LAST_WORD),
    Act("publish", publish, check_published, with_older_saves_and_own_start, forbidden=LAST_WORD),
    Act("publish a copy", publish_copy, check_copy, with_older_saves_and_own_start, forbidden=LAST_WORD),
    Act("publish a state", publish_state, check_state, with_older_saves_and_own_start, forbidden=LAST_WORD),
    Act("latest", latest, check_latest, with_older_saves, forbidden=LAST_WORD),
    Act("pin", pin, check_pinned, with_older_saves_and_own_start, forbidden=LAST_WORD),
    Act("complete", complete, check_complete, with_older_saves_and_own_start, forbidden=LAST_WORD),
    Act("write the journal", journal, check_journal, with_older_saves_and_own_start, forbidden=LAST_WORD),
)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
def test_an_execution_is_told_what_is_true_or_fails(act: Act[Any], scenes: Any) -> None:
    # given an act on a root with two saves, and the requests that it makes
    # when each kind of fault strikes at one of them (in the full form: at each)
    strikes = scenes.try_all(act)
    # then all that the act's check and the sweep ask for held, and faults did strike
    assert len(strikes) > 10


def test_a_state_without_text_whose_answer_is_lost_is_published(place: Place, tmp_path: Path) -> None:
    # given a bucket that has stored a state of no text, and whose answer is lost: nothing in it tells whose it is
    root = LineageRoot(ManagedStore(place.store, str(tmp_path / "workplace")))
    epoch, attempt = begin(root)
    lost = place.proxy.arm(faults.lose_reply, Operation.PUT, key="/state")
    # when / then
    published = root.publish_state(epoch, attempt, "")
    assert len(lost.struck) == 1
    assert root.publications() == [published]
    assert root.latest().manifest.state == ""


@pytest.fixture
def scenes(places: Any, tmp_path: Path, sweep: Any) -> Any:
    """The sweep, over places with an execution's folder on this machine."""
    return sweep.over(lambda patience: Scene.at(places.new(patience), tmp_path / new_nonce()))
