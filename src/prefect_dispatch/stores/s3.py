"""The store in a bucket of S3, or of a server that speaks its language."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from prefect_dispatch.errors import Absent, Exists, StoreError, StoreUnreachable
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.manifest import SHORT_BYTES, SavedFile, digest_of, is_short
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.stores.folder import split_path
from prefect_dispatch.stores.layout import TEMPORARY
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_bucket import S3Bucket
from prefect_dispatch.stores.s3_ledger import S3Ledger
from prefect_dispatch.stores.s3_listings import S3Listings
from prefect_dispatch.stores.s3_place import S3Place, unquote
from prefect_dispatch.stores.s3_requests import S3Requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

SWEEP_AGE = timedelta(days=1)
"""What nothing has touched for so long in ``tmp/`` is a dead writer's."""
MOST_SWEPT = 100
"""How many objects one probe removes: each takes a request."""
_AT_ONCE = 16
"""How many requests about the files of one save are under way together."""


class S3Store:
    """A store in a bucket; see :class:`~prefect_dispatch.stores.port.Store` for the contract.

    Objects are created and never written over. They do not keep the times of the files that were sent, so none are
    compared.

    Args:
        place: the root.
        access: how its server is reached.
    """

    def __init__(self, place: S3Place, access: S3Access) -> None:
        self.place = place
        self.access = access
        bucket = S3Bucket(place.bucket, access)
        self.requests = S3Requests(bucket)
        self.listings = S3Listings(bucket)

    @property
    def location(self) -> str:
        """The root as a URL."""
        return self.place.url

    def local(self, path: str) -> str:
        """The URL of a path: no program of this machine finds it as a file."""
        return f"{self.location}/{path}"

    def probe(self, make: bool = True) -> None:
        """Try that a name is created once and listed at once, and sweep what is old in ``tmp/``."""
        key = self.place.key(f"{TEMPORARY}/{new_nonce()}.probe")
        try:
            self._try(key)
        except StoreError as error:
            raise StoreUnreachable(f"store {self.location} cannot be written: {error}") from None

    def ledger(self, folder: str) -> S3Ledger:
        """The ledger at a prefix."""
        return S3Ledger(self.requests, self.listings, self.place, folder)

    def folders(self, path: str) -> List[str]:
        """List the folders in a folder."""
        return self.ledger(path).strangers()

    def make_folder(self, path: str) -> None:
        """Nothing is to be made: a bucket has no folders."""
        self.place.key(path)

    def files(self, path: str) -> Tuple[SavedFile, ...]:
        """List every object of a save. They have no times of files."""
        key = self._save_key(path)
        listed = {self._path_below(key, entry.key): entry for page in self.listings.pages(key) for entry in page}
        files = [self._listed(name, entry.key, entry.size) for name, entry in listed.items() if name]
        if not files:
            files = [self._listed("", key, self.requests.look(key).size)]
        return tuple(sorted(files, key=lambda file: file.path))

    def difference(self, path: str, files: Tuple[SavedFile, ...]) -> Optional[str]:
        """Say how a save differs from a list of its files: by their sizes, and by the bytes of the short ones.

        Links are kept in the manifest alone.
        """
        self._save_key(path)
        wanted = [(self._key_of(path, file), file) for file in files if file.link is None]

        def compare(entry: Tuple[str, SavedFile]) -> Optional[str]:
            own, file = entry
            name = file.path or path
            try:
                size = self.requests.look(own).size
                if size != file.size:
                    return f"{name} has {size} bytes, not {file.size}"
                if file.digest is not None and digest_of(self.requests.read(own, SHORT_BYTES)) != file.digest:
                    return f"{name} has other bytes than when it was published"
            except Absent:
                return f"{name} is gone"
            return None

        if len(wanted) == 1:
            return compare(wanted[0])
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return next((difference for difference in pool.map(compare, wanted) if difference is not None), None)

    def sync(self, path: str, files: Tuple[SavedFile, ...]) -> Tuple[SavedFile, ...]:
        """Find out that the objects are as listed; what is there is durable."""
        difference = self.difference(path, files)
        if difference is not None:
            raise Absent(f"{self.location}/{path}: {difference}")
        return files

    def copy(self, source: str, target: str, files: Tuple[SavedFile, ...]) -> None:
        """Copy a save within the server, the listed files and nothing else: one by one, so that half of it may show.

        An execution on a bucket has a ManagedStore and copies by that. Here it makes the store whole for who opens a
        root without a workplace and drives executions of its own, as the suites over every store do. Amazon
        refuses to copy what is larger than 5 GiB in one request (S3 API reference, CopyObject).
        """
        if self._is_there(target):
            raise Exists(f"{self.location}/{target} is there already")
        self.sync(source, files)
        for file in files:
            if file.link is None:
                self.requests.copy(self._key_of(source, file), self._key_of(target, file))

    def _is_there(self, path: str) -> bool:
        try:
            return bool(self.files(path))
        except Absent:
            return False

    def _listed(self, name: str, key: str, size: int) -> SavedFile:
        digest = digest_of(self.requests.read(key, SHORT_BYTES)) if is_short(name, size) else None
        return SavedFile(name, size, 0, None, digest)

    def _save_key(self, path: str) -> str:
        if not split_path(path):
            raise StoreError("the root itself is no save; name a file or folder in it")
        return self.place.key(path)

    def _key_of(self, path: str, file: SavedFile) -> str:
        return self.place.key(f"{path}/{file.path}" if file.path else path)

    def _path_below(self, key: str, of: str) -> str:
        return "/".join(unquote(part) for part in of[len(key) + 1 :].split("/"))

    def _try(self, key: str) -> None:
        """Try it with an object of our own.

        Raises:
            StoreUnreachable: the server does not keep what the format needs.
        """
        where = f"{self.access.endpoint}, bucket {self.place.bucket!r}"
        reach("s3.probe-create")
        self.requests.create(key, b"probe")
        try:
            folder = self.place.key(TEMPORARY)
            listed = [entry for page in self.listings.pages(folder) for entry in page]
            own = [entry for entry in listed if entry.key == key]
            if not own:
                raise StoreUnreachable(
                    f"the server {where}, does not list an object that was just created; use one whose listings are "
                    "strongly consistent"
                )
            reach("s3.probe-again")
            try:
                self.requests.create(key, b"again")
            except Exists:
                pass
            else:
                raise StoreUnreachable(
                    f"the server {where}, creates one name twice: it ignores If-None-Match; use one that keeps it"
                )
            old = [entry.key for entry in listed if own[0].changed - entry.changed > SWEEP_AGE]
            for each in old[:MOST_SWEPT]:
                self.requests.delete(each)
        finally:
            self.requests.delete(key)
