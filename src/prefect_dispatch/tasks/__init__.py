"""Prefect tasks: thin, each takes its port first."""

from prefect_dispatch.tasks.execute import execute

__all__ = ["execute"]
