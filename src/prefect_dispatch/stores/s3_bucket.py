"""One bucket: its client, and how a request to it is tried again or given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Iterator, List, NoReturn, Optional, Tuple, TypeVar

from prefect_dispatch.errors import Absent, StoreError, StoreUnreachable
from prefect_dispatch.format.printable import printable
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_endpoint import proxy_of
from prefect_dispatch.stores.s3_errors import Failure, Meaning, failure_of
from prefect_dispatch.stores.s3_tries import Tries

if TYPE_CHECKING:
    from obstore.store import S3Store as Client

T = TypeVar("T")

_WHEN_DENIED = "the credentials do not open it: check the key, its expiry and its permissions"
_WHEN_REFUSED = "check endpoint, region and bucket"
_WHEN_UNKNOWN = "whether the request had its effect is not known, try again"


class S3Bucket:
    """A bucket of one server.

    Args:
        name: its name.
        access: how its server is reached.
    """

    def __init__(self, name: str, access: S3Access) -> None:
        self.name = name
        self.access = access
        self._client: Optional[Tuple[Credentials, Client]] = None

    def describe(self, key: str) -> str:
        """An object as people find it."""
        return f"s3://{self.name}/{printable(key)} at {self.access.endpoint}"

    def client(self) -> Client:
        """The client, with the credentials of now.

        Raises:
            StoreUnreachable: there are none, or the server sends its clients elsewhere.
            OSError: the server does not answer.
        """
        credentials = self.access.credentials()
        client = self._client
        if client is None or client[0] != credentials:
            try:
                client = (credentials, self.access.bucket(self.name, credentials))
            except OSError as error:
                raise StoreUnreachable(f"s3://{self.name}: {error.strerror or error}; see AWS_CA_BUNDLE") from None
            self.access.require_no_redirect(self.name)
            self._client = client
        return client[1]

    def ask(self, request: Callable[[], T], key: str) -> T:
        """Make a request that may be made again."""
        answers: List[T] = []
        for failure in self.tries(lambda: answers.append(request()), key):
            if failure.meaning is Meaning.ABSENT:
                raise Absent(f"{self.describe(key)} is not there")
            if failure.meaning not in (Meaning.UNANSWERED, Meaning.CONFLICT):
                self.refuse(failure, key)
        return answers[0]

    def tries(self, request: Callable[[], None], key: str) -> Iterator[Failure]:
        """Make a request until it succeeds.

        Yields each failure for the caller to judge, but for a denial and a missing bucket, and raises what it means
        once its time is over.
        """
        tries = Tries(self.access)
        while True:
            # Looked at before: what the request takes up later is never mistaken for what was denied.
            signed = self.access.credentials()
            try:
                request()
                return
            except BaseException as error:
                failure = failure_of(error)
            if failure.meaning not in (Meaning.DENIED, Meaning.NO_BUCKET):
                yield failure
            if not tries.again(failure, signed):
                self.refuse(failure, key)

    def refuse(self, failure: Failure, key: str) -> NoReturn:
        """Raise what a failure means that is not tried again."""
        what = self.describe(key)
        if failure.meaning is Meaning.NO_BUCKET:
            raise StoreUnreachable(
                f"bucket {self.name!r} is not at {self.access.endpoint}; create it, or name another in the root"
            )
        if failure.meaning is Meaning.ABSENT:
            raise Absent(f"{what} is not there")
        if failure.meaning is Meaning.DENIED:
            raise StoreUnreachable(f"{what}: {failure.text}; {failure.way_out or _WHEN_DENIED}")
        if failure.meaning is Meaning.REFUSED:
            raise StoreError(f"{what}: {failure.text}; {failure.way_out or _WHEN_REFUSED}")
        proxy = proxy_of(self.access.endpoint)
        by = f" (all goes through the proxy {proxy}, which the environment names)" if proxy else ""
        raise StoreError(f"{what}: {failure.text}{by}; {failure.way_out or _WHEN_UNKNOWN}")
