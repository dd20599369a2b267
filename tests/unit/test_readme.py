"""What the README shows is true."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from prefect_dispatch.format.saves import SaveKind
from prefect_dispatch.model.causes import Action, Cause
from prefect_dispatch.model.recovery import DEFAULT_RULES, Rule
from prefect_dispatch.model.spec import Cancelation, JobSpec, Resources
from prefect_dispatch.schedulers.registry import LocalSettings

TREE = Path(__file__).resolve().parents[2]
README = (TREE / "README.md").read_text()
SET_UP = "python3 -m venv --without-pip .venv && python3 -m pip --python .venv install "


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_two_commands_do_everything_and_ci_runs_the_second_as_it_is() -> None:
    # given the README's commands, then each is one line that sets the machine up and does its work
    demo, tests, _ = blocks("sh")
    assert demo == f"{SET_UP}'.[demo]' && .venv/bin/prefect-dispatch demo\n"
    assert tests == f"{SET_UP}-e '.[test]' && .venv/bin/python -m pytest -n 3\n"
    # and what CI takes out of the README is the second
    script = (TREE / ".ci" / "run").read_text()
    assert "command=$(grep -e '-m pytest' README.md)" in script
    assert [line for line in README.splitlines() if "-m pytest" in line] == [tests.strip()]


def test_the_job_is_valid() -> None:
    [text] = blocks("yaml")
    spec = JobSpec.read(yaml.safe_load(text), "README.md")
    assert spec.lineage == "first"
    assert spec.recovery.no_progress == 3


def test_every_field_cause_and_action_of_a_job_is_documented() -> None:
    page = (TREE / "docs" / "job.md").read_text()
    fields = {name for model in (JobSpec, Resources, Cancelation, Rule, LocalSettings) for name in model.model_fields}
    words = {
        *fields - {"type"},
        *map(str, Cause),
        *(kind.value for kind in SaveKind),
        "no_progress",
        "final_exit_codes",
    }
    actions = {str(action) for action in Action} - {"finish"}
    assert sorted(word for word in words | actions if f"`{word}`" not in page) == []


def test_the_documented_defaults_are_the_real_ones() -> None:
    page = (TREE / "docs" / "job.md").read_text()
    for cause in (Cause.PREEMPTED, Cause.NODE_LOST, Cause.TIMED_OUT, Cause.LAUNCH_FAILED, Cause.VANISHED):
        rule = DEFAULT_RULES[cause]
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{cause}` ")]
        assert f"`{rule.action}`, {rule.budget}" in row
