"""Jobs whose root is in a bucket, killed before each durable step: nothing is lost and nothing half is taken."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.failpoint import Failpoint
from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.saves import Saves
from prefect_dispatch.format.submission import Notice, RestartSource, Submission
from prefect_dispatch.stores.check import Severity
from prefect_dispatch.stores.lineage_root import LineageRoot
from support.environment import environment_without
from support.full_form import FULL
from support.s3.access import new_url, store_at
from support.s3.server import Server

PROGRAM = """
import os
folder, source = os.environ["DISPATCH_EXEC_DIR"], os.environ["DISPATCH_RESUME_FROM"]
done = int(open(source + "/step").read()) if source else 0
assert not source or open(source + "/model").read() == "weights " * done
for step in (done + 1, done + 2):
    os.mkdir(f"{folder}/save-{step}")
    open(f"{folder}/save-{step}/model", "w").write("weights " * step)
    open(f"{folder}/save-{step}/step", "w").write(str(step))
    open(f"{folder}/save-{step}/.complete", "w").write(str(step))
"""
POINTS = [point.value for point in Failpoint if point.value.startswith("s3.")]
MOST_KILLS = 100 if FULL else 1
"""At how many of its times each failpoint kills."""


class Lineage:
    """One lineage in a bucket, and the executions that a test runs for it."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.server = server
        self.url = new_url(server, "crashes")
        self.number = 0

    @property
    def root(self) -> LineageRoot:
        return LineageRoot(store_at(self.server, f"{self.url}/digits"))

    def run(self, **variables: str) -> subprocess.CompletedProcess[bytes]:
        self.number += 1
        document = self.folder / f"submission-{self.number}.json"
        submission = Submission(
            lineage="digits",
            record="",
            generation=0,
            submission=self.number,
            token=new_token(),
            root=self.url,
            choice=ResumeChoice(),
            saves=Saves.decode({"kind": "marker", "marker": ".complete"}),
            identity={},
            notice=Notice("TERM", timedelta(seconds=5)),
            restart_source=RestartSource.ENVIRONMENT,
            watch_interval=timedelta(seconds=0.2),
            workplace=str(self.folder / "work" / "places"),
        )
        document.write_bytes(submission.encode())
        helper = [sys.executable, "-m", "prefect_dispatch.job", "run", "--submission", str(document)]
        return subprocess.run(
            [*helper, "--", sys.executable, "-c", PROGRAM],
            env={
                **environment_without("DISPATCH_", "AWS_"),
                **self.server.environment(),
                "DISPATCH_RESTART": "0",
                **variables,
            },
            capture_output=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def census(tmp_path_factory: pytest.TempPathFactory, s3_server: Server) -> dict[str, int]:
    """How often an execution that resumes comes to each failpoint."""
    lineage = Lineage(tmp_path_factory.mktemp("census"), s3_server)
    log = lineage.folder / "reached"
    assert lineage.run().returncode == 0
    assert lineage.run(DISPATCH_FAILPOINT_LOG=str(log)).returncode == 0
    words = [line.split() for line in log.read_text().splitlines()]
    return {point: max([int(times) for _, name, times in words if name == point], default=0) for point in POINTS}


@pytest.mark.parametrize("point", POINTS)
def test_a_job_that_is_killed_there_loses_no_save_and_leaves_a_sound_root(
    point: str, census: dict[str, int], tmp_path: Path, s3_server: Server
) -> None:
    assert census[point], f"no execution comes to {point}"
    times = range(1, census[point] + 1)
    lineage = Lineage(tmp_path, s3_server)
    # given a lineage with saves
    assert lineage.run().returncode == 0
    for time in [*times][len(times) // 2 : len(times) // 2 + MOST_KILLS]:
        before = [publication.step for publication in lineage.root.publications()]
        # when an execution that resumes from them is killed right before a durable step
        killed = lineage.run(DISPATCH_FAILPOINT=f"{point}:{time}")
        assert killed.returncode == -9, killed.stdout
        # then the root is sound, and what was published stays
        faults = [fault for fault in lineage.root.check() if fault.severity is Severity.FAULT]
        assert faults == []
        kept = [publication.step for publication in lineage.root.publications()]
        assert kept[: len(before)] == before
        # and the next execution goes on from the newest, whose bytes its program looks at
        again = lineage.run()
        assert again.returncode == 0, again.stdout
        assert [publication.step for publication in lineage.root.publications()][-1] == max(kept) + 2
    assert not [name for name in os.listdir(tmp_path / "work" / "places") if "digits" not in name]
