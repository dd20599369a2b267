"""The conformance suite of schedulers over a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefect_dispatch.testing.scheduler_case import SchedulerCase
from prefect_dispatch.testing.scheduler_conformance import SchedulerConformance
from slurm_cluster.case import SlurmCase
from slurm_cluster.cluster import Cluster


class TestSlurm(SchedulerConformance):
    @pytest.fixture
    async def case(self, slurm: Cluster, tmp_path: Path) -> SchedulerCase:
        return SlurmCase(slurm, tmp_path)
