"""Access to object stores: the one place where a block or the environment becomes the settings of both clients."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from prefect_dispatch.errors import StoreUnreachable, UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.durations import parse_duration
from prefect_dispatch.format.printable import printable
from prefect_dispatch.stores.s3_place import SCHEME

if TYPE_CHECKING:
    from obstore.store import S3Store as Bucket

DEFAULT_REGION = "us-east-1"
TIMEOUT = "DISPATCH_S3_TIMEOUT"
"""How long one request may take."""
RETRY = "DISPATCH_S3_RETRY"
"""For how long a request that failed is tried again."""
_CONNECT = timedelta(seconds=5)
_FRESH_SECONDS = 60.0
"""For how long credentials are used before their source is looked at again; a file may be renewed at any time."""
_NOWHERE = "http://127.0.0.1:1"
"""No proxy listens there. Whatever is not the endpoint's host is sent to it, so that no redirect leads anywhere."""
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_FROM_FILES = ("shared-credentials-file", "config-file")


class Credentials:
    """What requests are signed with. Nothing that is printed of it says what it holds.

    Args:
        key: the access key's id.
        secret: the secret key.
        token: the session token of temporary credentials; empty for others.
    """

    __slots__ = ("key", "secret", "token")

    def __init__(self, key: str, secret: str, token: str = "") -> None:
        self.key = key
        self.secret = secret
        self.token = token

    def __repr__(self) -> str:
        return "Credentials(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Credentials) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def _all(self) -> Tuple[str, str, str]:
        return self.key, self.secret, self.token


@dataclass(frozen=True)
class S3Patience:
    """How long a store is waited for.

    Args:
        request: how long one request may take.
        retry: for how long a request that failed is tried again.
    """

    request: timedelta = timedelta(seconds=30)
    retry: timedelta = timedelta(seconds=30)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> S3Patience:
        """As the environment says.

        Raises:
            UsageError: a variable is no duration.
        """
        given = {}
        for name, variable in (("request", TIMEOUT), ("retry", RETRY)):
            text = environment.get(variable, "")
            try:
                given[name] = parse_duration(text) if text else getattr(cls, name)
            except UsageError as error:
                raise UsageError(f"{variable}: {error}") from None
        if not given["request"]:
            raise UsageError(f"{TIMEOUT} is no time at all; give at least a second")
        return cls(**given)


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
        UsageError: the endpoint is no URL.
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
        self.endpoint = check_endpoint(endpoint) if endpoint else _amazon(self.region)
        self.patience = patience or S3Patience()
        self._source = source
        self._authorities = authorities
        self._verify = verify
        self._lock = threading.Lock()
        self._known: Optional[Credentials] = None
        self._known_since = 0.0
        self._filesystem: Optional[Tuple[Credentials, Any]] = None

    def __repr__(self) -> str:
        return f"S3Access({self.endpoint!r})"

    def credentials(self) -> Credentials:
        """The credentials of now.

        Raises:
            StoreUnreachable: there are none.
        """
        with self._lock:
            if self._known is None or time.monotonic() - self._known_since > _FRESH_SECONDS:
                self._known = self._source(False)
                self._known_since = time.monotonic()
            return self._known

    def renew(self) -> bool:
        """Look at the source again, after a request was denied. Answers whether it has other credentials by now."""
        with self._lock:
            before, self._known = self._known, self._source(True)
            self._known_since = time.monotonic()
            return self._known != before

    def variables(self) -> Dict[str, str]:
        """The variables by which another process has the same access. What could be mixed in of another is set too."""
        credentials = self.credentials()
        values = (credentials.key, credentials.secret, credentials.token)
        known = {
            **dict(zip(_CREDENTIALS, values)),
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }
        return {**known, "AWS_CA_BUNDLE": self._authorities} if self._authorities else known

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
        if not _has_proxy(self.endpoint):
            # It follows redirects, with the session token and to any host.
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

    def filesystem(self) -> Any:
        """The s3fs file system for saves; another one when the credentials are others."""
        credentials = self.credentials()
        with self._lock:
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
                        "connect_timeout": min(_CONNECT.total_seconds(), seconds),
                        "read_timeout": seconds,
                        "retries": {"max_attempts": 3, "mode": "standard"},
                        "s3": {"addressing_style": "path"},
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


def check_endpoint(endpoint: str) -> str:
    """Return an endpoint's URL without a '/' at its end.

    Raises:
        UsageError: it is no URL of a server, or holds credentials.
    """
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        usable = usable and not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        usable = False
    if not usable:
        shown = "it" if "@" in endpoint else printable(repr(endpoint), 200)
        raise UsageError(f"endpoint: {shown} is no URL of a server; write https://HOST or http://HOST:PORT")
    return endpoint.rstrip("/")


def access_of_environment(environment: Optional[Mapping[str, str]] = None) -> S3Access:
    """Access by the standard ``AWS_*`` variables, profiles and roles, as botocore looks for them.

    Raises:
        UsageError: a variable cannot be used.
    """
    given = os.environ if environment is None else environment
    session = _Session(given)
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION") or session.setting("region")
    endpoint = given.get("AWS_ENDPOINT_URL_S3") or given.get("AWS_ENDPOINT_URL") or session.setting("endpoint")
    return S3Access(
        endpoint,
        region,
        session.credentials,
        given.get("AWS_CA_BUNDLE", ""),
        patience=S3Patience.of_environment(given),
    )


class _Session:
    """What botocore finds in the environment, in files and with the machine's own role.

    Keys in the environment come before all else, as with botocore, which then need not be loaded.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._renewing: Any = None

    def credentials(self, again: bool) -> Credentials:
        key, secret, token = (self._environment.get(name, "") for name in _CREDENTIALS)
        if key and secret:
            return Credentials(key, secret, token)
        found = None if again else self._renewing
        if found is None:
            try:
                found = self._open().get_credentials()
            except Exception as error:
                raise StoreUnreachable(f"the credentials of S3 cannot be read: {_kind(error)}; {_WHERE}") from None
        if found is None:
            raise StoreUnreachable(f"there are no credentials for S3; {_WHERE}")
        if found.method not in _FROM_FILES:
            self._renewing = found
        try:
            frozen = found.get_frozen_credentials()
        except Exception as error:
            raise StoreUnreachable(f"the credentials of S3 cannot be renewed: {_kind(error)}; {_WHERE}") from None
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token or "")

    def setting(self, name: str) -> str:
        """A setting of the profile, where there is one to be read."""
        given = self._environment
        if not given.get("AWS_PROFILE") and given.get("AWS_ACCESS_KEY_ID"):
            return ""
        try:
            profile = self._open().get_scoped_config()
        except Exception:
            return ""
        value = profile.get({"region": "region", "endpoint": "endpoint_url"}[name], "")
        return value if isinstance(value, str) else ""

    def _open(self) -> Any:
        import botocore.session

        return botocore.session.Session()


_WHERE = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, where this runs"

_accesses: Dict[str, S3Access] = {}


def use_access(root: str, access: S3Access) -> None:
    """From now on reach a root, and all below it, by this access, in this process."""
    _accesses[root.rstrip("/")] = access


def variables_for(url: str) -> Dict[str, str]:
    """The variables by which a job reaches a root as this process does; none where it has the environment's own.

    Raises:
        StoreUnreachable: there are no credentials.
    """
    access = _told_for(url)
    return {} if access is None else access.variables()


def access_for(url: str) -> S3Access:
    """The access by which a root is reached: the one that was told for it, or for the nearest above; else the
    environment's.

    Raises:
        UsageError: the environment cannot be used.
    """
    return _told_for(url) or access_of_environment()


def _told_for(url: str) -> Optional[S3Access]:
    place = url.rstrip("/")
    while len(place) > len(SCHEME):
        if place in _accesses:
            return _accesses[place]
        place = place.rpartition("/")[0]
    return None


def _amazon(region: str) -> str:
    return f"https://s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"


def _has_proxy(endpoint: str) -> bool:
    """Whether requests to an endpoint go through a proxy that the environment names."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(endpoint)
    proxies = getproxies()
    named = proxies.get(parts.scheme) or proxies.get("all")
    return bool(named) and not proxy_bypass(parts.hostname or "")


def _kind(error: Union[Exception, type]) -> str:
    """The kind of an error of botocore, whose own text may hold what must not be shown."""
    return type(error).__name__
