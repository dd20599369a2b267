"""Patience: how long an object store is waited for."""

from __future__ import annotations

from datetime import timedelta
from typing import Mapping

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.durations import parse_duration

TIMEOUT = "DISPATCH_S3_TIMEOUT"
"""How long one request may take."""
RETRY = "DISPATCH_S3_RETRY"
"""For how long a request is tried again, from its first failure on."""


@dataclass(frozen=True)
class S3Patience:
    """How long a store is waited for.

    Args:
        request: how long one request may take.
        retry: for how long a request is tried again, from its first failure on.
    """

    request: timedelta = timedelta(seconds=30)
    retry: timedelta = timedelta(seconds=30)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> S3Patience:
        """As the environment says.

        Raises:
            UsageError: a variable is no duration.
        """
        given = {}
        for name, variable in (("request", TIMEOUT), ("retry", RETRY)):
            text = environment.get(variable, "")
            try:
                given[name] = parse_duration(text) if text else getattr(cls, name)
            except UsageError as error:
                raise UsageError(f"{variable}: {error}") from None
        if not given["request"]:
            raise UsageError(f"{TIMEOUT} is no time at all; give at least a second")
        return cls(**given)
