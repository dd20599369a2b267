"""The reading of a file that is sent: once, in parts, with digests of the very bytes that are sent."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Callable, Dict, List, Optional, Tuple

from prefect_dispatch.errors import Absent
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.stores.s3_digests import Digests, md5_of, tag_of


@dataclass(frozen=True)
class Part:
    """A part of a file.

    Args:
        number: from 1.
        content: its bytes.
    """

    number: int
    content: bytes


class Reading:
    """A file on its way, from its beginning to its end. Parts are taken one after another, and tagged in any order.

    Args:
        descriptor: the open file, whose position is left alone.
        size: how many bytes it should have.
        part: the size of a part; a file of less than two is one.
        name: the file, for errors.
        moving: is called now and then while it is read.
    """

    def __init__(
        self, descriptor: int, size: int, part: int, name: str, moving: Callable[[], None] = lambda: None
    ) -> None:
        self.is_one_part = size < 2 * part
        self._descriptor = descriptor
        self._size = size
        self._part = size if self.is_one_part else part
        self._name = name
        self._moving = moving
        self._offset = 0
        self._whole = hashlib.sha256()
        self._taken = 0
        self._tags: Dict[int, bytes] = {}

    def take(self) -> Optional[Part]:
        """The next part; None behind the last one. An empty file has one that is empty.

        Raises:
            Absent: the file is shorter than it should be.
        """
        if self._taken and self._offset == self._size:
            return None
        content = self._read(min(self._part, self._size - self._offset))
        self._offset += len(content)
        self._taken += 1
        self._whole.update(content)
        return Part(self._taken, content)

    def take_only(self) -> Tuple[Part, str]:
        """The part of a file that is one part, and its MD5 as :meth:`tag` gives it.

        Raises:
            Absent: the file is shorter than it should be.
        """
        part = self.take()
        assert part is not None and self.is_one_part
        return part, self.tag(part)

    def tag(self, part: Part) -> str:
        """The MD5 of a part as a request carries it: the server refuses other bytes than these."""
        digest = self._tags[part.number] = md5_of(part.content)
        return base64.b64encode(digest).decode("ascii")

    def digests(self) -> Digests:
        """What the whole file's bytes come to. What was not taken yet is read now.

        Raises:
            Absent: the file is shorter than it should be.
        """
        while (part := self.take()) is not None:
            self.tag(part)
        tags = [self._tags[number] for number in sorted(self._tags)]
        return Digests(self._whole.hexdigest(), tag_of(tags, self.is_one_part))

    def _read(self, count: int) -> bytes:
        blocks: List[bytes] = []
        offset = self._offset
        while count:
            block = os.pread(self._descriptor, count, offset)
            if not block:
                raise Absent(f"{self._name} became shorter while it was sent")
            self._moving()
            blocks.append(block)
            offset += len(block)
            count -= len(block)
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)
