"""The environment of the processes that tests start."""

from __future__ import annotations

import os


def environment_without(*prefixes: str) -> dict[str, str]:
    """Our own environment but for the variables that begin with one of these: whoever runs the tests may be a job."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
