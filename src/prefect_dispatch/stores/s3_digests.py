"""Digests of a file, and the proof by them that an object has its bytes."""

from __future__ import annotations

import hashlib
import os
from typing import Callable, Iterable, Sequence

from prefect_dispatch.format.dataclass import dataclass

_BLOCK = 2**20


@dataclass(frozen=True)
class Digests:
    """What a file's bytes come to.

    Args:
        sha256: in hexadecimal digits.
        tag: the tag that a server gives an object which was sent in these parts, where it does not encrypt it with a
            key of somebody else's, see :func:`tag_of`.
    """

    sha256: str
    tag: str


def sha256_of(descriptor: int, moving: Callable[[], None] = lambda: None) -> str:
    """Read a file from its beginning to its end and return its SHA-256.

    Args:
        descriptor: the open file, whose position is left alone.
        moving: is called now and then while it is read.
    """
    whole = hashlib.sha256()
    offset = 0
    while block := os.pread(descriptor, _BLOCK, offset):
        moving()
        whole.update(block)
        offset += len(block)
    return whole.hexdigest()


def md5_of(content: bytes) -> bytes:
    """The MD5 of a part: no secret, but what servers compare a part with."""
    return hashlib.md5(content, usedforsecurity=False).digest()


def tag_of(parts: Sequence[bytes], sent_whole: bool) -> str:
    """The tag that a server gives an object: the MD5 of its bytes, or of its parts' MD5 and how many there are.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html

    Args:
        parts: the MD5 of each part.
        sent_whole: whether the only part was sent as the object itself.
    """
    return parts[0].hex() if sent_whole else f"{md5_of(b''.join(parts)).hex()}-{len(parts)}"


def prove(tag: str, digests: Digests, read: Callable[[], Iterable[bytes]]) -> bool:
    """Whether an object has the bytes of these digests: by its tag; where that is another, by reading it back.

    Args:
        tag: the server's tag of the object.
        digests: of the file.
        read: reads the object.
    """
    if tag == digests.tag:
        return True
    whole = hashlib.sha256()
    for chunk in read():
        whole.update(chunk)
    return whole.hexdigest() == digests.sha256
