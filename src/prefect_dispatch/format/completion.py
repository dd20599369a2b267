"""The completion: a name of ``done/`` that says which part of the work one execution has finished."""

from __future__ import annotations

from functools import lru_cache

from prefect_dispatch.errors import MalformedName, UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import decode_part, encode_part
from prefect_dispatch.format.printable import printable, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple

MAX_KEY_BYTES = 146
"""The longest key, in bytes of UTF-8, whose completion's name fits in the 255 bytes of a file name."""

_parse_epoch = lru_cache(maxsize=1024)(Epoch.parse)  # Thousands of parts share a few epochs.


@dataclass(frozen=True)
class Completion:
    """One name of ``done/``: ``<base32 of the key>-<epoch, 20 digits>``.

    Args:
        key: the part that is finished, such as a shard or a task of a chunk; 1 to 146 bytes of UTF-8 without NUL.
        epoch: the execution that finished it.

    Raises:
        UsageError: the key cannot be one.

    Example:
        >>> Completion("frame-12", Epoch(0, 1, 0)).name
        'MZZGC3LFFUYTE-00000000000001000000'
    """

    key: str
    epoch: Epoch

    def __post_init__(self) -> None:
        check_key(self.key)

    @classmethod
    def parse(cls, name: str) -> Completion:
        """Read a name of ``done/``.

        Raises:
            MalformedName: it is not a completion's name.
        """
        part, _, digits = name.partition("-")
        try:
            return cls(decode_part(part), _parse_epoch(digits))
        except (MalformedName, UsageError) as error:
            raise MalformedName(
                f"done/{printable(name)} is not a completion's name: {error}; find out who wrote it, then move it away"
            ) from None

    @property
    def name(self) -> str:
        """The name in ``done/``, at most 255 bytes."""
        return f"{encode_part(self.key)}-{self.epoch.digits}"

    @property
    def order(self) -> Tuple[bytes, int]:
        """What completions are ordered by: the key's bytes, then the epoch; base32 sorts otherwise."""
        return (self.key.encode("utf-8"), self.epoch.number)


def check_key(key: str) -> str:
    """Return a part's key if a completion can name it.

    Raises:
        UsageError: it is empty, not UTF-8, contains NUL, or has more than 146 bytes.
    """
    try:
        size = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        raise UsageError(f"key {shorten(key)} is not UTF-8; name the part otherwise") from None
    if size > MAX_KEY_BYTES:
        raise UsageError(
            f"key {shorten(key)} has {size} bytes and a completion's name holds at most {MAX_KEY_BYTES}; "
            "give the part a shorter key"
        )
    if not key or "\0" in key:
        raise UsageError(f"key {shorten(key)} is empty or contains NUL; give each part a key of its own")
    return key
