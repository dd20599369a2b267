"""Prefect flows that run long, preemptible jobs to their end. Light: the helper inside the job imports it too."""

from __future__ import annotations

__version__ = "0.1.0"
