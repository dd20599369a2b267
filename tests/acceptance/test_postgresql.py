"""A Prefect server on PostgreSQL: one job from its form to its end, through every kind of query that is made."""

from __future__ import annotations

import asyncio

from prefect.settings import PREFECT_API_URL, temporary_settings

from acceptance.conftest import Operator, PrefectServer
from support.deployed import Deployed, Worker, deploy, patiently, poll, reconcile


def test_a_held_job_whose_run_is_lost_is_taken_over_and_answered(tmp_path, database, environment):
    # given a server on PostgreSQL with a worker of its own, and a held job
    url, home, folder = database.create(), tmp_path / "server", tmp_path / "bench"
    for each in (home, folder):
        each.mkdir()
    server = PrefectServer(home, url)
    server.start()
    with temporary_settings({PREFECT_API_URL: server.url}):
        asyncio.run(deploy())
    own = {"PREFECT_API_URL": server.url, "PREFECT_HOME": str(home), "PREFECT_WORKER_QUERY_SECONDS": "1"}
    worker = Worker(home, environment(**own, DISPATCH_STATE=str(home / "own-state")))
    worker.start()
    operator = Operator(folder, server.url)
    deployed = Deployed(operator)
    try:
        first = deployed.start()
        deployed.held(first)
        # when nothing is to be done, when its run was cancelled by Prefect for nobody, and when one looks again
        quiet = [look(operator).stdout.strip() for look in (poll, reconcile)]
        nobodys = "Deployment 7 no longer exists, cancelled run."
        state = {"type": "CANCELLED", "name": "Cancelled", "message": nobodys}
        deployed.ask("POST", f"/flow_runs/{first}/set_state", state=state, force=True)
        looked = [reconcile(operator), reconcile(operator)]
        # then it is taken over once, and asked about again
        assert quiet == ["1 holds in 1 stores", "1 open lineages in 1 stores"]
        assert ["takes digits over" in each.stdout for each in looked] == [True, False], looked[0].stderr
        second = patiently(lambda: next((each for each in operator.carriers() if each != first), None), "an adopter")
        assert {"held", "adopter", "lineage:digits"} <= set(deployed.held(second).tags)
        operator.release()
        assert deployed.resume(second, {"choice": "run again", "name": "ada"})[0] == "ACCEPT"
        # then it ends, and it is PostgreSQL that knows
        assert deployed.reaches(second, "Completed", "Failed").state.name == "Completed"
        assert database.ask(url, f"select state_name from flow_run where id = '{second}'") == "Completed"
    finally:
        deployed.close()
        worker.close()
        operator.close()
        server.stop()
