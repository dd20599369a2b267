"""Requests about single objects of a bucket, each bounded in time and tried again where that is safe."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Iterator, Optional

from prefect_dispatch.errors import Absent, Exists, StoreError
from prefect_dispatch.stores.s3_access import load_library
from prefect_dispatch.stores.s3_bucket import S3Bucket
from prefect_dispatch.stores.s3_errors import Garbled, Meaning, failure_of
from prefect_dispatch.stores.s3_listings import listed_of
from prefect_dispatch.stores.s3_page import Listed

DIGEST = "dispatch-sha256"
"""The metadata of an object that we created with content: what its bytes come to, in hexadecimal digits.

An answer that something between us and the server has cut short or changed is known by it; its length may say nothing.
"""
PIECE = 8 * 2**20
"""How much of a long object is asked for at a time."""


class S3Requests:
    """What is asked about the objects of one bucket.

    Every method raises StoreUnreachable where the bucket is not there or the credentials do not open it, and StoreError
    where the server fails.

    Args:
        bucket: the bucket.
    """

    def __init__(self, bucket: S3Bucket) -> None:
        self.bucket = bucket

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
            obstore.put(self.bucket.client(), key, content, mode="create", use_multipart=False, attributes=digest)

        for failure in self.bucket.tries(put, key):
            if failure.meaning is Meaning.EXISTS:
                # Where an answer of ours was lost, what is there may be ours. Each writer's content is its own.
                if lost and content and self.read(key, len(content)) == content:
                    return
                raise Exists(f"{self.bucket.describe(key)} is there already")
            lost = lost or failure.meaning is Meaning.UNANSWERED
            if failure.meaning not in (Meaning.UNANSWERED, Meaning.CONFLICT):
                self.bucket.refuse(failure, key)
        # Only left without a failure.

    def read(self, key: str, most: int) -> bytes:
        """Read an object, or the first ``most + 1`` bytes of what is longer.

        Raises:
            Absent: it is not there.
        """
        obstore = load_library("obstore")

        def get() -> bytes:
            answer = obstore.get(self.bucket.client(), key)
            size = int(answer.meta["size"])
            if size > most + 1:
                return bytes(obstore.get_range(self.bucket.client(), key, start=0, end=most + 1))
            content = bytes(answer.bytes())
            if len(content) != size:
                raise ConnectionError("end of file before message length reached")
            told = answer.attributes.get(DIGEST)
            if told is not None and told != hashlib.sha256(content).hexdigest():
                raise Garbled
            return content

        return self.bucket.ask(get, key)

    def look(self, key: str) -> Listed:
        """An object as a listing shows it, asked for by its name.

        Raises:
            Absent: it is not there.
        """
        obstore = load_library("obstore")

        def head() -> Optional[Listed]:
            client = self.bucket.client()
            try:
                return listed_of(obstore.head(client, key))
            except FileNotFoundError:
                return None
            except Exception as error:
                if failure_of(error).meaning is Meaning.REFUSED:
                    # An answer to HEAD has no words: that a token has expired is told to who reads with it.
                    obstore.get(client, key)
                raise

        found = self.bucket.ask(head, key)
        if found is None:
            # An answer to HEAD has no words: whether the object or the bucket is missing is told to who reads.
            self.read(key, 0)
            raise StoreError(f"{self.bucket.describe(key)} came while it was looked at; look again")
        return found

    def chunks(self, key: str, size: int) -> Iterator[bytes]:
        """The bytes of an object of any length, piece by piece: each is a request of its own, bounded and tried again.

        Raises:
            Absent: it is not there.
        """
        obstore = load_library("obstore")

        def get(start: int, end: int) -> bytes:
            content = bytes(obstore.get_range(self.bucket.client(), key, start=start, end=end))
            if len(content) != end - start:
                raise Garbled("it answered with another part than was asked for")
            return content

        for start in range(0, size, PIECE):
            yield self.bucket.ask(partial(get, start, min(size, start + PIECE)), key)

    def delete(self, key: str) -> None:
        """Delete an object. One that is absent is no error."""
        obstore = load_library("obstore")
        try:
            self.bucket.ask(lambda: obstore.delete(self.bucket.client(), key), key)
        except Absent:
            pass

    def copy(self, key: str, target: str) -> None:
        """Copy an object to another key, within the server.

        Raises:
            Absent: it is not there.
        """
        obstore = load_library("obstore")
        self.bucket.ask(lambda: obstore.copy(self.bucket.client(), key, target), key)
