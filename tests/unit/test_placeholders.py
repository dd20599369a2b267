"""Placeholders in the name of a lineage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from prefect.client.schemas.objects import FlowRun

from prefect_dispatch.cli.job_file import read_job
from prefect_dispatch.errors import SpecError, UsageError
from prefect_dispatch.model.placeholders import check_name, fill
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.tasks.naming import lineage_name, named

RUN = "8b5f7a3e-1c7e-4d7e-9d8b-0a1b2c3d4e5f"
LATE = datetime(2026, 3, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize("name", ["nightly-{date}", "{date}", "x-{flow_run_id}", "{flow_run_id}", "digits"])
def test_a_name_that_becomes_a_lineages_is_taken(name):
    assert check_name(name) == name
    assert JobSpec(lineage=name, command=("true",)).lineage == name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("x-{day}", "{day}; the placeholders are {date} and {flow_run_id}"),
        ("-{date}", "becomes a name such as '-2026-01-31'"),
        ("nightly-{flow_run_id}", "becomes a name such as 'nightly-00000000"),
        ("Nightly-{date}", "is not a lineage name"),
        ("{date", "is not a lineage name"),
    ],
)
def test_one_that_does_not_is_refused_with_the_reason(name, told):
    with pytest.raises(UsageError) as refused:
        check_name(name)
    assert told in str(refused.value)


def test_the_day_is_that_of_the_run_in_utc_however_often_it_is_started():
    # given a run that a schedule has planned for the first minutes of a day east of Greenwich
    job = JobSpec(lineage="nightly-{date}", command=("true",))
    parameters = {"job": {"lineage": "nightly-{date}"}}
    run = FlowRun(id=UUID(RUN), flow_id=UUID(RUN), expected_start_time=LATE, parameters=parameters)
    # then
    assert named(job, run).lineage == "nightly-2026-02-28"
    assert lineage_name(run) == "nightly-2026-02-28"
    assert named(job.model_copy(update={"lineage": "x-{flow_run_id}"}), run).lineage == f"x-{RUN}"
    assert named(named(job, run), run) == named(job, run)


def test_without_a_flow_run_there_is_none_to_name_a_lineage_by():
    assert fill("{date}", LATE, None) == "2026-02-28"
    with pytest.raises(SpecError, match="no flow run opens it here"):
        fill("x-{flow_run_id}", LATE, None)


def test_a_job_file_means_the_present_day(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("{lineage: 'nightly-{date}', command: ['true']}")
    before = datetime.now(UTC).date()
    lineage = read_job(file).lineage
    assert lineage in {f"nightly-{before}", f"nightly-{datetime.now(UTC).date()}"}
