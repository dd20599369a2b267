"""From a credentials block to access to object stores."""

from __future__ import annotations

import os
import time

from prefect_aws.credentials import AwsCredentials, MinIOCredentials

from prefect_dispatch.errors import StoreUnreachable, UsageError
from prefect_dispatch.stores.s3_access import S3Access
from prefect_dispatch.stores.s3_credentials import Credentials
from prefect_dispatch.stores.s3_patience import S3Patience

ASSUMED_SECONDS = 600.0
"""For how long what a block answered is used: a role can be assumed for a quarter of an hour at the least."""


def access_of_block(block: AwsCredentials | MinIOCredentials) -> S3Access:
    """Access by a block: its endpoint, its region and its keys, and nothing of the environment beside them.

    Raises:
        UsageError: it is a MinIO server's and has no endpoint, or its endpoint is no URL.
    """
    parameters = block.aws_client_parameters
    if isinstance(block, MinIOCredentials) and not parameters.endpoint_url:
        raise UsageError("credentials: a MinIO server needs aws_client_parameters.endpoint_url; set it in the block")
    authorities = parameters.verify_cert_path
    if authorities is None and not isinstance(parameters.verify, bool):
        authorities = parameters.verify
    return S3Access(
        parameters.endpoint_url or "",
        block.region_name or "",
        _Source(block),
        "" if authorities is None else str(authorities),
        parameters.verify is not False,
        S3Patience.of_environment(os.environ),
    )


class _Source:
    """The keys that a block stands for: its own, or those of a role that it assumes."""

    def __init__(self, block: AwsCredentials | MinIOCredentials) -> None:
        self._block = block
        self._known: Credentials | None = None
        self._since = 0.0

    def __call__(self, again: bool) -> Credentials:
        if again or self._known is None or time.monotonic() - self._since > ASSUMED_SECONDS:
            try:
                found = self._block.get_boto3_session().get_credentials()
                frozen = None if found is None else found.get_frozen_credentials()
            except Exception as error:
                # Its own text may hold what must not be shown.
                raise StoreUnreachable(
                    f"the credentials block cannot be used: {type(error).__name__}; check its keys, profile and role"
                ) from None
            if frozen is None or not frozen.access_key or not frozen.secret_key:
                raise StoreUnreachable("the credentials block has no keys, and finds none; set them in the block")
            self._known = Credentials(frozen.access_key, frozen.secret_key, frozen.token or "")
            self._since = time.monotonic()
        return self._known
