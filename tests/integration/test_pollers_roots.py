"""Where pollers look: every writing of a root is that root, and what is wrong with one hides nothing of the others."""

from __future__ import annotations

import pytest

from prefect_dispatch.blocks.record_roots import inline_root, record_root_of
from prefect_dispatch.errors import StoreError
from prefect_dispatch.flows.poll_report import PollReport
from prefect_dispatch.flows.reconciling import Reconciling
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_record
from prefect_dispatch.testing.plain_opening import plain_opening


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/data/runs/", "/data/runs"),
        ("/data/./runs", "/data/runs"),
        ("s3://bucket/runs/", "s3://bucket/runs"),
    ],
)
async def test_every_writing_of_a_root_is_looked_after(written, meant):
    assert inline_root({"store": {"root": written}}) == meant
    assert inline_root({"store": {"root": "/elsewhere", "record_root": written}}) == meant
    assert await record_root_of(written) == meant


@pytest.mark.parametrize("root", ["runs", "gs://bucket/runs", "s3://", 7, None])
def test_what_is_no_root_is_none(root):
    assert inline_root({"store": {"root": root}}) is None


@pytest.fixture
def runs(tmp_path):
    opening = plain_opening().model_copy(update={"record_root": str(tmp_path / "runs")})
    open_record(str(tmp_path / "runs"), "digits", SystemClock()).append(opening)
    return tmp_path / "runs"


def reconciling(report: PollReport) -> Reconciling:
    return Reconciling(None, "supervise/held", SystemClock(), report)


async def test_a_name_in_the_index_that_is_no_lineage_s_hides_none(runs):
    # given what a file manager leaves
    (runs / ".dispatch" / "open" / ".DS_Store").touch()
    report = PollReport()
    work = reconciling(report)
    # when
    await work.add(str(runs))
    # then
    assert work.count == 1
    (trouble,) = report.troubles
    assert f"{runs}/.dispatch/open/.DS_Store is no lineage's name" in trouble and "remove it" in trouble


async def test_a_store_whose_signs_of_life_cannot_be_read_is_not_half_looked_after(runs):
    # given
    (runs / ".dispatch" / "beats").write_text("a file")
    work = reconciling(PollReport())
    # when
    with pytest.raises(StoreError, match="beats"):
        await work.add(str(runs))
    # then
    assert work.count == 0
