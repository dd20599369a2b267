"""Tries: how often, and for how long, one request is made again after it failed."""

from __future__ import annotations

import random
import time

from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_errors import Failure, Meaning

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0


class Tries:
    """How long one request is tried again.

    Args:
        access: whose patience it has.
    """

    def __init__(self, access: S3Access) -> None:
        self._access = access
        self._until = time.monotonic() + access.patience.retry.total_seconds()
        self._delay = _FIRST_DELAY
        self._renewed = False

    def again(self, failure: Failure) -> bool:
        """Whether to make the request again, now: after a moment, longer each time, or with other credentials.

        Args:
            failure: how it failed this time.

        Returns:
            No, at once, where the failure is an answer or the time is over.
        """
        if failure.meaning is Meaning.DENIED:
            return self._may_renew()
        return failure.meaning in (Meaning.UNANSWERED, Meaning.CONFLICT) and self._wait()

    def _may_renew(self) -> bool:
        """Whether other credentials have come, which is looked for once."""
        if self._renewed:
            return False
        self._renewed = True
        return self._access.renew()

    def _wait(self) -> bool:
        delay = self._delay * random.uniform(0.5, 1.0)
        if time.monotonic() + delay > self._until:
            return False
        time.sleep(delay)
        self._delay = min(2 * self._delay, _LONGEST_DELAY)
        return True
