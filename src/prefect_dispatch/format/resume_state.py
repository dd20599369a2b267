"""The resume state: a short text that a program gives to a save and finds again when it resumes."""

from __future__ import annotations

from prefect_dispatch.errors import UsageError

MAX_STATE_BYTES = 64 * 1024
"""The longest resume state, in bytes of UTF-8: it travels in one environment variable, which Linux caps at 128 KiB."""


def check_state(state: str) -> str:
    """Return the state if a save can have it.

    Raises:
        UsageError: it is not UTF-8, contains NUL, or is longer than 64 KiB.
    """
    if "\0" in state:
        raise UsageError("the state contains NUL, which an environment variable cannot hold; give other text")
    try:
        size = len(state.encode("utf-8"))
    except UnicodeEncodeError:
        raise UsageError("the state cannot be written as UTF-8; give other text") from None
    if size > MAX_STATE_BYTES:
        most = MAX_STATE_BYTES
        raise UsageError(f"the state has {size} bytes and may have {most}; put the rest into a file of the save")
    return state
