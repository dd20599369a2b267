"""Values of a job's environment are the job's alone: people see names at most."""

from __future__ import annotations

import yaml

from prefect_dispatch.cli.__main__ import main
from prefect_dispatch.cli.job_file import resolve_job
from prefect_dispatch.pictures.tables import plan_table
from prefect_dispatch.supervisor.assemble import plan_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import open_record

VALUE = "value-of-the-jobs-environment"


def test_values_of_the_environment_are_shown_nowhere(tmp_path, capsys, monkeypatch):
    # given a job with a value in its file, and a supervisor with one in its own environment
    monkeypatch.setenv("OPERATORS_KEY", VALUE)
    path = tmp_path / "job.yaml"
    job = {
        "lineage": "digits",
        "command": ["sh", "-c", "true"],
        "environment": {"WANDB_API_KEY": VALUE},
        "store": {"root": "runs"},
        "scheduler": {"type": "local", "state_folder": "state"},
    }
    path.write_text(yaml.safe_dump(job))
    resolved = resolve_job(path)
    record = open_record(resolved.record_root, "digits", SystemClock())
    open_lineage(record, resolved, plan_of(resolved))
    store = ["--store", str(tmp_path / "runs")]
    export = tmp_path / "export"
    # when
    for command in (
        ["plan", str(path)],
        ["plan", str(path), "--json"],
        ["record", "digits", *store],
        ["record", "digits", "--json", *store],
        ["record", "digits", "--export", str(export), *store],
        ["status", "digits", *store],
        ["status", "digits", "--json", *store],
        ["timeline", "digits", *store],
    ):
        assert main(command) == 0
    # then
    printed = capsys.readouterr()
    assert VALUE not in printed.out + printed.err + export.read_text() + str(plan_table(plan_of(resolved)))
    assert "WANDB_API_KEY" in printed.out
