"""What the README shows is true."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from prefect_dispatch.model.spec import JobSpec

TREE = Path(__file__).resolve().parents[2]
README = (TREE / "README.md").read_text()
SET_UP = "python3 -m venv --without-pip .venv && python3 -m pip --python .venv install "


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_two_commands_do_everything_and_ci_runs_the_second_as_it_is() -> None:
    # given the README's commands, then each is one line that sets the machine up and does its work
    demo, tests = blocks("sh")
    assert demo == f"{SET_UP}'.[demo]' && .venv/bin/prefect-dispatch demo\n"
    assert tests == f"{SET_UP}-e '.[test]' && .venv/bin/python -m pytest\n"
    # and what CI takes out of the README is the second
    script = (TREE / ".ci" / "run").read_text()
    assert "command=$(grep -e '-m pytest' README.md)" in script
    assert [line for line in README.splitlines() if "-m pytest" in line] == [tests.strip()]


def test_the_job_is_valid() -> None:
    [text] = blocks("yaml")
    spec = JobSpec.read(yaml.safe_load(text), "README.md")
    assert spec.lineage == "digits"
    assert spec.recovery.no_progress == 3
