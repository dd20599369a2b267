"""The form of a job in Prefect's UI and API takes what the model takes, in every way of writing it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import ValidationError, validate

from prefect_dispatch.flows.supervise import supervise
from prefect_dispatch.model.causes import Action, Cause
from prefect_dispatch.model.recovery import FIXED, Rule
from prefect_dispatch.model.spec import JobSpec

TREE = Path(__file__).resolve().parents[2]
BARE = {"lineage": "digits", "command": ["python", "train.py"]}


@pytest.fixture(scope="module")
def schema():
    return parameter_schema(supervise).model_dump()


def check(schema, **fields):
    """Validate as a Prefect server does when a run is created; returns what the model makes of it."""
    job = {**BARE, **fields}
    validate({"job": job}, schema, raise_on_error=True, ignore_required=True)
    return JobSpec.model_validate(job)


WAYS = [
    {"shared_checkpoint": True, "hold_for": "2d"},
    {"recovery": {"preempted": {"action": "requeue", "budget": 100}, "failed": {"action": "hold"}, "no_progress": 3}},
    {"recovery": {"rules": {"preempted": {"action": "requeue", "budget": 100}}, "no_progress": None}},
    {"recovery": {"vanished": {"action": "resubmit", "budget": 2, "delay": 30, "backoff": 1.5, "max": "1h"}}},
    {"recovery": {"final_exit_codes": [3, 7]}},
    {"command": ["python", "train.py", "--epochs", 40, 0.1]},
    {"environment": {"OMP_NUM_THREADS": 4, "NAME": "x"}},
    {"watch_interval": 2.5, "max_pending": 3600},
    {"watch_interval": "2min", "max_pending": "PT1H"},
    {"resources": {"cpus": 4, "memory": "16GiB", "time_limit": 7200, "options": {"nice": 5}}},
    {"resources": {"memory": 1024, "time_limit": "2h"}},
    {"saves": {"kind": "settle", "pattern": "*.pt", "settle": 30}},
    {"checkpoint_cancelation": {"mode": "notify_then_terminate", "signal": "SIGUSR1", "notify_period": 60}},
    {"identity": {"seed": 7, "rate": 0.1, "data": "digits", "augmented": True}},
    {"store": {"root": "runs"}, "scheduler": {"type": "local", "slots": 2, "linger": "60s"}},
    {"store": "checkpoint-store/default", "scheduler": "local-scheduler/default"},
    {"shared_checkpoint": False, "on_finished": "refuse", "cancelation": {"mode": "terminate"}},
]


@pytest.mark.parametrize("fields", WAYS, ids=lambda fields: "+".join(fields))
def test_what_the_model_takes_the_form_takes(schema, fields):
    check(schema, **fields)


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in FIXED])
def test_every_cause_may_stand_beside_the_limits(schema, cause):
    spec = check(schema, recovery={cause.value: {"action": "hold"}})
    assert spec.recovery.rule(cause).action == "hold"


@pytest.mark.parametrize(
    "fields",
    [
        {"recovery": {"premepted": {"action": "hold"}}},
        {"recovery": {"completed": {"action": "hold"}}},
        {"recovery": {"preempted": {"action": "pray"}}},
        {"watch_interval": True},
    ],
    ids=str,
)
def test_what_the_model_refuses_by_name_the_form_refuses(schema, fields):
    with pytest.raises(ValidationError):
        check(schema, **fields)


def test_what_the_form_sends_for_what_nobody_has_filled_in_is_the_default(schema):
    # given what the UI makes of the schema: a value for each field that has a default, and for each cause
    definitions = schema["definitions"]
    untouched = {
        name: field["default"] for name, field in definitions["JobSpec"]["properties"].items() if "default" in field
    }
    rules = {cause.value: None for cause in Cause if cause not in FIXED}
    # when
    spec = check(schema, **{**untouched, "recovery": {**untouched["recovery"], **rules}})
    one_rule = check(schema, recovery={**untouched["recovery"], **rules, "failed": {"action": "hold"}})
    # then
    assert spec == JobSpec.model_validate(BARE)
    assert one_rule.recovery.rules == {Cause.FAILED: Rule(action=Action.HOLD)}
    # and no field needs JSON for its texts
    words, _ = definitions["JobSpec"]["properties"]["command"]["anyOf"]
    assert words["items"] == {"type": "string"}


def written_jobs() -> list:
    """Every whole job that the documents and examples show."""
    if not (TREE / "README.md").exists():
        return []
    texts = {path.name: path.read_text() for path in (TREE / "examples").glob("*.yaml")}
    for path in (TREE / "README.md", *(TREE / "docs").glob("*.md")):
        for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", path.read_text(), re.S)):
            texts[f"{path.name}-{number}"] = text
    documents = {name: yaml.safe_load(text) for name, text in texts.items()}
    jobs = {
        name: each for name, each in documents.items() if isinstance(each, dict) and {"lineage", "command"} <= set(each)
    }
    return [pytest.param(job, id=name) for name, job in jobs.items()]


@pytest.mark.parametrize("job", written_jobs())
def test_every_job_that_is_written_anywhere_fits_the_form(schema, job):
    check(schema, **job)


def test_the_first_job_of_the_readme_is_among_them():
    assert not (TREE / "README.md").exists() or any("README" in job.id for job in written_jobs())
