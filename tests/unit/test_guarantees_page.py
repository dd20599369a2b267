"""docs/guarantees.md names tests and checks that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import prefect_dispatch.testing.simulator

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "guarantees.md"
SIMULATOR = Path(prefect_dispatch.testing.simulator.__file__).parent


@pytest.fixture
def page() -> str:
    return PAGE.read_text()


def test_every_guarantee_has_its_place(page: str) -> None:
    assert re.findall(r"^## (\d+)\. ", page, re.MULTILINE) == [str(number) for number in range(1, 14)]


def test_every_test_that_is_named_is_there(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)((?:::\w+)+)`", page)
    missing = [
        f"{file}::{name}"
        for file, names in named
        for name in names.strip(":").split("::")
        if not re.search(rf"^ *(?:async )?(?:def|class) {name}\b", (REPOSITORY / file).read_text(), re.MULTILINE)
    ]
    assert len(named) > 30
    assert missing == []


def test_every_check_of_the_simulator_that_is_named_is_there(page: str) -> None:
    source = "\n".join(file.read_text() for file in SIMULATOR.glob("*.py"))
    named = set(re.findall(r"`(g\d+_\w+)`", page))
    assert len(named) > 5
    assert [name for name in named if name not in source] == []
