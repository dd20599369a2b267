"""A process's environment as access to object stores: variables, profiles and roles, in botocore's order."""

from __future__ import annotations

import os
from typing import Any

from prefect_dispatch.errors import StoreUnreachable, UsageError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.stores.s3_access import CREDENTIALS, S3Access, load_library
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_patience import S3Patience

_FROM_FILES = ("shared-credentials-file", "config-file")
_WHERE = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, where this runs"


def access_of_environment() -> S3Access:
    """Access by this process's ``AWS_*`` variables, profiles and roles, in botocore's order.

    Raises:
        UsageError: a variable or the profile cannot be used.
        StoreUnreachable: botocore is not installed here.
    """
    given = os.environ
    session = _Session()
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION") or session.setting("region")
    endpoint = given.get("AWS_ENDPOINT_URL_S3") or given.get("AWS_ENDPOINT_URL") or session.setting("endpoint_url")
    return S3Access(
        endpoint,
        region,
        session.credentials,
        given.get("AWS_CA_BUNDLE", ""),
        patience=S3Patience.of_environment(given),
    )


class _Session:
    """What botocore finds in the environment, in files and with the machine's own role.

    Keys in the environment come before all else. Region and endpoint are the profile's wherever the keys are from.
    """

    def __init__(self) -> None:
        self._renewing: Any = None

    def credentials(self, again: bool) -> Credentials:
        key, secret, token = (os.environ.get(name, "") for name in CREDENTIALS)
        if key and secret:
            return Credentials(key, secret, token)
        found = None if again else self._renewing
        if found is None:
            session = _open()
            try:
                found = session.get_credentials()
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
        """A setting of the profile; empty where it has none.

        Raises:
            UsageError: there is no such profile, or its file cannot be read.
        """
        session = _open()
        try:
            value = session.get_scoped_config().get(name, "")
        except Exception as error:
            # Its own text may hold what the file holds.
            profile = printable(
                os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default", 100
            )
            raise UsageError(
                f"AWS profile {profile!r} cannot be used: {type(error).__name__}; see AWS_PROFILE and AWS_CONFIG_FILE"
            ) from None
        return value if isinstance(value, str) else ""


def _open() -> Any:
    return load_library("botocore.session").Session()
