"""Scenes of crashes: a job on real parts, killed where a test says, and everything that must hold afterwards."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.failpoint import Failpoint
from prefect_dispatch.failpoints import LOG, POINT
from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.saves import Saves
from prefect_dispatch.format.submission import Notice, RestartSource, Submission
from prefect_dispatch.model.facts import Outcome
from prefect_dispatch.model.fold import fold
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.stores.check import Severity
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_record
from support.environment import environment_without
from support.full_form import FULL

HERE = Path(__file__).parent
LINEAGE = "crash"
MARK = "CRASH_FOLDER"
SCENARIOS = ("folder", "over", "state", "stopped", "long-record", "time-limit", "requeue", "barred")
SUPERVISOR = "supervisor"
ROLES = (SUPERVISOR, "1", "2")
"""Who is killed: the supervisor, or the job of the first or second submission."""
GONE_SECONDS = 30.0
WORKERS = 3
TRIES = 5
CHAINS = {
    "local.never-started": ("local.spawn",),
    "local.drop-entry": ("local.place-object",),
}
"""Failpoints that are reached only after another kill."""
Reached = dict[tuple[str, str], Counter[str]]


@dataclass(frozen=True)
class Kill:
    """One kill: who, where, and how often it is to come there first."""

    scenario: str
    role: str
    point: str
    time: int = 1

    def __str__(self) -> str:
        return f"{self.scenario}: {self.role} at {self.point}:{self.time}"


class Supervisors:
    """Processes that carry out activations, each in a fork of its own; as many at once as there are.

    Args:
        number: how many.
        prefix: a command that starts them somewhere else, such as in a mount namespace of their own.
    """

    def __init__(self, number: int = WORKERS, prefix: Sequence[str] = ()) -> None:
        self._idle: queue.Queue[subprocess.Popen[str]] = queue.Queue()
        self.all = [
            subprocess.Popen(
                [*prefix, sys.executable, str(HERE / "crash_child.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment_without("DISPATCH_"),
            )
            for _ in range(number)
        ]
        for each in self.all:
            self._idle.put(each)

    def activate(self, **asked: Any) -> int:
        """Carry out one activation; returns the wait status of its process."""
        server = self._idle.get()
        try:
            assert server.stdin is not None and server.stdout is not None
            server.stdin.write(json.dumps(asked) + "\n")
            server.stdin.flush()
            return int(server.stdout.readline())
        finally:
            self._idle.put(server)

    def close(self) -> None:
        for each in self.all:
            each.communicate(timeout=60)


@dataclass
class Scene:
    """One lineage on real parts in a folder of its own.

    Attributes:
        folder: the folder as the test sees it.
        scenario: what kind of job it is.
        supervisors: carry out its activations.
        inside: the folder as they and the job see it, where that is another path.
        published: what was published at the last check.
    """

    folder: Path
    scenario: str
    supervisors: Supervisors
    inside: Path | None = None
    published: set[str] = field(default_factory=set)

    @property
    def place(self) -> Path:
        return self.inside or self.folder

    @property
    def root(self) -> Path:
        return self.folder / "root" / LINEAGE

    def kills(self, who: str, point: str, time: int) -> list[Kill]:
        """The same kill for the supervisor, or for the jobs of the first and of the second submission."""
        return [Kill(self.scenario, role, point, time) for role in ROLES if (role == SUPERVISOR) is (who == SUPERVISOR)]

    def activate(self, *kills: Kill, run_again: bool = False) -> int:
        """Carry the job on in a new supervisor, after a person's word if it is held; returns how that one ended."""
        armed = {role: {LOG: str(self.place / f"{role}.reached")} for role in ROLES}
        for kill in kills:
            armed[kill.role][POINT] = f"{kill.point}:{kill.time}"
        environment = armed.pop(SUPERVISOR)
        return self.supervisors.activate(
            folder=str(self.place),
            scenario=self.scenario,
            environment=environment,
            arms=armed,
            run_again=run_again,
        )

    def reached(self, role: str) -> list[list[str]]:
        """What a role has reached so far, in order: pid, failpoint and time of each."""
        log = self.folder / f"{role}.reached"
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def was_killed(self, kill: Kill) -> bool:
        return any(entry[1:] == [kill.point, str(kill.time)] for entry in self.reached(kill.role))

    def check(self) -> None:
        """What must hold at any moment: the root is sound, and nothing that was published is lost."""
        if self.scenario == "requeue" or not (self.folder / "root").exists():
            return
        if self.root.exists() and list(self.root.iterdir()):
            # What ``dispatch-job check`` does, without the start of another Python for each kill.
            faults = [fault for fault in LineageRoot(PosixStore(self.root)).check() if fault.severity is Severity.FAULT]
            assert faults == []
        names = {path.name for path in (self.root / "pub").glob("*")}
        assert self.published <= names, self.published - names
        self.published = names

    def check_end(self) -> None:
        """What must hold when the job is over."""
        self.wait_for_silence()
        self.check()
        entries = open_record(str(self.folder / "record"), LINEAGE, SystemClock()).entries()
        states = [fold(entries[:length]) for length in range(len(entries) + 1)]
        state = states[-1]
        assert state.finished is not None
        assert not (self.folder / "record" / ".dispatch" / "open" / LINEAGE).exists()
        outcome = Outcome.STOPPED if self.scenario == "stopped" else Outcome.SUCCEEDED
        assert state.finished.outcome is outcome, state.finished
        self._check_objects(state)
        if self.scenario != "requeue":
            self._check_weights(state)

    def _check_objects(self, state: LineageState) -> None:
        """Each submission of the record has one object at most, and there is no other object."""
        folders = list((self.folder / "state" / "objects").glob("*"))
        names = Counter(json.loads((folder / "object.json").read_text())["name"].split(".")[1] for folder in folders)
        assert set(names.values()) <= {1}, names
        tokens = {submission.token for submission in state.submissions}
        assert {folder.name for folder in folders} <= tokens
        assert list((self.folder / "state" / "queue").glob("*")) == [] or self.scenario == "requeue"

    def _check_weights(self, state: LineageState) -> None:
        """The job ended with the weights of an uninterrupted run, and every save that was published is right."""
        latest = LineageRoot(PosixStore(self.root)).latest()
        final = self._weights(latest.publication)
        if self.scenario != "stopped":
            assert final == expected(6)
            assert state.finished is not None and state.finished.final_save is not None
            assert self._weights(Publication.parse(state.finished.final_save)) == final
        for publication in LineageRoot(PosixStore(self.root)).publications():
            text = self._weights(publication)
            assert text == expected(int(text.partition(",")[0])), publication

    def _weights(self, publication: Publication | None) -> str:
        assert publication is not None
        save = self.root / publication.path
        return (save / "weights" if save.is_dir() else save).read_text()

    def wait_for_silence(self) -> None:
        """Nothing of the job lives on, within its linger."""
        give_up = time.monotonic() + GONE_SECONDS
        while self.living():
            assert time.monotonic() < give_up, self.living()
            time.sleep(0.05)

    def living(self) -> list[str]:
        """The processes of this scene's jobs."""
        mark = f"{MARK}={self.place}".encode()
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(f"{entry} {Path(f'/proc/{entry}/cmdline').read_text()}")
            except OSError:
                pass
        return found


def expected(step: int) -> str:
    """The trainer's state after a step, as an uninterrupted run has it."""
    weights = 1
    for number in range(1, step + 1):
        weights = (weights * 6364136223846793005 + number) % 2**61
    return f"{step},{weights}"


class Crashes:
    """All the kills of a test run, carried out side by side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._supervisors = Supervisors()
        self._pool = ThreadPoolExecutor(WORKERS)
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


@pytest.fixture(scope="session")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashes]:
    found = Crashes(tmp_path_factory.mktemp("crashes"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def census(crashes: Crashes) -> Reached:
    return crashes.census()


@pytest.fixture(scope="session")
def planned(
    request: pytest.FixtureRequest, crashes: Crashes, census: Reached
) -> dict[Failpoint, list[tuple[Kill, ...]]]:
    """The kills at each failpoint, each with those that have to come before it.

    Those of all the tests that will run are begun at once, to run side by side.
    """
    chosen = {point: choose(point.value, census) for point in Failpoint}
    wanted = [item.callspec.params.get("point") for item in request.session.items if hasattr(item, "callspec")]
    for point in wanted:
        for kills in chosen.get(point, []):
            crashes.begin(*kills)
    return chosen


def choose(point: str, census: Reached) -> list[tuple[Kill, ...]]:
    """The kills at one failpoint: the first, second and last time, in turn with the roles that come there.

    In the full form it is every time, in every scenario and role.
    """
    if point in CHAINS:
        return [tuple(Kill("folder", SUPERVISOR, each) for each in (*CHAINS[point], point))]
    places = [(scenario, role) for (scenario, role), times in census.items() if times[point]]
    if FULL:
        return [
            (Kill(scenario, role, point, time),)
            for scenario, role in places
            for time in range(1, min(census[scenario, role][point], 40) + 1)
        ]
    if not places:
        return []
    first = [place for place in places if place[0] == places[0][0]]
    kills = []
    for place, (scenario, role) in zip(range(3), first * 3, strict=False):
        last = census[scenario, role][point]
        time = (1, min(2, last), last)[place]
        kills.append(Kill(scenario, role, point, time))
    return [(kill,) for kill in dict.fromkeys(kills[:1] + [kill for kill in kills[1:] if kill.time > 1])]


@pytest.fixture
def supervisors_of() -> type[Supervisors]:
    return Supervisors


@pytest.fixture
def scene_of() -> type[Scene]:
    return Scene


@pytest.fixture
def kill_at() -> Callable[..., Kill]:
    def make(scene: Scene, point: str, time: int = 1) -> Kill:
        return Kill(scene.scenario, SUPERVISOR, point, time)

    return make


@pytest.fixture
def submission_of() -> Callable[[Path, int], list[str]]:
    """Writes the document of a submission on a disk of its own; returns the helper's command line for it."""

    def make(place: Path, number: int) -> list[str]:
        document = place.with_name(f"{place.name}-{number}.json")
        document.write_bytes(
            Submission(
                lineage=LINEAGE,
                record="",
                generation=0,
                submission=number,
                token=new_token(),
                root=str(place / "runs"),
                choice=ResumeChoice(),
                saves=Saves.decode({"kind": "marker"}),
                identity={},
                notice=Notice("TERM", timedelta(seconds=5)),
                restart_source=RestartSource.ENVIRONMENT,
                watch_interval=timedelta(seconds=0.03),
            ).encode()
        )
        program = [sys.executable, "-S", "-E", str(HERE / "crash_trainer.py"), "folder", str(HERE)]
        return [sys.executable, "-m", "prefect_dispatch.job", "run", "--submission", str(document), "--", *program]

    return make
