"""Two Prefect servers whose pollers look at one root: a held job stays where its run is, as long as that one lives."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from prefect.states import Suspended

from support.stray_runs import StrayRuns


@pytest.fixture
def here(tmp_path: Path, prefect_api: str) -> StrayRuns:
    return StrayRuns(tmp_path / "runs", prefect_api)


def test_a_held_job_is_left_to_another_server_until_that_one_is_gone(here, another_server):
    # given a job that is held for long, by a run of this server
    run = here.make("supervise", Suspended(timeout_seconds=3600, pause_key=f"hold-{here.lineage.hold}-1"))
    here.carry(run)
    there = here.seen_from(another_server.url)
    there.ask(lambda _: there.deploy())

    def minutes(number: int) -> timedelta:
        return timedelta(minutes=number)

    # when its poller looks, and then, with no process of the run to be seen, another server's
    assert here.reconcile(run, later=minutes(15)) == ([], [])
    looked = there.reconcile(later=minutes(24))
    # then it is left where it is
    assert looked == ([], [])
    assert here.lineage.record().refresh().carried_by == run
    # when nothing is heard of this server any more
    told, troubles = there.reconcile(later=minutes(26))
    # then the other one takes it over
    assert (["takes digits over" in text for text in told], troubles) == ([True], [])
