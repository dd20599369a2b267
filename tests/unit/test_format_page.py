"""docs/format.md is true to the code, as far as a program can compare them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from prefect_dispatch.format import contract
from prefect_dispatch.format.completion import MAX_KEY_BYTES
from prefect_dispatch.format.documents import FORMAT
from prefect_dispatch.format.epoch import MAX_GENERATION, Epoch
from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.format.journal import JournalKind
from prefect_dispatch.format.manifest import Manifest
from prefect_dispatch.format.names import MAX_PATH_BYTES
from prefect_dispatch.format.submission import Submission
from prefect_dispatch.stores.completions import MAX_COMPLETION_BYTES

PAGE = Path(__file__).parents[2] / "docs" / "format.md"


@pytest.fixture
def page() -> str:
    if not PAGE.exists():
        pytest.skip("the documentation is not here")
    return PAGE.read_text()


def section(page: str, title: str) -> str:
    return page.split(f". {title}\n", 1)[1].split("\n## ", 1)[0]


def table(text: str) -> list[list[str]]:
    rows = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in re.findall(r"^\|.*\|$", text, re.M)]
    return rows[2:]


def examples(page: str) -> list[bytes]:
    return [block.encode() for block in re.findall(r"```json\n(.*?)```", page, re.S)]


def test_the_exit_codes_are_all_there(page):
    assert {int(row[0]) for row in table(section(page, "Exit codes"))} == {int(code) for code in ExitCode}


def test_the_contract_is_all_there(page):
    documented = {row[0].strip("`") for row in table(section(page, "The contract"))}
    program = contract.Contract("digits", "k3v7q2m5x4c6b7a2-0", Epoch(0, 1, 0), "/r", "/r/exec")
    assert documented == set(program.environment({}))


def test_the_example_of_a_submission_has_every_field(page):
    document = Submission.decode(examples(page)[1], "the example")
    assert json.loads(document.encode()).keys() == json.loads(examples(page)[1]).keys()
    rows = {name for row in table(section(page, "The submission")) for name in re.findall(r"`(\w+)`", row[0])}
    assert rows | {"format"} == json.loads(document.encode()).keys()


def test_the_example_of_a_manifest_has_every_field(page):
    manifest = Manifest.decode(examples(page)[0], "the example")
    assert json.loads(manifest.encode()) == json.loads(examples(page)[0])


def test_the_kinds_of_journal_entries_are_all_there(page):
    assert [
        kind.value for kind in JournalKind if f"`{kind.value}`" not in section(page, "Documents of the lineage's root")
    ] == []


def test_the_limits_are_the_codes(page):
    assert f"The format, version {FORMAT}" in page
    assert f"**{MAX_PATH_BYTES} bytes**" in page
    assert f"**{MAX_KEY_BYTES} bytes**" in page
    assert f"at most {MAX_COMPLETION_BYTES // 1024} KiB" in page
    assert f"0 to {MAX_GENERATION:,}" in page
