"""The demo on the embedded default: no server is configured, nothing is prepared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.s3.access import new_url


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_the_demo_ends_as_the_same_run_although_it_was_taken_away_twice(tmp_path, environment, request, kind):
    # given
    variables = environment(PREFECT_HOME=str(tmp_path / "prefect"), DISPATCH_STATE=str(tmp_path / "state"))
    store = "runs"
    if kind == "bucket":
        server = request.getfixturevalue("s3_server")
        variables.update(server.environment())
        store = new_url(server, "demo")
    # when
    done = subprocess.run(
        [sys.executable, "-m", "prefect_dispatch.cli", "demo", "--json", "--seed", "11", "--store", store],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=280,
    )
    # then
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["equal"] is True
    assert result["final_digest"] == result["uninterrupted_digest"]
    assert [row["epoch"] for row in result["executions"]] == ["g0n1r0", "g0n2r0", "g0n3r0"]
    assert [row["cause"] for row in result["executions"]] == ["preempted", "preempted", "completed"]
    assert len(result["overlap_seconds"]) == 2
    assert min(result["overlap_seconds"]) > 2
    assert Path(result["timeline"]).read_text().startswith("<svg")
