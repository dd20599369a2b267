"""The block that says where checkpoints and records are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
from prefect.blocks.core import Block
from prefect_aws.credentials import AwsCredentials, MinIOCredentials
from pydantic import Field, HttpUrl

from prefect_dispatch.blocks.s3_credentials import access_of_block
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.opening import is_url
from prefect_dispatch.stores.s3_accesses import access_for, use_access
from prefect_dispatch.stores.s3_place import SCHEME
from prefect_dispatch.supervisor.places import absolute_root, open_lineage_root


class CheckpointStore(Block):
    """Where the checkpoints of jobs and the records of their lineages are.

    Example:
        Load a store and list what a lineage has published:

        ```python
        from prefect_dispatch.blocks import CheckpointStore

        store = CheckpointStore.load("BLOCK_NAME")
        for publication in store.publications("digits"):
            print(publication.epoch, publication.step, publication.path)
        ```
    """

    _block_type_name = "Checkpoint Store"
    _block_type_slug = "checkpoint-store"
    _documentation_url = HttpUrl("https://docs.prefect.io/v3/concepts/blocks")

    root: str = Field(
        description="The folder of all checkpoints as jobs see it, absolute on their machines; or s3://BUCKET/PREFIX."
    )
    record_root: str | None = Field(
        default=None,
        description="The folder or s3://BUCKET/PREFIX of the records as supervisors see it; the root where left empty. "
        "Set it where jobs are not trusted or their file system is not reachable.",
    )
    credentials: AwsCredentials | MinIOCredentials | None = Field(
        default=None,
        description="What opens the buckets, with its endpoint and region; the environment's AWS_* where left empty.",
    )

    @property
    def checkpoint_root(self) -> str:
        """The folder of all checkpoints, absolute; or its URL, which this process now reaches by the credentials.

        Raises:
            UsageError: it is a URL of no bucket, or the credentials lack an endpoint.
        """
        return self._admitted(self.root)

    @property
    def records(self) -> str:
        """The folder of the records, absolute; or its URL, likewise.

        Raises:
            UsageError: it is a URL of no bucket, or the credentials lack an endpoint.
        """
        return self._admitted(self.root if self.record_root is None else self.record_root)

    def open(self, lineage: str) -> LineageRoot:
        """The checkpoint root of one lineage.

        Raises:
            UsageError: the name is no lineage's, or the root is of no kind that there is.
        """
        return open_lineage_root(self.checkpoint_root, lineage)

    def filesystem(self) -> Any:
        """An fsspec file system whose top is the root, for looking at saves. Ledgers are not written through it."""
        root = self.checkpoint_root
        if not is_url(root):
            return fsspec.filesystem("dir", path=root, fs=fsspec.filesystem("file"))
        access = access_for(root)
        return fsspec.filesystem("dir", path=root.removeprefix(SCHEME), fs=access.filesystem(access.credentials()))

    def publications(self, lineage: str) -> list[Publication]:
        """All publications of a lineage, in order: the greatest epoch, then step, comes last.

        Raises:
            MalformedName: a name in its ``pub/`` is no publication's.
        """
        return self.open(lineage).publications()

    def _admitted(self, place: str) -> str:
        root = absolute_root(place, Path.cwd())
        if is_url(root) and self.credentials is not None:
            use_access(root, access_of_block(self.credentials))
        return root
