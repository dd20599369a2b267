"""The conformance suite of schedulers over a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefect_dispatch.testing.scheduler_case import SchedulerCase
from prefect_dispatch.testing.scheduler_conformance import SchedulerConformance
from slurm_cluster.case import SlurmCase
from slurm_cluster.cluster import Cluster
from support.full_form import FULL

needs_patience = pytest.mark.skipif(not FULL, reason="long; DISPATCH_TESTS=full runs it")


class TestSlurm(SchedulerConformance):
    @pytest.fixture
    async def case(self, slurm: Cluster, tmp_path: Path) -> SchedulerCase:
        return SlurmCase(slurm, tmp_path)

    @needs_patience
    async def test_an_outage_is_an_error_and_no_answer(self, case: SchedulerCase) -> None:
        """Each call waits for as long as it may."""
        await super().test_an_outage_is_an_error_and_no_answer(case)

    @needs_patience
    async def test_a_purged_object_is_found_or_ambiguous(self, case: SchedulerCase) -> None:
        """The controller takes MinJobAge, a minute here, and a while."""
        await super().test_a_purged_object_is_found_or_ambiguous(case)
