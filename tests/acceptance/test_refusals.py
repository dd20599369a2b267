"""Runs that ask for what is not possible as things are: one sentence in their state and log, and no traceback."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prefect_dispatch.errors import LineageError
from prefect_dispatch.flows.supersede import supersede
from prefect_dispatch.flows.supervise import supervise
from prefect_dispatch.model.spec import JobSpec
from support.deployed import Deployed, patiently
from support.stray_runs import StrayRuns


@pytest.fixture
def strays(tmp_path: Path, prefect_api: str) -> StrayRuns:
    return StrayRuns(tmp_path / "runs", prefect_api)


def test_a_refusal_is_one_sentence_in_the_state_and_in_the_log(strays, prefect_api):
    # given a lineage that is open with another job
    scheduler = {"type": "local", "state_folder": f"{strays.root}-state"}
    job = JobSpec.model_validate(
        {**strays.job(), "workdir": strays.root, "scheduler": scheduler, "saves": {"kind": "marker"}}
    )
    calls: dict[str, tuple[Any, dict[str, Any]]] = {
        "prefect-dispatch supersede digits JOB": (supervise, {"job": job}),
        "scheduler.type 'scripted' is not in this version": (supersede, {"lineage": "digits", "job": job}),
        "the job is of lineage 'digits', not of 'other'": (supersede, {"lineage": "other", "job": job}),
        "no-such-store": (supervise, {"job": job.model_copy(update={"store": "checkpoint-store/no-such-store"})}),
    }
    looker = Deployed(SimpleNamespace(api=prefect_api))
    for words, (flow, parameters) in calls.items():

        async def ask(_: Any, flow: Any = flow, parameters: dict[str, Any] = parameters) -> Any:
            return await flow(**parameters, return_state=True)

        # when
        state = strays.ask(ask)
        # then the run says so in its name, and in one line what to do
        assert (state.name, state.type.value) == ("Refused", "FAILED")
        assert words in state.message and "\n" not in state.message and "encountered" not in state.message
        run = str(state.state_details.flow_run_id)
        assert looker.run(run).state.message == state.message
        # and its log has that line, and none of our code
        log = patiently(lambda run=run: text if "Refused" in (text := looker.log(run)) else "", "the log")
        assert state.message in log
        assert "Traceback" not in log and ".py" not in log, log
    looker.close()

    # and who calls the flow as a function gets the error itself
    async def call(_: Any) -> None:
        with pytest.raises(LineageError, match="prefect-dispatch supersede digits JOB"):
            await supervise(job)

    strays.ask(call)
