"""Tries: how often, and for how long, one request is made again after it failed."""

from __future__ import annotations

import random
import time
from typing import Optional

from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_errors import Failure, Meaning

_FIRST_DELAY_SECONDS = 0.1
_LONGEST_DELAY_SECONDS = 5.0


class Tries:
    """How long one request is tried again. Work of many requests takes new ones for each: what came is over.

    The time begins with the first failure. One that took as long as a request may would leave none otherwise.

    Args:
        access: whose patience it has.
    """

    def __init__(self, access: S3Access) -> None:
        self._access = access
        self._until: Optional[float] = None
        self._delay_seconds = _FIRST_DELAY_SECONDS
        self._renewed = False

    def again(self, failure: Failure, signed: Credentials) -> bool:
        """Whether to make the request again, now: after a moment, longer each time, or with other credentials.

        Args:
            failure: how it failed this time.
            signed: what it was signed with.

        Returns:
            No, at once, where the failure is an answer or the time is over.
        """
        if self._until is None:
            self._until = time.monotonic() + self._access.patience.retry.total_seconds()
        if failure.meaning is Meaning.DENIED:
            return self._may_renew(signed)
        return failure.meaning in (Meaning.UNANSWERED, Meaning.CONFLICT) and self._wait(self._until)

    def _may_renew(self, denied: Credentials) -> bool:
        """Whether other credentials have come, which is looked for once: a role has others each time."""
        if self._renewed:
            return False
        self._renewed = True
        return self._access.renew(denied)

    def _wait(self, until: float) -> bool:
        delay_seconds = self._delay_seconds * random.uniform(0.5, 1.0)
        if time.monotonic() + delay_seconds > until:
            return False
        time.sleep(delay_seconds)
        self._delay_seconds = min(2 * self._delay_seconds, _LONGEST_DELAY_SECONDS)
        return True
