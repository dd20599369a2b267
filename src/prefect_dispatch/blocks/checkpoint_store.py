"""The block that says where checkpoints and records are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
from prefect.blocks.core import Block
from pydantic import Field, HttpUrl

from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.lineage_root import LineageRoot
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

    root: str = Field(description="The folder of all checkpoints as jobs see it, absolute on their machines.")
    record_root: str | None = Field(
        default=None,
        description="The folder of the records as supervisors see it; the root where left empty. "
        "Set it where jobs are not trusted or their file system is not reachable.",
    )

    @property
    def checkpoint_root(self) -> str:
        """The folder of all checkpoints, absolute.

        Raises:
            UsageError: it is a URL of a store that this version does not have.
        """
        return absolute_root(self.root, Path.cwd())

    @property
    def records(self) -> str:
        """The folder of the records, absolute.

        Raises:
            UsageError: it is a URL of a store that this version does not have.
        """
        return self.checkpoint_root if self.record_root is None else absolute_root(self.record_root, Path.cwd())

    def open(self, lineage: str) -> LineageRoot:
        """The checkpoint root of one lineage.

        Raises:
            UsageError: the name is no lineage's, or this version has no such store.
        """
        return open_lineage_root(self.checkpoint_root, lineage)

    def filesystem(self) -> Any:
        """An fsspec file system whose top is the root, for looking at saves. Ledgers are not written through it."""
        return fsspec.filesystem("dir", path=self.checkpoint_root, fs=fsspec.filesystem("file"))

    def publications(self, lineage: str) -> list[Publication]:
        """All publications of a lineage, in order: the greatest epoch, then step, comes last.

        Raises:
            MalformedName: a name in its ``pub/`` is no publication's.
        """
        return self.open(lineage).publications()
