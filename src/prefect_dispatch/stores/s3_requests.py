"""Requests to one bucket, each bounded in time and tried again where that is safe."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, NoReturn, Optional, Sequence, Set, Tuple, TypeVar

from prefect_dispatch.errors import Absent, Exists, StoreError, StoreUnreachable
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.printable import printable
from prefect_dispatch.stores.s3_access import Credentials, S3Access, load_library
from prefect_dispatch.stores.s3_errors import Failure, Garbled, Meaning, failure_of

if TYPE_CHECKING:
    from obstore import ListResult, ObjectMeta
    from obstore.store import S3Store as Bucket

PAGE = 1000
"""How many keys one answer to a listing has."""
DIGEST = "dispatch-sha256"
"""The metadata of an object that we created with content: what its bytes come to, in hexadecimal digits.

An answer that something between us and the server has cut short or changed is known by it; its length may say nothing.
"""
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0

T = TypeVar("T")


@dataclass(frozen=True)
class Listed:
    """An object as a listing shows it.

    Args:
        key: its whole key.
        size: its bytes.
        changed: when it was written, by the server's clock.
        tag: the server's own tag of its bytes, without quotes; empty where it has none.
    """

    key: str
    size: int
    changed: datetime
    tag: str


class S3Requests:
    """What is asked of one bucket.

    Every method raises StoreUnreachable where the bucket is not there or the credentials do not open it, and StoreError
    where the server fails.

    Args:
        bucket: its name.
        access: how its server is reached.
    """

    def __init__(self, bucket: str, access: S3Access) -> None:
        self.bucket = bucket
        self.access = access
        self._client: Optional[Tuple[Credentials, Bucket]] = None

    def describe(self, key: str) -> str:
        """An object as people find it."""
        return f"s3://{self.bucket}/{printable(key)} at {self.access.endpoint}"

    def create(self, key: str, content: bytes) -> None:
        """Create an object that must not be there.

        Raises:
            Exists: it is there, and it is not known to be ours. An empty one never is: who does not mind whose name it
                is takes that for success.
            StoreError: it may or may not have been created.
        """
        obstore = load_library("obstore")

        lost = False

        def put() -> None:
            digest = {DIGEST: hashlib.sha256(content).hexdigest()} if content else None
            obstore.put(self._open(), key, content, mode="create", use_multipart=False, attributes=digest)

        for failure in self._tries(put, key):
            if failure.meaning is Meaning.EXISTS:
                # Where an answer of ours was lost, what is there may be ours. Each writer's content is its own.
                if lost and content and self.read(key, len(content)) == content:
                    return
                raise Exists(f"{self.describe(key)} is there already")
            lost = lost or failure.meaning is Meaning.UNANSWERED
            if failure.meaning not in (Meaning.UNANSWERED, Meaning.CONFLICT):
                self.refuse(failure, key)
        # Only left without a failure.

    def read(self, key: str, most: int) -> bytes:
        """Read an object, or the first ``most + 1`` bytes of what is longer.

        Raises:
            Absent: it is not there.
        """
        obstore = load_library("obstore")

        def get() -> bytes:
            answer = obstore.get(self._open(), key)
            size = int(answer.meta["size"])
            if size > most + 1:
                return bytes(obstore.get_range(self._open(), key, start=0, end=most + 1))
            content = bytes(answer.bytes())
            if len(content) != size:
                raise ConnectionError("end of file before message length reached")
            told = answer.attributes.get(DIGEST)
            if told is not None and told != hashlib.sha256(content).hexdigest():
                raise Garbled
            return content

        return self._ask(get, key)

    def look(self, key: str) -> Listed:
        """An object as a listing shows it, asked for by its name.

        Raises:
            Absent: it is not there.
        """
        obstore = load_library("obstore")

        def head() -> Optional[Listed]:
            try:
                return _listed(obstore.head(self._open(), key))
            except FileNotFoundError:
                return None

        found = self._ask(head, key)
        if found is None:
            # An answer to HEAD has no words: whether the object or the bucket is missing is told to who reads.
            self.read(key, 0)
            raise StoreError(f"{self.describe(key)} came while it was looked at; look again")
        return found

    def listed(self, folder: str, after: str = "") -> Iterator[List[Listed]]:
        """List all objects below a folder's key, a page at a time, in the server's order.

        Args:
            folder: the key, without '/' at its end; empty for the whole bucket.
            after: the key behind which it begins.

        Raises:
            StoreError: it failed on the way, or the server's pages repeat themselves.
        """
        obstore = load_library("obstore")

        last = after
        tries = Tries(self.access)
        while True:
            try:
                for page in obstore.list(self._open(), folder or None, offset=last or None, chunk_size=PAGE):
                    listed = [_listed(one) for one in page]
                    if not listed:
                        continue
                    if last and any(one.key == last for one in listed):
                        self._refuse_repetition(folder)
                    last = listed[-1].key
                    yield listed
                return
            except StoreError:
                raise
            except Exception as error:
                # What came so far stands: the next try begins behind it.
                self._after_failure(failure_of(error), folder, tries)

    def keys(self, folder: str) -> List[str]:
        """All keys below a folder's, in the server's order: with nothing else of them, for a very long ledger."""
        obstore = load_library("obstore")

        def list_all() -> List[str]:
            keys: List[str] = []
            begun: Set[str] = set()
            for page in obstore.list(self._open(), folder or None, chunk_size=PAGE):
                if page:
                    # Told at once: a server that sends one page over and over never comes to an end.
                    begins = str(page[0]["path"])
                    if begins in begun:
                        self._refuse_repetition(folder)
                    begun.add(begins)
                    keys += [str(one["path"]) for one in page]
            return keys

        keys = self._ask(list_all, folder)
        if len(set(keys)) != len(keys):
            self._refuse_repetition(folder)
        return keys

    def children(self, folder: str) -> Tuple[List[str], List[str]]:
        """The keys of the objects, and of the folders, that lie in a folder itself."""
        obstore = load_library("obstore")

        patience = self.access.patience
        seconds = (patience.request + patience.retry).total_seconds()

        async def list_all() -> ListResult[Sequence[ObjectMeta]]:
            return await asyncio.wait_for(obstore.list_with_delimiter_async(self._open(), folder or None), seconds)

        def list_within() -> ListResult[Sequence[ObjectMeta]]:
            # The client goes from page to page by itself, and a server whose pages repeat has no last one. A thread,
            # since our caller may be in a loop of its own.
            try:
                with ThreadPoolExecutor(1) as pool:
                    return pool.submit(asyncio.run, list_all()).result()
            except asyncio.TimeoutError:
                raise StoreError(
                    f"the listing of {self.describe(folder)} has no end after {seconds:g}s; "
                    "whether the server repeats itself is not known, try again"
                ) from None

        found = self._ask(list_within, folder)
        return [str(one["path"]) for one in found["objects"]], [str(prefix) for prefix in found["common_prefixes"]]

    def chunks(self, key: str) -> Iterator[bytes]:
        """The bytes of an object, of any length. Tried once: a part of it is nothing."""
        obstore = load_library("obstore")

        try:
            for chunk in obstore.get(self._open(), key).stream():
                yield bytes(chunk)
        except Exception as error:
            self.refuse(failure_of(error), key)

    def delete(self, key: str) -> None:
        """Delete an object. One that is absent is no error."""
        obstore = load_library("obstore")

        try:
            self._ask(lambda: obstore.delete(self._open(), key), key)
        except Absent:
            pass

    def copy(self, key: str, target: str) -> None:
        """Copy an object to another key, within the server.

        Raises:
            Absent: it is not there.
        """
        obstore = load_library("obstore")

        self._ask(lambda: obstore.copy(self._open(), key, target), key)

    def _refuse_repetition(self, folder: str) -> NoReturn:
        raise StoreError(f"the listing of {self.describe(folder)} repeats itself; use another server")

    def _open(self) -> Bucket:
        credentials = self.access.credentials()
        client = self._client
        if client is None or client[0] != credentials:
            try:
                client = self._client = (credentials, self.access.bucket(self.bucket, credentials))
            except OSError as error:
                raise StoreUnreachable(f"s3://{self.bucket}: {error.strerror or error}; see AWS_CA_BUNDLE") from None
        return client[1]

    def _ask(self, request: Callable[[], T], key: str) -> T:
        """Make a request that may be made again."""
        answers: List[T] = []
        for failure in self._tries(lambda: answers.append(request()), key):
            if failure.meaning is Meaning.ABSENT:
                raise Absent(f"{self.describe(key)} is not there")
            if failure.meaning not in (Meaning.UNANSWERED, Meaning.CONFLICT):
                self.refuse(failure, key)
        return answers[0]

    def _tries(self, request: Callable[[], None], key: str) -> Iterator[Failure]:
        """Make a request until it succeeds or its time is over; each failure but the last is the caller's to judge."""
        tries = Tries(self.access)
        while True:
            try:
                request()
                return
            except (StoreError, StoreUnreachable):
                raise
            except Exception as error:
                failure = failure_of(error)
            if failure.meaning not in (Meaning.DENIED, Meaning.NO_BUCKET):
                yield failure
            self._after_failure(failure, key, tries)

    def _after_failure(self, failure: Failure, key: str, tries: Tries) -> None:
        """Wait for the next try, or give up."""
        if failure.meaning is Meaning.DENIED and tries.may_renew():
            return
        if failure.meaning not in (Meaning.UNANSWERED, Meaning.CONFLICT) or not tries.wait():
            self.refuse(failure, key)

    def refuse(self, failure: Failure, key: str) -> NoReturn:
        """Raise what a failure means that is not tried again."""
        what = self.describe(key)
        if failure.meaning is Meaning.NO_BUCKET:
            raise StoreUnreachable(
                f"bucket {self.bucket!r} is not at {self.access.endpoint}; create it, or name another in the root"
            )
        if failure.meaning is Meaning.DENIED:
            raise StoreUnreachable(
                f"{what}: {failure.text}; the credentials do not open it: check the key, its expiry and its permissions"
            )
        if failure.meaning is Meaning.ABSENT:
            raise Absent(f"{what} is not there")
        if failure.meaning is Meaning.REFUSED:
            raise StoreError(f"{what}: {failure.text}; check endpoint, region and bucket")
        raise StoreError(f"{what}: {failure.text}; whether the request had its effect is not known, try again")


class Tries:
    """How long one request is tried again.

    Args:
        access: whose patience it has.
    """

    def __init__(self, access: S3Access) -> None:
        self._access = access
        self._until = time.monotonic() + access.patience.retry.total_seconds()
        self._delay = _FIRST_DELAY
        self._renewed = False

    def may_renew(self) -> bool:
        """Whether other credentials have come, which is looked for once."""
        if self._renewed:
            return False
        self._renewed = True
        return self._access.renew()

    def wait(self) -> bool:
        """Wait a moment, longer each time. Answers no, at once, when the time is over."""
        delay = self._delay * random.uniform(0.5, 1.0)
        if time.monotonic() + delay > self._until:
            return False
        time.sleep(delay)
        self._delay = min(2 * self._delay, _LONGEST_DELAY)
        return True


def _listed(found: Any) -> Listed:
    return Listed(str(found["path"]), int(found["size"]), found["last_modified"], (found["e_tag"] or "").strip('"'))
