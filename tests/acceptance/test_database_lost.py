"""Prefect's database is lost, with all runs, deployments and questions: every lineage goes on from its record."""

from __future__ import annotations

import asyncio

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from support.deployed import WORKING, Deployed, Worker, deploy, patiently, processes_of
from support.marked_processes import kill_each
from support.reconciled import reconcile_later


@pytest.mark.timeout(600)
def test_a_server_that_knows_nothing_gets_a_run_for_each_open_lineage(
    another, worker, another_server, environment, tmp_path
):
    # given a job that is held and one that works, and a crash of everything but the work itself
    held, holding = another("held")
    works, working = another("works")
    first, second = holding.start(), working.start(WORKING)
    holding.held(first)
    patiently((works.folder / "begun-0").exists, "the program to begin")
    worker.kill()
    kill_each(processes_of(second))
    # when there is another server, on which the flows are deployed anew
    home = tmp_path / "anew"
    home.mkdir()
    with temporary_settings({PREFECT_API_URL: another_server.url}):
        asyncio.run(deploy())
    own = {"PREFECT_API_URL": another_server.url, "PREFECT_HOME": str(home), "PREFECT_WORKER_QUERY_SECONDS": "1"}
    anew = Worker(home, environment(**own, DISPATCH_STATE=str(home / "own-state")))
    anew.start()
    lookers: dict[str, Deployed] = {}
    try:
        for operator in (held, works):
            operator.api = another_server.url
            lookers[operator.lineage] = Deployed(operator)
            told, troubles = operator.ask(lambda operator=operator: reconcile_later(operator))
            assert troubles == []
            assert [f"takes {operator.lineage} over" in text for text in told] == [True]
        # then the one is asked about again, and the other goes on as the execution that it is
        works.release()
        patiently(lambda: works.state().finished, "the end of the job that works")
        assert works.state().finished.outcome == "succeeded"
        assert [each.n for each in works.state().submissions] == [1]
        run = patiently(
            lambda: next((each for each in held.carriers() if each != first), None), "a run of the held job"
        )
        lookers["held"].held(run)
        held.release()
        assert lookers["held"].resume(run, {"choice": "run again"})[0] == "ACCEPT"
        assert lookers["held"].reaches(run, "Completed", "Failed").state.name == "Completed"
        assert len(held.facts("hold_opened")) == 1
    finally:
        anew.close()
        for looker in lookers.values():
            looker.close()
        worker.start()
