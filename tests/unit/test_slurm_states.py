"""Slurm's words for states: each has its meaning, here and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.schedulers.slurm.states import MEANINGS, canceller_of, meaning_of, word_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "slurm.md"
ROW = re.compile(r"^\| `([A-Z_]+)` \| (\w+) \| (.*?) \| (.*?) \|$", re.MULTILINE)
PRINTED_22_05_TO_25_11 = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "COMPLETING",
    "CONFIGURING",
    "DEADLINE",
    "EXPEDITING",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "PREEMPTED",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESIZING",
    "RESV_DEL_HOLD",
    "REVOKED",
    "RUNNING",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
    "TIMEOUT",
}
"""What ``job_state_string()`` of Slurm 22.05 and of 25.11 can return (src/common/slurm_protocol_defs.c)."""
FLAGS_OF_25_11 = {
    "LAUNCH_FAILED",
    "POWER_UP_NODE",
    "RECONFIG_FAIL",
    "UPDATE_DB",
}
"""Further words of the page "Job State Codes" of 25.11."""


def test_the_table_of_the_documentation_is_the_table_of_the_code():
    # given
    rows = ROW.findall(PAGE.read_text())
    # when / then
    told = {word: (state, cause.strip("`") or "-") for word, state, cause, _ in rows}
    assert told == {
        word: (each.state.value, each.cause.value if each.cause else "-") for word, each in MEANINGS.items()
    }


def test_every_word_that_slurm_prints_has_a_meaning():
    assert set(MEANINGS) == {*PRINTED_22_05_TO_25_11, *FLAGS_OF_25_11}


@pytest.mark.parametrize("word", ["HIBERNATING", "", "running", "COMPLETED,CLOUD", "\x1b[1m"])
def test_a_word_that_nobody_knows_is_unknown_and_never_an_end(word):
    assert meaning_of(word).state is ObjectState.UNKNOWN
    assert meaning_of(word).cause is None


def test_only_what_is_over_has_a_cause():
    for word, meaning in MEANINGS.items():
        assert meaning.cause is None or meaning.state is ObjectState.ENDED, word
        assert meaning.why
    assert MEANINGS["OUT_OF_MEMORY"].cause is Cause.OUT_OF_MEMORY
    assert MEANINGS["NODE_FAIL"].cause is Cause.NODE_LOST
    assert MEANINGS["COMPLETING"].state is ObjectState.ENDING


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("CANCELLED by 1000", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY"),
        ("NODE_FAIL", "NODE_FAIL"),
        ("COMPLET+", "COMPLET+"),  # COMPLETED or COMPLETING
        ("RE+", "RE+"),
    ],
)
def test_what_is_said_around_a_word_is_taken_off(text, word):
    assert word_of(text) == word


def test_who_cancelled_it_is_told_where_slurm_tells():
    assert canceller_of("CANCELLED by 1000") == 1000
    assert canceller_of("CANCELLED by 0") == 0
    assert canceller_of("CANCELLED") is None
    assert canceller_of("FAILED") is None
