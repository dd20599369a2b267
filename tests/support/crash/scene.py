"""A scene of crashes: one job, and what must hold of it at any moment and at its end."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from prefect_dispatch.failpoints import LOG, POINT
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.facts import Outcome, Submitting
from prefect_dispatch.model.fold import fold
from prefect_dispatch.model.state import LineageState
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_index, open_record
from support.crash.child import LINEAGE, MARK
from support.crash.kill import ROLES, SUPERVISOR, Kill
from support.crash.supervisors import Supervisors
from support.crash.trainer import STEPS, expected
from support.marked_processes import processes_with
from support.root_faults import faults_of
from support.waiting import until

GONE_SECONDS = 30.0


@dataclass
class Scene:
    """One lineage on real parts in a folder of its own.

    Attributes:
        folder: the folder as the test sees it.
        scenario: what kind of job it is.
        supervisors: carry out its activations.
        inside: the folder as they and the job see it, where that is another path.
        published: what was published at the last check.
        variables: what its supervisors need in their environment.
    """

    folder: Path
    scenario: str
    supervisors: Supervisors
    inside: Path | None = None
    published: set[str] = field(default_factory=set)
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> Path:
        return self.inside or self.folder

    @property
    def root(self) -> Path:
        return self.folder / "root" / LINEAGE

    @property
    def record_root(self) -> str:
        return str(self.folder / "record")

    @property
    def lineage_root(self) -> LineageRoot:
        return LineageRoot(PosixStore(self.root))

    def kills(self, who: str, point: str, time: int) -> list[Kill]:
        """The same kill for the supervisor, or for the jobs of the first and of the second submission."""
        return [Kill(self.scenario, role, point, time) for role in ROLES if (role == SUPERVISOR) is (who == SUPERVISOR)]

    def activate(self, *kills: Kill, run_again: bool = False) -> int:
        """Carry the job on in a new supervisor, after a person's word if it is held; returns how that one ended."""
        armed = {role: {LOG: str(self.place / f"{role}.reached")} for role in ROLES}
        armed[SUPERVISOR].update(self.variables)
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
            assert faults_of(self.lineage_root) == []
        self._check_published({path.name for path in (self.root / "pub").glob("*")})

    def _check_published(self, names: set[str]) -> None:
        assert self.published <= names, self.published - names
        self.published = names

    def check_end(self) -> None:
        """What must hold when the job is over."""
        self.wait_for_silence()
        self.check()
        entries = open_record(self.record_root, LINEAGE, SystemClock()).entries()
        states = [fold(entries[:length]) for length in range(len(entries) + 1)]
        state = states[-1]
        assert state.finished is not None
        assert open_index(self.record_root).names() == []
        outcome = Outcome.STOPPED if self.scenario == "stopped" else Outcome.SUCCEEDED
        assert state.finished.outcome is outcome, state.finished
        self._check_objects({entry.fact.token for entry in entries if isinstance(entry.fact, Submitting)})
        if self.scenario != "requeue":
            self._check_weights(state)

    def _check_objects(self, tokens: set[str]) -> None:
        """Each submission of the record has one object at most, and there is no other object."""
        folders = list((self.folder / "state" / "objects").glob("*"))
        names = Counter(json.loads((folder / "object.json").read_text())["name"].split(".")[1] for folder in folders)
        assert set(names.values()) <= {1}, names
        assert {folder.name for folder in folders} <= tokens
        assert list((self.folder / "state" / "queue").glob("*")) == [] or self.scenario == "requeue"

    def _check_weights(self, state: LineageState) -> None:
        """The job ended with the weights of an uninterrupted run, and every save that was published is right."""
        latest = self.lineage_root.latest()
        final = self._weights(latest.publication)
        if self.scenario != "stopped":
            assert final == expected(STEPS)
            assert state.finished is not None and state.finished.final_save is not None
            assert self._weights(Publication.parse(state.finished.final_save)) == final
        for publication in self.lineage_root.publications():
            text = self._weights(publication)
            assert text == expected(int(text.partition(",")[0])), publication

    def _weights(self, publication: Publication | None) -> str:
        assert publication is not None
        save = self.root / publication.path
        return (save / "weights" if save.is_dir() else save).read_text()

    def wait_for_silence(self) -> None:
        """Nothing of the job lives on, within its linger."""
        until(lambda: not self.living(), f"the processes of {self.place} are gone", GONE_SECONDS)

    def living(self) -> list[int]:
        """The processes of this scene's jobs."""
        return processes_with(f"{MARK}={self.place}")
