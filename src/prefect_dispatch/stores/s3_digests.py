"""Digests of a file, and the proof by them that an object has its bytes."""

from __future__ import annotations

import hashlib
import os
from typing import Callable, Iterable, Optional

from prefect_dispatch.format.dataclass import dataclass

_BLOCK = 2**20


@dataclass(frozen=True)
class Digests:
    """What a file's bytes come to.

    Args:
        sha256: in hexadecimal digits.
        tag: the tag that a server gives an object which was sent in these parts, where it does not encrypt it with a
            key of somebody else's: the md5 of the bytes, or of the parts' md5 and how many there are
            (https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html). Empty where
            it was not asked for.
    """

    sha256: str
    tag: str


def digests_of(descriptor: int, size: int, part: int, moving: Callable[[], None] = lambda: None) -> Optional[Digests]:
    """Read a file from its beginning and return its digests; None where it has another size by now.

    Args:
        descriptor: the open file, whose position is left alone.
        size: how many bytes it should have.
        part: the size of the parts that it is sent in; 0 for no tag.
        moving: is called now and then while it is read.
    """
    whole = hashlib.sha256()
    in_one = part == 0 or size < 2 * part
    tags = [_md5()]
    offset = 0
    while offset <= size:
        most = _BLOCK if in_one else min(_BLOCK, part - offset % part)
        block = os.pread(descriptor, most, offset)
        if not block:
            break
        moving()
        whole.update(block)
        if part:
            if not in_one and offset and offset % part == 0:
                tags.append(_md5())
            tags[-1].update(block)
        offset += len(block)
    if offset != size:
        return None
    if not part:
        return Digests(whole.hexdigest(), "")
    if in_one:
        return Digests(whole.hexdigest(), tags[0].hexdigest())
    together = _md5(b"".join(tag.digest() for tag in tags)).hexdigest()
    return Digests(whole.hexdigest(), f"{together}-{len(tags)}")


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


def _md5(content: bytes = b"") -> "hashlib._Hash":
    return hashlib.md5(content, usedforsecurity=False)
