"""Prefect flows."""

from prefect_dispatch.flows.poll_cessation import poll_cessation
from prefect_dispatch.flows.reconcile import reconcile
from prefect_dispatch.flows.supersede import supersede
from prefect_dispatch.flows.supervise import supervise

__all__ = ["poll_cessation", "reconcile", "supersede", "supervise"]
