"""``dispatch-job run`` by hand around a training, with its root on S3."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.manifest import Manifest
from prefect_dispatch.format.names import new_nonce, new_token
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.saves import Saves
from prefect_dispatch.format.submission import Notice, RestartSource, Submission
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.stores.s3_managed import ManagedStore
from support.environment import environment_without
from support.root_faults import faults_of
from support.s3 import trainer
from support.s3.direct import Direct
from support.s3.place import Place
from support.s3.proxy import FaultProxy

LINEAGE = "digits"
PATIENCE = 90.0
PROGRAM = Path(trainer.__file__)
EVER = "/"
"""A gate that is always open."""
NEVER = "/never"
"""A gate that never opens: the program waits until it is asked to exit, or killed."""


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Args:
        code: its exit code; negative for a signal.
        output: what it printed.
        errors: what it said on standard error.
    """

    code: int
    output: str
    errors: str

    @property
    def told(self) -> str:
        return self.output + self.errors

    @property
    def began_at(self) -> int | None:
        """The step that the program went on from; None where it never ran."""
        found = [line for line in self.output.splitlines() if line.startswith("begun at ")]
        return int(found[0].removeprefix("begun at ")) if found else None


@dataclass
class Runs:
    """One lineage on S3, and the wrappers that a test starts on it.

    Args:
        folder: a folder of the test's own.
        direct: the root's place, past every proxy.
        root: the same place as the tests themselves reach it, past every proxy.
        environment: what a job needs to reach it through the proxy.
        compiled: where Python keeps what it has compiled.
        proxy: stands before the server, for the wrappers.
        place: what it was made from.
        size: bytes of the big file of each save.
    """

    folder: Path
    direct: Direct
    root: LineageRoot
    environment: dict[str, str]
    compiled: Path
    proxy: FaultProxy
    place: Place
    size: int = 1000
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    tokens: dict[int, str] = field(default_factory=dict)

    @classmethod
    def at(cls, place: Place, folder: Path, compiled: Path) -> Runs:
        """A lineage of its own at a place, whose wrappers are as patient as the place's client."""
        folder.mkdir(parents=True, exist_ok=True)
        patience = place.access.patience
        return cls(
            folder,
            place.direct,
            LineageRoot(place.places.honest(f"{place.direct.url}/{LINEAGE}")),
            place.places.server.environment(
                AWS_ENDPOINT_URL=place.proxy.endpoint,
                DISPATCH_S3_TIMEOUT=f"{patience.request.total_seconds():g}s",
                DISPATCH_S3_RETRY=f"{patience.retry.total_seconds():g}s",
            ),
            compiled,
            place.proxy,
            place,
        )

    def submission(self, number: int, **changes: Any) -> Submission:
        submission = Submission(
            lineage=LINEAGE,
            record="",
            generation=0,
            submission=number,
            token=self.tokens.setdefault(number, new_token()),
            root=self.direct.url,
            choice=ResumeChoice(),
            saves=Saves.decode({"kind": "marker"}),
            identity={},
            notice=Notice("TERM", timedelta(seconds=5)),
            restart_source=RestartSource.ENVIRONMENT,
            watch_interval=timedelta(seconds=0.05),
        )
        return replace(submission, **changes)

    def attempt(self, number: int) -> str:
        return self.submission(number).attempt(0)

    def variables(self, **more: str) -> dict[str, str]:
        # What is not compiled yet is compiled once for all runs: that takes longer than most of them.
        inherited = environment_without("DISPATCH_", "SLURM_", "AWS_", "PYTHONDONTWRITEBYTECODE")
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        return {
            **inherited,
            "DISPATCH_RESTART": "0",
            "TMPDIR": str(scratch),
            "PYTHONPYCACHEPREFIX": str(self.compiled),
            **self.environment,
            **more,
        }

    def start(
        self,
        number: int = 1,
        until: int = trainer.STEPS,
        gate: str = EVER,
        variables: dict[str, str] | None = None,
        **changes: Any,
    ) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-S", "-E", str(PROGRAM), str(until), str(self.size), gate]
        return self.start_program(*program, number=number, variables=variables, **changes)

    def start_program(
        self, *program: str, number: int = 1, variables: dict[str, str] | None = None, **changes: Any
    ) -> subprocess.Popen[bytes]:
        """Start a wrapper around any program."""
        document = self.folder / f"submission-{number}.json"
        document.write_bytes(self.submission(number, **changes).encode())
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect_dispatch.job", "run", "--submission", str(document), "--", *program],
            env=self.variables(**(variables or {})),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> Ended:
        output, errors = process.communicate(timeout=PATIENCE)
        return Ended(process.returncode, output.decode(), errors.decode())

    def run(self, number: int = 1, **options: Any) -> Ended:
        """Run one to its end."""
        return self.end(self.start(number, **options))

    def kill(self, process: subprocess.Popen[bytes]) -> Ended:
        process.kill()
        return self.end(process)

    def seed(self, *steps: int) -> None:
        """Have submission 1 publish the saves of some steps, past every proxy, without its being run."""
        epoch, attempt = Epoch(0, 1, 0), self.attempt(1)
        store = self.root.store
        assert isinstance(store, S3Store)
        root = LineageRoot(ManagedStore(store, str(self.folder / f"seed-{attempt}")))
        root.prepare("", LINEAGE)
        root.claim(epoch, attempt, "", new_nonce())
        root.start(epoch, attempt, {"saves": Saves.decode({"kind": "marker"}).encode(), **ResumeChoice().encode()})
        for step in steps:
            path = f"exec/{attempt}/step-{step}"
            for name, content in trainer.contents(step, self.size).items():
                place = Path(root.absolute(path), name)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            root.publish(epoch, attempt, path, step)

    def steps(self, number: int | None = None) -> list[int]:
        """The steps that are published, of one submission or of all."""
        return [
            publication.step
            for publication in self.root.publications()
            if number is None or publication.epoch.submission == number
        ]

    def check(self) -> None:
        """What must hold at any moment: the root is sound, and every publication is whole and right, byte by byte."""
        if not self.direct.keys(f"{LINEAGE}/"):
            return
        assert faults_of(self.root) == []
        for publication in self.root.publications():
            assert self.save(publication) == trainer.contents(publication.step, self.size), publication

    def save(self, publication: Publication) -> dict[str, bytes]:
        """The files of a publication as its manifest lists them, read past everything of ours."""
        attempt = publication.path.split("/")[1]
        manifests = [
            Manifest.decode(self.direct.get(key), key) for key in self.direct.keys(f"{LINEAGE}/meta/{attempt}/saves/")
        ]
        (manifest,) = [found for found in manifests if found.publication == publication][:1]
        place = f"{LINEAGE}/{publication.path}"
        return {file.path: self.direct.get(f"{place}/{file.path}") for file in manifest.files}

    def check_carried_on(self, number: int, began_at: int) -> None:
        """A new activation resumes from that step, and takes the work to its end."""
        ended = self.run(number)
        assert ended.code == 0, ended.told
        assert ended.began_at == began_at, ended.told
        assert self.root.latest().publication == self.root.publications()[-1]
        assert self.steps(number)[-1:] == [trainer.STEPS]
        self.check()

    def close(self) -> None:
        """End what was started, and give the place back."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.place.close()
