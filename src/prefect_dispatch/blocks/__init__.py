"""Prefect blocks. Importing this registers them; Prefect does so through the entry point ``prefect.collections``."""

from prefect_dispatch.blocks.checkpoint_store import CheckpointStore
from prefect_dispatch.blocks.command_signal import CommandSignal
from prefect_dispatch.blocks.local_scheduler import LocalScheduler
from prefect_dispatch.blocks.slurm_scheduler import SlurmScheduler

__all__ = ["CheckpointStore", "CommandSignal", "LocalScheduler", "SlurmScheduler"]
