"""A scene of crashes whose root and record are in a bucket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.s3_accesses import use_access
from prefect_dispatch.supervisor.places import open_lineage_root
from support.crash.child import IN_A_BUCKET, LINEAGE
from support.crash.scene import Scene
from support.crash.supervisors import Supervisors
from support.root_faults import faults_of
from support.s3.access import access_to, new_url
from support.s3.server import Server


@dataclass
class BucketScene(Scene):
    """One lineage on real parts, in a folder and at a URL of its own."""

    url: str = ""

    @classmethod
    def at(cls, server: Server, folder: Path, supervisors: Supervisors) -> BucketScene:
        url = new_url(server, "crashes")
        use_access(url, access_to(server))
        (folder / "url").write_text(url)
        return cls(folder, IN_A_BUCKET, supervisors, variables=server.environment(), url=url)

    @property
    def record_root(self) -> str:
        return f"{self.url}/record"

    @property
    def lineage_root(self) -> LineageRoot:
        return open_lineage_root(f"{self.url}/root", LINEAGE)

    def check(self) -> None:
        root = self.lineage_root
        if root.store.ledger("").names():
            assert faults_of(root) == []
        self._check_published({publication.name for publication in root.publications()})

    def _weights(self, publication: Publication | None) -> str:
        assert publication is not None
        return self.lineage_root.store.ledger(publication.path).read("weights").decode()
