"""Listings of a bucket, which are whole or an error: part of one is never taken for all of it."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Iterator, List, Mapping, NoReturn, Set, Tuple, TypeVar

from prefect_dispatch.errors import StoreError
from prefect_dispatch.stores.s3_access import load_library
from prefect_dispatch.stores.s3_bucket import S3Bucket
from prefect_dispatch.stores.s3_errors import Garbled, failure_of
from prefect_dispatch.stores.s3_page import Listed, ListingPage
from prefect_dispatch.stores.s3_tries import Tries

T = TypeVar("T")

PAGE = 1000
"""How many keys one answer to a listing has."""
_NOT_ALL = "it lists what it did not list before"


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
        last = after
        for page in self._walk(folder, after, lambda one: one, listed_of):
            if last and any(one.key == last for one in page):
                self._refuse_repetition(folder)
            last = page[-1].key
            yield page

    def keys(self, folder: str) -> List[str]:
        """All keys below a folder's, in the server's order: with nothing else of them, for a very long ledger."""
        keys: List[str] = []
        for page in self._walk(folder, "", lambda one: one.key, lambda one: str(one["path"])):
            keys += page
        if len(set(keys)) != len(keys):
            self._refuse_repetition(folder)
        return keys

    def children(self, folder: str) -> Tuple[List[str], List[str]]:
        """The keys of the objects, and of the folders, that lie in a folder itself."""
        objects: List[str] = []
        folders: List[str] = []
        behind: List[str] = [""]
        while True:
            parameters = {"prefix": _prefix(folder), "delimiter": "/", "continuation-token": behind[-1]}
            page = self._bucket.ask(partial(self._page, parameters), folder)
            objects += [one.key for one in page.names]
            folders += [prefix.rstrip("/") for prefix in page.prefixes]
            if not page.behind:
                break
            if page.behind in behind:
                self._refuse_repetition(folder)
            behind.append(page.behind)
        if len(set(objects)) != len(objects) or len(set(folders)) != len(folders):
            self._refuse_repetition(folder)
        return objects, folders

    def _walk(
        self, folder: str, after: str, of_entry: Callable[[Listed], T], of_found: Callable[[Any], T]
    ) -> Iterator[List[T]]:
        """List all objects below a folder's key, a page at a time. After a fault it goes on behind what came.

        Args:
            folder: the key.
            after: the key behind which it begins.
            of_entry: makes what is yielded of an entry of the first page.
            of_found: makes the same of what obstore tells of an object.
        """
        obstore = load_library("obstore")
        last, begun = after, False
        firsts: Set[str] = set()
        access = self._bucket.access
        tries = Tries(access)
        while True:
            before = last
            signed = access.credentials()
            try:
                if not begun:
                    # Most listings are short: one answer in the server's own words is all of them.
                    first = self._page({"prefix": _prefix(folder), "start-after": last, "max-keys": str(PAGE)})
                    begun, tries = True, Tries(access)
                    if first.entries:
                        last = first.entries[-1].key
                    if first.names:
                        firsts.add(first.names[0].key)
                        yield [of_entry(one) for one in first.names]
                    if not first.behind:
                        return
                for page in obstore.list(self._bucket.client(), folder or None, offset=last or None, chunk_size=PAGE):
                    if not page:
                        continue
                    # Told at once: a server that sends one page over and over never comes to an end.
                    begins = page[0]["path"]
                    if begins in firsts:
                        self._refuse_repetition(folder)
                    firsts.add(begins)
                    last = page[-1]["path"]
                    tries = Tries(access)
                    yield [of_found(one) for one in page]
                if not self._has_more(folder, last):
                    return
                if last == before:
                    raise Garbled(_NOT_ALL)
                continue
            except BaseException as error:
                failure = failure_of(error)
            if not tries.again(failure, signed):
                self._bucket.refuse(failure, folder)

    def _has_more(self, folder: str, last: str) -> bool:
        """Whether there is a key behind the last one that was listed, by what the server itself says."""
        after = last or _prefix(folder)
        asked: Set[str] = set()
        while True:
            asked.add(after)
            page = self._page({"prefix": _prefix(folder), "start-after": after, "max-keys": "1"})
            if not page.entries:
                return False
            after = page.entries[0].key
            if after in asked:
                self._refuse_repetition(folder)
            # What some tools put there for a folder; obstore does not tell it from a name.
            if not after.endswith("/"):
                return True

    def _page(self, parameters: Mapping[str, str]) -> ListingPage:
        # Makes sure first that no credentials go elsewhere.
        self._bucket.client()
        return self._bucket.access.page(self._bucket.name, parameters)

    def _refuse_repetition(self, folder: str) -> NoReturn:
        raise StoreError(f"the listing of {self._bucket.describe(folder)} repeats itself; use another server")


def _prefix(folder: str) -> str:
    return f"{folder}/" if folder else ""


def listed_of(found: Any) -> Listed:
    """What obstore tells of an object."""
    return Listed(str(found["path"]), int(found["size"]), found["last_modified"], (found["e_tag"] or "").strip('"'))
