"""A process's environment as access to object stores: variables, profiles and roles, as botocore looks for them."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from prefect_dispatch.errors import StoreUnreachable
from prefect_dispatch.stores.s3_access import CREDENTIALS, S3Access
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_patience import S3Patience

_FROM_FILES = ("shared-credentials-file", "config-file")
_WHERE = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, where this runs"


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
        key, secret, token = (self._environment.get(name, "") for name in CREDENTIALS)
        if key and secret:
            return Credentials(key, secret, token)
        found = None if again else self._renewing
        if found is None:
            try:
                found = self._open().get_credentials()
            except Exception as error:
                raise StoreUnreachable(
                    f"the credentials of S3 cannot be read: {type(error).__name__}; {_WHERE}"
                ) from None
        if found is None:
            raise StoreUnreachable(f"there are no credentials for S3; {_WHERE}")
        if found.method not in _FROM_FILES:
            self._renewing = found
        try:
            frozen = found.get_frozen_credentials()
        except Exception as error:
            raise StoreUnreachable(
                f"the credentials of S3 cannot be renewed: {type(error).__name__}; {_WHERE}"
            ) from None
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
