"""Access to an object store: the one place where endpoint, region and credentials become both clients' settings."""

from __future__ import annotations

import re
import threading
import time
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from prefect_dispatch.errors import StoreUnreachable, UsageError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_endpoint import amazon_endpoint, check_endpoint, proxy_of
from prefect_dispatch.stores.s3_http import PlainRequests
from prefect_dispatch.stores.s3_page import ListingPage, query_of
from prefect_dispatch.stores.s3_patience import S3Patience
from prefect_dispatch.stores.s3_redirect import redirect_of, straight

if TYPE_CHECKING:
    from obstore.store import S3Store as Bucket

DEFAULT_REGION = "us-east-1"
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_REGION = re.compile(r"[A-Za-z0-9._-]+\Z")
_CONNECT = timedelta(seconds=5)
_FRESH_SECONDS = 60.0
"""For how long credentials are used before their source is looked at again; a file may be renewed at any time."""
_NOWHERE = "http://127.0.0.1:1"
"""No proxy listens there. Whatever is not the endpoint's host is sent to it, so that no redirect leads anywhere."""


class S3Access:
    """How the objects of one endpoint are reached.

    Both clients are made here, with the endpoint written out: neither looks for another one in its environment, so that
    credentials are sent to the endpoint which they belong to and nowhere else.

    Args:
        endpoint: the server's URL; empty for AWS itself.
        region: the region; empty for the default one.
        source: answers with the credentials of now; told whether those that it gave before were denied.
        authorities: a file of certificate authorities to trust; empty for those of the system.
        verify: whether the server's certificate is looked at.
        patience: how long the server is waited for.

    Raises:
        UsageError: the endpoint is no URL, or the region none.
    """

    def __init__(
        self,
        endpoint: str,
        region: str,
        source: Callable[[bool], Credentials],
        authorities: str = "",
        verify: bool = True,
        patience: Optional[S3Patience] = None,
    ) -> None:
        self.region = region or DEFAULT_REGION
        if _REGION.match(self.region) is None:
            raise UsageError(f"region {printable(self.region, 100)!r} is none; write it as in us-east-1")
        self.endpoint = check_endpoint(endpoint) if endpoint else amazon_endpoint(self.region)
        self.patience = patience or S3Patience()
        self._source = source
        self._authorities = authorities
        self._verify = verify
        self._lock = threading.Lock()
        self._known: Optional[Credentials] = None
        self._known_since = 0.0
        # Of its own: who finds credentials may take long, and no transfer waits for that.
        self._filesystem_lock = threading.Lock()
        self._filesystem: Optional[Tuple[Credentials, Any]] = None
        self._stays = False
        self._plain = PlainRequests(self.patience.request.total_seconds(), authorities, verify)

    def __repr__(self) -> str:
        return f"S3Access({self.endpoint!r})"

    def credentials(self) -> Credentials:
        """The credentials of now.

        Raises:
            StoreUnreachable: there are none.
        """
        with self._lock:
            if self._known is None or time.monotonic() - self._known_since > _FRESH_SECONDS:
                self._known = _usable(self._source(False))
                self._known_since = time.monotonic()
            return self._known

    def known_credentials(self) -> Optional[Credentials]:
        """The credentials of now where they are known; None where their source would have to be looked at.

        It waits for nobody, as who moves many files at a time needs it.
        """
        # The time first: who renews sets it last, so that what is read after it is as new as it says, or newer.
        since = self._known_since
        known = self._known
        return None if time.monotonic() - since > _FRESH_SECONDS else known

    def renew(self, denied: Credentials) -> bool:
        """Answer whether there are other credentials than those that were denied; the source is looked at for them.

        Of many requests that were denied together the first one has it looked at; the others find what it has found.

        Args:
            denied: what the request was signed with.
        """
        with self._lock:
            if self._known is None or self._known == denied:
                self._known = _usable(self._source(True))
                self._known_since = time.monotonic()
            return self._known != denied

    def variables(self) -> Dict[str, str]:
        """The variables by which another process has the same access. What could be mixed in of another is set too."""
        credentials = self.credentials()
        values = (credentials.key, credentials.secret, credentials.token)
        known = {
            **dict(zip(CREDENTIALS, values)),
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }
        return {**known, "AWS_CA_BUNDLE": self._authorities} if self._authorities else known

    def require_no_redirect(self, bucket: str) -> None:
        """Find out, once, that the server does not send its clients to another one.

        Raises:
            StoreUnreachable: it does.
            OSError: it did not answer.
        """
        if self._stays:
            return
        elsewhere = redirect_of(self._plain, f"{self.endpoint}/{bucket}")
        if elsewhere is not None:
            raise StoreUnreachable(
                f"the server at {self.endpoint} sends its clients on to {elsewhere}, where no credentials are sent; if "
                "that is the right one, name it as the endpoint"
            )
        self._stays = True

    def bucket(self, name: str, credentials: Credentials) -> Bucket:
        """The client for ledgers. It signs with these credentials for ever."""
        options: Any = {
            "allow_http": self.endpoint.startswith("http:"),
            "allow_invalid_certificates": not self._verify,
            "connect_timeout": min(_CONNECT, self.patience.request),
            "timeout": self.patience.request,
        }
        if self._authorities:
            with open(self._authorities, "rb") as file:
                options["root_certificate"] = file.read()
        if not proxy_of(self.endpoint):
            # It follows redirects, with the session token and to any host, however late a server begins with them.
            options.update(proxy_url=_NOWHERE, proxy_excludes=urlsplit(self.endpoint).hostname)
        client: Bucket = load_library("obstore.store").S3Store(
            name,
            endpoint=self.endpoint,
            region=self.region,
            virtual_hosted_style_request=False,
            # Handed over so that none are looked for in the environment beside them.
            credential_provider=lambda: {
                "access_key_id": credentials.key,
                "secret_access_key": credentials.secret,
                "token": credentials.token or None,
                "expires_at": None,
            },
            client_options=options,
            # Who retries must know whether the first try may have had its effect: we do that ourselves.
            retry_config={"max_retries": 0},
        )
        return client

    def page(self, bucket: str, parameters: Mapping[str, str]) -> ListingPage:
        """One page of a listing, by neither client.

        Args:
            bucket: the bucket.
            parameters: those of ListObjectsV2.

        Raises:
            Garbled: the answer is no page of a listing.
            Answered: the server says no.
            OSError: it does not answer.
        """
        auth, request = load_library("botocore.auth"), load_library("botocore.awsrequest")
        own = self.credentials()
        signer = auth.S3SigV4Auth(
            load_library("botocore.credentials").Credentials(own.key, own.secret, own.token or None), "s3", self.region
        )
        # Written out, so that what is signed is what is sent, a default port too.
        host = {"Host": urlsplit(self.endpoint).netloc}
        signed = request.AWSRequest("GET", f"{self.endpoint}/{bucket}?{query_of(parameters)}", headers=host)
        signer.add_auth(signed)
        return ListingPage.read(self._plain.ask("GET", signed.url, dict(signed.headers.items())))

    def filesystem(self, credentials: Credentials) -> Any:
        """The s3fs file system for saves, which signs with these credentials; the last one is kept."""
        with self._filesystem_lock:
            if self._filesystem is None or self._filesystem[0] != credentials:
                seconds = self.patience.request.total_seconds()
                made = load_library("s3fs").S3FileSystem(
                    key=credentials.key,
                    secret=credentials.secret,
                    token=credentials.token or None,
                    endpoint_url=self.endpoint,
                    client_kwargs={
                        "region_name": self.region,
                        "verify": (self._authorities or True) if self._verify else False,
                    },
                    config_kwargs={
                        "http_session_cls": straight(load_library("aiobotocore.httpsession").AIOHTTPSession),
                        "connect_timeout": min(_CONNECT.total_seconds(), seconds),
                        "read_timeout": seconds,
                        "retries": {"max_attempts": 3, "mode": "standard"},
                        # What is sent carries its MD5, which is signed: the server refuses other bytes. One more hash
                        # of them for the signature takes as long as a fast network does.
                        "s3": {"addressing_style": "path", "payload_signing_enabled": False},
                        # Not every server knows the newer checksums; each save is verified by its own digests.
                        "request_checksum_calculation": "when_required",
                        "response_checksum_validation": "when_required",
                    },
                    use_listings_cache=False,
                    skip_instance_cache=True,
                )
                made.retries = 1  # The transfer itself is tried again, as a whole.
                self._filesystem = (credentials, made)
            return self._filesystem[1]


def _usable(credentials: Credentials) -> Credentials:
    """Return credentials that a request can carry.

    Raises:
        StoreUnreachable: they hold what no header may, such as the end of the line of a file that they were read from.
    """
    for what, value in (("key", credentials.key), ("secret key", credentials.secret), ("token", credentials.token)):
        if not (value.isascii() and value.isprintable()):
            raise StoreUnreachable(
                f"the {what} of the credentials of S3 holds a character that no request can carry, such as a newline "
                "at its end; write it anew"
            )
    return credentials


def load_library(name: str) -> Any:
    """Import a client's library, now that a root needs it.

    Raises:
        StoreUnreachable: it is not installed here.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise StoreUnreachable(
            f"a root on S3 needs {error.name or name}, which is not installed here; pip install obstore s3fs"
        ) from None
