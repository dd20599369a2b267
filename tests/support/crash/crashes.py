"""All the kills of a test run."""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.crash.child import SCENARIOS
from support.crash.choice import Reached
from support.crash.kill import ROLES, SUPERVISOR, Kill
from support.crash.scene import Scene
from support.crash.supervisors import SIDE_BY_SIDE, Supervisors

TRIES = 5


class Crashes:
    """All the kills of a test run, carried out side by side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._supervisors = Supervisors()
        self._pool = ThreadPoolExecutor(SIDE_BY_SIDE)
        self._scenes = itertools.count(1)
        self._runs: dict[tuple[Kill, ...], Any] = {}

    def scene(self, scenario: str) -> Scene:
        folder = self._folder / f"{next(self._scenes)}-{scenario}"
        folder.mkdir()
        return Scene(folder, scenario, self._supervisors)

    def census(self) -> Reached:
        """How often each role comes to each failpoint in one process, in each scenario that nobody disturbs."""

        def count(scenario: str) -> Reached:
            scene = self.scene(scenario)
            assert scene.activate() == 0, (scene.folder / "activations.log").read_text()
            scene.check_end()
            found: Reached = {}
            for role in ROLES:
                times = found[scenario, role] = Counter()
                for _, point, number in scene.reached(role):
                    times[point] = max(times[point], int(number))
            return found

        return {key: value for found in self._pool.map(count, SCENARIOS) for key, value in found.items()}

    def begin(self, *kills: Kill) -> None:
        """Carry out kills one after another in one lineage, at some time soon."""
        if kills not in self._runs:
            self._runs[kills] = self._pool.submit(self._carry_out, kills)

    def beside(self, act: Callable[..., None], *given: Any) -> Future[None]:
        """Have something done beside the kills."""
        return self._pool.submit(act, *given)

    def end_of(self, *kills: Kill) -> None:
        """Wait until these kills are carried out. What did not hold is raised."""
        self.begin(*kills)
        self._runs[kills].result()

    def _carry_out(self, kills: tuple[Kill, ...]) -> None:
        """Kill. How often a poll comes by is not the same each time; where it was too seldom, try an earlier time."""
        for _ in range(TRIES):
            if self._try(kills):
                return
            *before, last = kills
            kills = (*before, replace(last, time=max(1, last.time // 2)))
        raise AssertionError(f"{', '.join(map(str, kills))}: it was never reached")

    def _try(self, kills: tuple[Kill, ...]) -> bool:
        """Carry out kills in one lineage, and whatever comes of it, check it; returns whether the last one came off."""
        scene = self.scene(kills[0].scenario)
        try:
            over = False
            for kill in kills:
                status = 0 if over else scene.activate(kill)
                if kill.role == SUPERVISOR and scene.was_killed(kill):
                    assert status == signal.SIGKILL or over, status
                else:
                    over = over or status == 0
                    assert status == 0, status
                scene.check()
            if not over:
                assert scene.activate() == 0
            scene.check_end()
            return scene.was_killed(kills[-1])
        except AssertionError as error:
            log = scene.folder / "activations.log"
            text = log.read_text()[-3000:] if log.exists() else ""
            raise AssertionError(f"{', '.join(map(str, kills))} in {scene.folder}: {error}\n{text}") from error

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._supervisors.close()
