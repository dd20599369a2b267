"""A ledger as a prefix of a bucket: a name is an object that is created by one conditional request."""

from __future__ import annotations

from typing import List, Optional

from prefect_dispatch.errors import MalformedName, StoreError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.documents import MAX_DOCUMENT_BYTES
from prefect_dispatch.stores.folder import check_name
from prefect_dispatch.stores.layout import EXEC, META
from prefect_dispatch.stores.s3_listings import S3Listings
from prefect_dispatch.stores.s3_place import S3Place, check_key, is_plain, quote, unquote
from prefect_dispatch.stores.s3_requests import S3Requests


class S3Ledger:
    """One prefix of a bucket; see :class:`~prefect_dispatch.stores.port.Ledger` for the contract.

    Args:
        requests: asks about the bucket's objects.
        listings: of the same bucket.
        place: the store's root.
        folder: this ledger's folder, relative to it.
    """

    def __init__(self, requests: S3Requests, listings: S3Listings, place: S3Place, folder: str) -> None:
        self._requests = requests
        self._listings = listings
        self._place = place
        self._folder = folder
        self._key = place.key(folder)

    def create(self, name: str, content: bytes = b"") -> None:
        """Create a name, by one request that fails where it is taken."""
        key = self._key_of(name)
        reach("s3.create")
        self._requests.create(key, content)

    def read(self, name: str, most: int = MAX_DOCUMENT_BYTES) -> bytes:
        """Read a name's content, up to one byte more than it may have."""
        return self._requests.read(self._key_of(name), most)

    def names(self, after: str = "", most: Optional[int] = None) -> List[str]:
        """List the names, a thousand with each request."""
        behind = self._key_of(after) if after and is_plain(after) else ""
        if not behind and most is None:
            return sorted(name for name in self.unordered_names() if name > after)
        names: List[str] = []
        seen = 0
        for page in self._listings.pages(self._key, behind):
            seen += len(page)
            if most is not None and seen > most:
                raise StoreError(f"{self._where} holds more than {most:,} entries; find out who makes them")
            names.extend(self._names_of([entry.key for entry in page]))
        return sorted(name for name in names if name > after)

    def unordered_names(self) -> List[str]:
        """List the names as the server has them."""
        if self._holds_folders:
            return self._names_of(self._listings.children(self._key)[0])
        return self._names_of(self._listings.keys(self._key))

    def strangers(self) -> List[str]:
        """List the folders; a bucket has nothing else that is no object."""
        return sorted(self._names_of(self._listings.children(self._key)[1]))

    def remove(self, name: str) -> None:
        """Remove a name, if it is there."""
        self._requests.delete(self._key_of(name))

    @property
    def _holds_folders(self) -> bool:
        """Whether much lies deeper, which a listing of all keys below would go through."""
        return self._folder == "" or (self._folder.split("/")[0] in (META, EXEC) and self._folder.count("/") < 2)

    @property
    def _where(self) -> str:
        return f"{self._place.url}/{self._folder}" if self._folder else self._place.url

    def _key_of(self, name: str) -> str:
        part = quote(check_name(name))
        return check_key(f"{self._key}/{part}" if self._key else part, self._where)

    def _names_of(self, keys: List[str]) -> List[str]:
        """The names that keys stand for; what lies deeper is none, nor is the placeholder of a folder.

        Raises:
            MalformedName: a key is of no name.
        """
        start = len(self._key) + 1 if self._key else 0
        parts = [key[start:] for key in keys]
        text = "\n".join(parts)
        if "/" in text or "~" in text or "" in parts:
            try:
                return [unquote(part) for part in parts if part and "/" not in part]
            except MalformedName as error:
                raise MalformedName(f"{self._where}: {error}") from None
        return parts
