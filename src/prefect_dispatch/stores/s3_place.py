"""A place in an object store: bucket and prefix of a root, and the key of every path in it."""

from __future__ import annotations

import re
from typing import Sequence

from prefect_dispatch.errors import MalformedName, StoreError, UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.printable import printable
from prefect_dispatch.stores.folder import check_name, split_path

SCHEME = "s3://"
MAX_KEY_BYTES = 1024
"""The longest key that S3 takes, in bytes of UTF-8."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_QUOTED = re.compile("[\0-\x1f\\\\?~\x7f-\x9f\ufffe\uffff]")
"""What does not come through every client, server and listing: control characters, what XML cannot hold, a backslash,
which some servers take for '/', a question mark, behind which s3fs looks for a version, and the mark itself."""


@dataclass(frozen=True)
class S3Place:
    """The root of a store in a bucket.

    Args:
        bucket: the bucket.
        prefix: what the keys of the root begin with, without '/' at its ends; empty for the whole bucket.
    """

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, url: str) -> S3Place:
        """Read a URL ``s3://bucket/prefix``.

        Raises:
            UsageError: it is not one.
        """
        bucket, _, prefix = url[len(SCHEME) :].partition("/")
        parts = [part for part in prefix.rstrip("/").split("/") if prefix.rstrip("/")]
        if not url.startswith(SCHEME) or not _BUCKET.match(bucket):
            raise UsageError(
                f"root {printable(url)!r} is no s3://BUCKET/PREFIX; a bucket has 3 to 63 of a-z, 0-9, . and -"
            )
        for part in parts:
            try:
                check_name(part)
            except StoreError as error:
                raise UsageError(f"root {printable(url)!r}: {error}") from None
            if _QUOTED.search(part.replace("~", "")):
                raise UsageError(
                    f"root {printable(url)!r} has a part {printable(part)!r}; use letters, digits, . _ and -"
                )
        return cls(bucket, "/".join(parts))

    @property
    def url(self) -> str:
        """The root as people write it."""
        return f"{SCHEME}{self.bucket}/{self.prefix}" if self.prefix else f"{SCHEME}{self.bucket}"

    def key(self, path: str) -> str:
        """The key of a path in this root.

        Raises:
            StoreError: the path could leave the root, or the key would be longer than S3 takes.
        """
        return check_key(self.join([quote(part) for part in split_path(path)]), self.url)

    def join(self, parts: Sequence[str]) -> str:
        """Parts of a key, already quoted, behind the root's prefix."""
        return "/".join([self.prefix, *parts] if self.prefix else parts)


def check_key(key: str, where: str) -> str:
    """Return a key that S3 takes.

    Raises:
        StoreError: it is too long.
    """
    if len(key) * 4 > MAX_KEY_BYTES and len(key.encode("utf-8")) > MAX_KEY_BYTES:
        raise StoreError(
            f"{printable(key, 200)} in {where} has a key of more than {MAX_KEY_BYTES} bytes, which S3 does not take; "
            "shorten it"
        )
    return key


def quote(name: str) -> str:
    """A name of a path as a part of a key; what not every server keeps is written ``~`` and two digits for each byte.

    The mark is the greatest printable character of ASCII: a name that is all printable ASCII and needs no quoting has
    no quoted one before it in a listing that would be behind it by its own bytes.
    """
    return _QUOTED.sub(lambda found: "".join(f"~{byte:02X}" for byte in found.group().encode("utf-8")), name)


def unquote(part: str) -> str:
    """The name that a part of a key stands for.

    Raises:
        MalformedName: it is the key of no name.
    """
    if "~" not in part:
        return part
    first, *pieces = part.split("~")
    try:
        raw = first.encode("utf-8") + b"".join(
            bytes([int(piece[:2], 16)]) + piece[2:].encode("utf-8") for piece in pieces
        )
        name = raw.decode("utf-8")
    except ValueError:
        name = ""
    if quote(name) != part:
        raise MalformedName(f"key {printable(part)!r} is of no name; find out who wrote it, then move it away")
    return name


def is_plain(name: str) -> bool:
    """Whether all names behind this one, by their bytes, are behind it in a listing of keys too."""
    return name.isascii() and not _QUOTED.search(name)
