"""Supervisors whose record and root are in a bucket, killed before each durable step: the job ends all the same."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from support.crash.bucket_scene import BucketScene
from support.crash.child import IN_A_BUCKET
from support.crash.kill import SUPERVISOR, Kill
from support.crash.supervisors import SIDE_BY_SIDE, Supervisors
from support.full_form import FULL
from support.s3.server import Server

POINTS = ("record-id", "open-mark", "fact", "submit", "submitted", "open-unmark", "s3.probe-create", "s3.create")
"""What a supervisor comes to between one object and the next: marker, record, submission, and every other."""


class Killings:
    """Jobs whose supervisors are killed, side by side."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._supervisors = Supervisors()
        self._pool = ThreadPoolExecutor(SIDE_BY_SIDE)
        self._begun: dict[Kill, Future[None]] = {}
        self.census = self._count()

    def scene(self, name: str) -> BucketScene:
        folder = self._folder / name
        folder.mkdir()
        return BucketScene.at(self._server, folder, self._supervisors)

    def kills(self, point: str) -> list[Kill]:
        """The first, middle and last time of each; in the full form every one."""
        last = self.census[point]
        times = range(1, last + 1) if FULL else sorted({1, (last + 1) // 2, last} if last else {})
        return [Kill(IN_A_BUCKET, SUPERVISOR, point, time) for time in times]

    def begin(self, kills: list[Kill]) -> None:
        for kill in kills:
            if kill not in self._begun:
                self._begun[kill] = self._pool.submit(self._carry_out, kill)

    def end_of(self, kill: Kill) -> None:
        self.begin([kill])
        self._begun[kill].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._supervisors.close()

    def _count(self) -> Counter[str]:
        scene = self.scene("census")
        assert scene.activate() == 0, (scene.folder / "activations.log").read_text()
        scene.check_end()
        return Counter(point for _, point, _ in scene.reached(SUPERVISOR))

    def _carry_out(self, kill: Kill) -> None:
        scene = self.scene(f"{kill.point}-{kill.time}")
        status = scene.activate(kill)
        # How often one comes somewhere is not the same each time: who ended sooner has ended well.
        assert scene.was_killed(kill) or kill.time > 1
        assert status == (signal.SIGKILL if scene.was_killed(kill) else 0), status
        scene.check()
        if status:
            assert scene.activate() == 0, (scene.folder / "activations.log").read_text()[-3000:]
        scene.check_end()


@pytest.fixture(scope="module")
def killings(s3_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killings]:
    found = Killings(s3_server, tmp_path_factory.mktemp("killings"))
    for point in POINTS:
        found.begin(found.kills(point))
    yield found
    found.close()


@pytest.mark.parametrize("point", POINTS)
def test_a_supervisor_that_is_killed_between_two_objects_loses_nothing(point: str, killings: Killings) -> None:
    # given a job in a bucket that is preempted once, and how often its supervisor comes to this step
    kills = killings.kills(point)
    assert kills, f"no supervisor comes to {point}"
    # when it is killed there, and a new activation goes on
    for kill in kills:
        # then all that the scene's checks ask for holds: each submission is one object, the record folds at each of its
        # lengths, the index is empty, and the weights are those of an uninterrupted run
        killings.end_of(kill)
