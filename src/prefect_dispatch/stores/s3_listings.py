"""Listings of a bucket, which are whole or an error: part of one is never taken for all of it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Iterator, List, NoReturn, Sequence, Set, Tuple

from prefect_dispatch.errors import DispatchError, StoreError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.stores.s3_access import load_library
from prefect_dispatch.stores.s3_bucket import S3Bucket
from prefect_dispatch.stores.s3_errors import failure_of
from prefect_dispatch.stores.s3_tries import Tries

if TYPE_CHECKING:
    from obstore import ListResult, ObjectMeta

PAGE = 1000
"""How many keys one answer to a listing has."""


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


class S3Listings:
    """What a bucket holds.

    Every method raises StoreUnreachable where the bucket is not there or the credentials do not open it, and StoreError
    where the server fails.

    Args:
        bucket: the bucket.
    """

    def __init__(self, bucket: S3Bucket) -> None:
        self._bucket = bucket

    def pages(self, folder: str, after: str = "") -> Iterator[List[Listed]]:
        """List all objects below a folder's key, a page at a time, in the server's order.

        Args:
            folder: the key, without '/' at its end; empty for the whole bucket.
            after: the key behind which it begins.

        Raises:
            StoreError: it failed on the way, or the server's pages repeat themselves.
        """
        obstore = load_library("obstore")
        last = after
        tries = Tries(self._bucket.access)
        while True:
            try:
                for page in obstore.list(self._bucket.client(), folder or None, offset=last or None, chunk_size=PAGE):
                    listed = [listed_of(one) for one in page]
                    if not listed:
                        continue
                    if last and any(one.key == last for one in listed):
                        self._refuse_repetition(folder)
                    last = listed[-1].key
                    yield listed
                return
            except DispatchError:
                raise
            except Exception as error:
                # What came so far stands: the next try begins behind it.
                failure = failure_of(error)
            if not tries.again(failure):
                self._bucket.refuse(failure, folder)

    def keys(self, folder: str) -> List[str]:
        """All keys below a folder's, in the server's order: with nothing else of them, for a very long ledger."""
        obstore = load_library("obstore")

        def list_all() -> List[str]:
            keys: List[str] = []
            begun: Set[str] = set()
            for page in obstore.list(self._bucket.client(), folder or None, chunk_size=PAGE):
                if page:
                    # Told at once: a server that sends one page over and over never comes to an end.
                    begins = page[0]["path"]
                    if begins in begun:
                        self._refuse_repetition(folder)
                    begun.add(begins)
                    keys += [one["path"] for one in page]
            return keys

        keys = self._bucket.ask(list_all, folder)
        if len(set(keys)) != len(keys):
            self._refuse_repetition(folder)
        return keys

    def children(self, folder: str) -> Tuple[List[str], List[str]]:
        """The keys of the objects, and of the folders, that lie in a folder itself."""
        obstore = load_library("obstore")
        patience = self._bucket.access.patience
        seconds = (patience.request + patience.retry).total_seconds()

        async def list_all() -> ListResult[Sequence[ObjectMeta]]:
            return await asyncio.wait_for(
                obstore.list_with_delimiter_async(self._bucket.client(), folder or None), seconds
            )

        def list_within() -> ListResult[Sequence[ObjectMeta]]:
            # The client goes from page to page by itself, and a server whose pages repeat has no last one. A thread,
            # since our caller may be in a loop of its own.
            try:
                with ThreadPoolExecutor(1) as pool:
                    return pool.submit(asyncio.run, list_all()).result()
            except asyncio.TimeoutError:
                raise StoreError(
                    f"the listing of {self._bucket.describe(folder)} has no end after {seconds:g}s; "
                    "whether the server repeats itself is not known, try again"
                ) from None

        found = self._bucket.ask(list_within, folder)
        return [str(one["path"]) for one in found["objects"]], [str(prefix) for prefix in found["common_prefixes"]]

    def _refuse_repetition(self, folder: str) -> NoReturn:
        raise StoreError(f"the listing of {self._bucket.describe(folder)} repeats itself; use another server")


def listed_of(found: Any) -> Listed:
    """What obstore tells of an object."""
    return Listed(str(found["path"]), int(found["size"]), found["last_modified"], (found["e_tag"] or "").strip('"'))
