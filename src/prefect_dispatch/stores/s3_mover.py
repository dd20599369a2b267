"""The mover: saves between this machine and a bucket, in parallel and in parts, each file verified by its bytes.

What is uploaded is created and never written over. What is downloaded is compared with what the manifest says of it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import os
import threading
from functools import partial
from typing import Any, Awaitable, Callable, Iterator, List, Optional, Sequence, Tuple

from prefect_dispatch.errors import Absent, Exists, StoreError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_digests import Digests, prove, sha256_of
from prefect_dispatch.stores.s3_errors import Garbled, Meaning, failure_of
from prefect_dispatch.stores.s3_progress import Progress
from prefect_dispatch.stores.s3_reading import Reading
from prefect_dispatch.stores.s3_requests import S3Requests
from prefect_dispatch.stores.s3_tries import Tries
from prefect_dispatch.stores.s3_upload import Request, send
from prefect_dispatch.stores.transfer import Direction, Report, Transfer

PART = 16 * 2**20
"""The size of a part of a large file; larger where it would have more parts than S3 takes."""
MOST_PARTS = 10_000
_PARTS_AT_ONCE = 4
_LARGE = 2 * PART
_SMALL_AT_ONCE = 8
"""Small files that are moved side by side; of large ones it is one at a time, in parts that are side by side."""
_STALLED = 10
"""For how many times the patience of one request a transfer may stand still."""
_TICK_SECONDS = 0.5
_END_SECONDS = 10.0
"""For how long what was given up is waited for: until then it may still write here."""
_OWN_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ENAMETOOLONG)
"""What no connection to a server fails with: the disk under a file that is read or written here does."""

Opened = Callable[[], int]
"""Opens a file of a save for reading."""


class S3Mover:
    """Moves the files of saves.

    Args:
        requests: asks the bucket, and knows its access.
    """

    def __init__(self, requests: S3Requests) -> None:
        self._requests = requests
        self._bucket = requests.bucket
        self._stall_seconds = _STALLED * requests.bucket.access.patience.request.total_seconds()

    def upload(
        self, path: str, sources: Sequence[Tuple[SavedFile, str, Opened]], report: Report
    ) -> Tuple[SavedFile, ...]:
        """Send the files of a save, each to its key, and return their entries with their digests.

        Args:
            path: the save, for reports.
            sources: each file's entry, its key, and what opens it.
            report: is told how far it is.

        Raises:
            Exists: other bytes have one of the keys.
            Absent: a file is gone, or changed while it was sent.
            StoreError: the server failed; what arrived is nowhere taken for a save.
        """
        progress = Progress(Transfer(Direction.UPLOAD, path, 0, sum(file.size for file, _, _ in sources)), report)

        async def send(file: SavedFile, key: str, opened: Opened) -> SavedFile:
            descriptor = opened()
            try:
                return await self._send(descriptor, file, key, progress)
            finally:
                os.close(descriptor)

        works = [(file.size, partial(send, file, key, opened)) for file, key, opened in sources]
        return tuple(self._run(works, progress))

    def download(self, path: str, targets: Sequence[Tuple[SavedFile, str, str]], report: Report) -> None:
        """Fetch the files of a save.

        Args:
            path: the save, for reports.
            targets: each file's entry, its key, and the file that it becomes, in a folder that nobody else writes to.
            report: is told how far it is.

        Raises:
            Absent: an object is not there, or is not what its entry says.
            StoreError: the server failed.
        """
        progress = Progress(Transfer(Direction.DOWNLOAD, path, 0, sum(file.size for file, _, _ in targets)), report)
        works = [(file.size, partial(self._fetch, file, key, target, progress)) for file, key, target in targets]
        self._run(works, progress)

    async def _send(self, descriptor: int, file: SavedFile, key: str, progress: Progress) -> SavedFile:
        loop = asyncio.get_running_loop()
        name = file.path or "it"

        def begin() -> Reading:
            return Reading(descriptor, file.size, part_size(file.size), name, progress.beat)

        reading = begin()

        async def put(_: Any) -> str:
            nonlocal reading
            reach("s3.send")
            reading = begin()
            with progress.file() as callback:
                moved = callback.relative_update
                return await send(self._bucket.name, key, reading, moved, self._filesystem, partial(self._ask, key))

        try:
            tag = await self._ask(key, put)
            digests = reading.digests()  # All of it was read.
        except Exists:
            # Whose it is nobody has said yet, and not all of it may have been read.
            tag = ""
            digests = await loop.run_in_executor(None, begin().digests)
        status = os.fstat(descriptor)
        if (status.st_size, status.st_mtime_ns) != (file.size, file.mtime_ns):
            raise Absent(f"{name} was written to while it was sent")
        # A server that has created it and names the bytes that it has leaves nothing to be asked.
        if tag != digests.tag:
            await loop.run_in_executor(None, self._prove, key, file, digests, progress)
        return SavedFile(file.path, file.size, file.mtime_ns, None, file.digest, digests.sha256)

    def _prove(self, key: str, file: SavedFile, digests: Digests, progress: Progress) -> None:
        """Find out that the object has the bytes that were read here.

        Raises:
            Exists: it has others, and so had them before.
        """
        try:
            found = self._requests.look(key)
        except Absent:
            raise StoreError(f"{self._bucket.describe(key)} is not there although it was just created") from None

        def read() -> Iterator[bytes]:
            for chunk in self._requests.chunks(key, found.size):
                progress.beat()
                yield chunk

        if found.size != file.size or not prove(found.tag, digests, read):
            raise Exists(f"{self._bucket.describe(key)} is there with other bytes")

    async def _fetch(self, file: SavedFile, key: str, target: str, progress: Progress) -> None:
        furthest = 0

        async def get(filesystem: Any) -> None:
            nonlocal furthest
            with progress.file() as callback:
                try:
                    await filesystem._get_file(
                        self._address(key), target, callback=callback, chunksize=PART, max_concurrency=_PARTS_AT_ONCE
                    )
                finally:
                    furthest = max(furthest, callback.count)

        for last in (False, True):
            await self._ask(key, get, lambda: furthest)
            wrong = await asyncio.get_running_loop().run_in_executor(None, _difference, target, file, progress.beat)
            if wrong is None:
                os.utime(target, ns=(file.mtime_ns, file.mtime_ns))
                return
            if last:
                raise Absent(f"{file.path or 'it'} {wrong}")

    async def _ask(self, key: str, request: Request, furthest: Callable[[], int] = lambda: 0) -> Any:
        """Make a request by the file system of now, again where it failed and its time is not over.

        Args:
            key: the object that it is about.
            request: is given the file system.
            furthest: how far it has ever come. Who comes further each time has all the time anew.

        Raises:
            Exists: it is there already.
        """
        access = self._bucket.access
        tries = Tries(access)
        loop = asyncio.get_running_loop()
        while True:
            before = furthest()
            signed = await self._credentials()
            try:
                return await request(access.filesystem(signed))
            except KeyError as error:
                # s3fs takes it for granted that an answer which is a success has them.
                if error.args[:1] not in (("UploadId",), ("ETag",)):
                    raise
                failure = failure_of(Garbled(f"it answered without {error.args[0]}"))
            except Exception as error:
                # s3fs tells what a server answered as an error number too, and what it was made from.
                if isinstance(error, OSError) and error.errno in _OWN_ERRORS and error.__cause__ is None:
                    raise
                failure = failure_of(error)
            if failure.meaning is Meaning.EXISTS:
                raise Exists(f"{self._bucket.describe(key)} is there already")
            if furthest() > before:
                tries = Tries(access)
            if not await loop.run_in_executor(None, tries.again, failure, signed):
                self._bucket.refuse(failure, key)

    async def _filesystem(self) -> Any:
        return self._bucket.access.filesystem(await self._credentials())

    async def _credentials(self) -> Credentials:
        # A program of the site may give them, and take its time: nothing else must wait for it.
        known = self._bucket.access.known_credentials()
        if known is not None:
            return known
        return await asyncio.get_running_loop().run_in_executor(None, self._bucket.access.credentials)

    def _run(self, works: Sequence[Tuple[int, Callable[[], Awaitable[Any]]]], progress: Progress) -> List[Any]:
        """Do all of it in s3fs' own loop, and wait here: what is reported is reported by this thread."""
        access = self._bucket.access
        filesystem = access.filesystem(access.credentials())
        loop = filesystem.loop
        # What the client loads before its first request takes seconds on a busy machine, and nothing moves meanwhile.
        asyncio.run_coroutine_threadsafe(filesystem.set_session(), loop).result()
        progress.beat()
        ended = threading.Event()

        async def all_of_it() -> List[Any]:
            large, small = asyncio.Semaphore(1), asyncio.Semaphore(_SMALL_AT_ONCE)

            async def one(size: int, work: Callable[[], Awaitable[Any]]) -> Any:
                async with large if size >= _LARGE else small:
                    return await work()

            tasks = [asyncio.ensure_future(one(*work)) for work in works]
            try:
                return await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                ended.set()

        doing = asyncio.run_coroutine_threadsafe(all_of_it(), loop)
        try:
            while not concurrent.futures.wait([doing], _TICK_SECONDS).done:
                if progress.stands_still_for_seconds > self._stall_seconds:
                    raise StoreError(
                        f"{progress.words} stands still since {self._stall_seconds:g}s; whether bucket "
                        f"{self._bucket.name!r} at {access.endpoint} is there is not known, try again"
                    )
                progress.report()
            done = doing.result()
        finally:
            if doing.cancel():
                # Its end is not the future's, which is cancelled at once.
                ended.wait(_END_SECONDS)
        progress.report(last=True)
        return done

    def _address(self, key: str) -> str:
        return f"{self._bucket.name}/{key}"


def part_size(size: int) -> int:
    """The size of the parts that a file of this size is sent in."""
    least = -(-size // MOST_PARTS)
    return max(PART, -(-least // 2**20) * 2**20)


def _difference(place: str, file: SavedFile, moving: Callable[[], None]) -> Optional[str]:
    """How a downloaded file differs from its entry."""
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size != file.size:
            return f"has {size} bytes, not {file.size}"
        if file.sha256 is None or file.sha256 == sha256_of(descriptor, moving):
            return None
        return "has other bytes than when it was published"
    finally:
        os.close(descriptor)
