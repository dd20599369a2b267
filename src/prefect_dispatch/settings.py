"""Where this user's own files are."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Where state of this user on this machine is kept: ``$DISPATCH_STATE``, else as the XDG base directories say."""
    own = os.environ.get("DISPATCH_STATE")
    if own:
        return Path(own).absolute()
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "prefect-dispatch"
