"""Prefect flows."""

from prefect_dispatch.flows.supervise import supervise

__all__ = ["supervise"]
