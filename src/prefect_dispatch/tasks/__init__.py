"""Prefect tasks: thin, each takes its port first."""

from prefect_dispatch.tasks.execute import execute
from prefect_dispatch.tasks.supersede import supersede

__all__ = ["execute", "supersede"]
