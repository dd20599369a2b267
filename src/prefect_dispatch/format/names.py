"""Names that other parts are built from: lineages, tokens, attempts, base32 parts, and paths inside a root."""

from __future__ import annotations

import os

from prefect_dispatch.errors import MalformedName, UsageError
from prefect_dispatch.format.epoch import check_restart
from prefect_dispatch.format.pattern import pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Tuple

MAX_PATH_BYTES = 133
"""The longest path, in bytes of UTF-8, whose publication name fits in the 255 bytes of a file name."""

# These are asked for at every start, where to compile an expression for each would be a tenth of what a start costs.
_LINEAGE_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-"
_MAX_LINEAGE = 40
_TOKEN_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_TOKEN_LENGTH = 16
_MAX_RESTART_DIGITS = 6
_BASE32_DIGITS = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", "0123456789abcdefghijklmnopqrstuv")
_BASE32 = pattern(r"[A-Z2-7]+\Z")


def check_lineage(name: str) -> str:
    """Return the name if it can be a lineage's.

    Raises:
        UsageError: it cannot.
    """
    if not (
        isinstance(name, str)
        and 0 < len(name) <= _MAX_LINEAGE
        and _consists_of(name, _LINEAGE_LETTERS)
        and not (name.startswith("-") or name.endswith("-"))
    ):
        raise UsageError(
            f"lineage {name!r} is not a lineage name; use 1 to 40 of a-z, 0-9 and '-', not beginning or ending with '-'"
        )
    return name


def new_token() -> str:
    """Make a submission's token: 16 lower-case base32 characters (80 bits) from the system's chance."""
    return _encode(random_bytes(10)).lower()


def new_nonce() -> str:
    """Make the mark by which a writer recognises its own document when it reads it back."""
    return random_bytes(8).hex()


def new_record_id() -> str:
    """Make the id by which a record and a root know each other: 32 hexadecimal digits (128 bits)."""
    return random_bytes(16).hex()


def random_bytes(count: int) -> bytes:
    """All chance there is in names, from one place, so that a simulation can seed it.

    From ``os.urandom``, which ``secrets`` is made of: importing that takes longer than all else that a start writes.
    """
    return os.urandom(count)


def check_token(token: str) -> str:
    """Return the token if it is one.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(token, str) or not _is_token(token):
        raise UsageError(f"token {token!r} is not 16 characters of a-z and 2-7")
    return token


def attempt_of(token: str, restart: int) -> str:
    """The attempt of one execution: its submission's token and the restart, ``k3v7q2m5x4c6b7a2-0``.

    Raises:
        UsageError: the token is not one, or the restart is out of its range.
    """
    return f"{check_token(token)}-{check_restart(restart)}"


def split_attempt(attempt: str) -> Tuple[str, int]:
    """Split an attempt into token and restart.

    Raises:
        MalformedName: it is not an attempt.
    """
    token, _, text = attempt.partition("-")
    restart = read_restart(text)
    if restart is None or not _is_token(token):
        raise MalformedName(f"attempt {attempt!r} is not 16 characters of a-z and 2-7, a '-' and a restart number")
    return token, restart


def read_restart(text: str) -> Optional[int]:
    """A restart as names and environments have it: 0 to 999999, in its one spelling. None for anything else."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_RESTART_DIGITS
    return int(text) if is_number and (text == "0" or not text.startswith("0")) else None


def encode_part(text: str) -> str:
    """Write text as base32 without padding: one case, no '-', so that a name splits one way only."""
    return _encode(text.encode("utf-8"))


def decode_part(part: str) -> str:
    """Read what :func:`encode_part` wrote.

    Raises:
        MalformedName: it is not base32, not the one spelling of its bytes, or not UTF-8.
    """
    if not _BASE32.match(part):
        raise MalformedName(f"{part!r} is not base32 (A-Z, 2-7, no padding)")
    # Roots hold 100,000 names, and the standard library decodes base32 in Python; a number to base 32 is read in C.
    size, left_over = divmod(len(part) * 5, 8)
    number = int(part.translate(_BASE32_DIGITS), 32)
    if left_over >= 5 or number & ((1 << left_over) - 1):
        raise MalformedName(f"{part!r} is not the one base32 spelling of any bytes")
    try:
        return (number >> left_over).to_bytes(size, "big").decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedName(f"{part!r} is not base32 of UTF-8 text") from None


def check_path(path: str) -> str:
    """Return a path inside a lineage's root if a publication can name it.

    A path is relative and normalised, with '/' between its parts, none of which is empty, '.' or '..', without NUL,
    and at most 133 bytes of UTF-8.

    Raises:
        UsageError: it is not such a path.
    """
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        raise UsageError(f"path {path!r} is not UTF-8; rename the save") from None
    if size > MAX_PATH_BYTES:
        raise UsageError(
            f"path {path!r} has {size} bytes and a publication's name holds at most {MAX_PATH_BYTES}; "
            "shorten the save's name"
        )
    if "\0" in path:
        raise UsageError(f"path {path!r} contains NUL; rename the save")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise UsageError(
            f"path {path!r} is not relative and normalised; give it without '.', '..', '//' or a leading '/'"
        )
    return path


def _is_token(text: str) -> bool:
    return len(text) == _TOKEN_LENGTH and _consists_of(text, _TOKEN_LETTERS)


def _consists_of(text: str, letters: str) -> bool:
    """Whether a text has no other letters than these."""
    return not text.strip(letters)


def _encode(data: bytes) -> str:
    import base64  # Not in every command, and it brings others along.

    return base64.b32encode(data).decode("ascii").rstrip("=")
