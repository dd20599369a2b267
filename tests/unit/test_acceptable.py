"""What is refused of a job before anything of it is written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from prefect_dispatch.cli.job_file import resolve_job
from prefect_dispatch.errors import DispatchError, SpecError
from prefect_dispatch.supervisor.acceptable import check_acceptable


def check(folder: Path, root: str, **fields: Any) -> None:
    path = folder / "job.yaml"
    scheduler = {"type": "slurm", "command_prefix": ["true"]}
    spec = {"lineage": "digits", "command": ["true"], "store": {"root": root}, "scheduler": scheduler, **fields}
    path.write_text(yaml.safe_dump(spec))
    check_acceptable(resolve_job(path))


def test_nodes_that_share_no_workplace_are_refused_for_a_root_in_a_bucket(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="nodes 2 with the root s3://bucket/runs needs a workplace"):
        check(tmp_path, "s3://bucket/runs", resources={"nodes": 2})


@pytest.mark.parametrize(
    ("root", "fields"),
    [
        ("runs", {"resources": {"nodes": 2}}),
        ("s3://bucket/runs", {"resources": {"nodes": 1}}),
        ("s3://bucket/runs", {"resources": {"nodes": 2}, "workplace": "/shared/work"}),
    ],
)
def test_no_others_are(tmp_path: Path, root: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # given an endpoint where nobody listens, so that a bucket cannot be reached
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("DISPATCH_S3_RETRY", "1s")
    try:
        check(tmp_path, root, **fields)
    except DispatchError as error:
        assert "workplace" not in str(error)
