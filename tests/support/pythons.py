"""Other Pythons that this machine has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def python_of(version: str) -> str | None:
    """The path of a Python of a version such as ``3.9``, on PATH or among pyenv's; None where there is none."""
    installed = Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
    candidates = [shutil.which(f"python{version}"), *map(str, installed)]
    return next((path for path in candidates if path and _is(path, version)), None)


def _is(python: str, version: str) -> bool:
    """pyenv puts a stand-in on PATH that only says that the version is not chosen."""
    shown = subprocess.run([python, "--version"], capture_output=True, text=True)
    return shown.returncode == 0 and shown.stdout.startswith(f"Python {version}.")
