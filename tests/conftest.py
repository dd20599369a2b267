"""Settings of every test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from slurm_cluster.cluster import Cluster, shared_cluster, turn, why_not
from support.s3.server import Server, serve

# How long an example takes says more about the machine than about the code. A run of CI must not fail by luck.
settings.register_profile("own", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") or os.environ.get("CI_RUN_MARK") else "own")

# Whoever runs the tests in the background ignores these, and every process that a test starts would inherit it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


_LONGEST_FIRST = ("chaos/test_simulator.py", "acceptance", "chaos", "integration", "conformance", "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of few, long tests come first: towards the end of a run none of its processes is left alone with one."""

    def turn_of(item: pytest.Item) -> int:
        place = os.path.relpath(item.path, Path(__file__).parent)
        turns = (turn for turn, prefix in enumerate(_LONGEST_FIRST) if place.startswith(prefix))
        return next(turns, len(_LONGEST_FIRST))

    items.sort(key=turn_of)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real S3 server of this session's own; it starts with the first test that asks for it."""
    with serve("seaweed", tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real Slurm cluster, one for all workers of a run; it starts with the first test that asks for it."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    base = tmp_path_factory.getbasetemp()
    with shared_cluster(base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster for one test alone, empty, its commands on PATH."""
    with turn(slurm_cluster):
        monkeypatch.setenv("PATH", slurm_cluster.path)
        yield slurm_cluster
        slurm_cluster.clear()
