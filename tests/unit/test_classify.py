"""The cause of an end: the scheduler's word, then the helper's, then the exit; unknown is never success."""

from __future__ import annotations

import pytest

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.classify import LastWord, cause_of
from prefect_dispatch.model.observation import EndedRestart, Exit

RAN = LastWord(claimed=True, program_started=True)
NEVER_CLAIMED = LastWord(claimed=False)
NEVER_STARTED = LastWord(claimed=True, program_started=False)
SILENT = LastWord(claimed=True)


@pytest.mark.parametrize(
    ("code", "signal", "word", "cause"),
    [
        (0, None, RAN, Cause.COMPLETED),
        (0, None, SILENT, Cause.COMPLETED),
        (0, None, None, Cause.COMPLETED),
        (0, None, NEVER_CLAIMED, Cause.LAUNCH_FAILED),
        (0, None, NEVER_STARTED, Cause.LAUNCH_FAILED),
        (1, None, RAN, Cause.FAILED),
        (1, None, None, Cause.FAILED),
        (1, None, SILENT, Cause.FAILED),
        (1, None, NEVER_CLAIMED, Cause.LAUNCH_FAILED),
        (127, None, NEVER_STARTED, Cause.LAUNCH_FAILED),
        (None, 9, RAN, Cause.FAILED),
        (None, 9, NEVER_CLAIMED, Cause.LAUNCH_FAILED),
        (190, None, NEVER_CLAIMED, Cause.DUPLICATE),
        (191, None, NEVER_STARTED, Cause.UNUSABLE_CHECKPOINT),
        (192, None, NEVER_STARTED, Cause.IDENTITY_CHANGED),
        (193, None, RAN, Cause.DEADLINE),
        (194, None, RAN, Cause.UNPUBLISHABLE),
        (195, None, RAN, Cause.SUSPENDED),
        (2, None, RAN, Cause.FAILED),
        (65, None, NEVER_STARTED, Cause.LAUNCH_FAILED),
    ],
)
def test_an_exit_is_told_by_code_and_root(
    code: int | None, signal: int | None, word: LastWord | None, cause: Cause
) -> None:
    assert cause_of(EndedRestart(restart=0, exit=Exit(code=code, signal=signal)), word) is cause


@pytest.mark.parametrize("cause", [Cause.NODE_LOST, Cause.PREEMPTED, Cause.STOPPED, Cause.OUT_OF_MEMORY])
def test_the_scheduler_s_word_beats_an_exit_of_0(cause: Cause) -> None:
    assert cause_of(EndedRestart(restart=0, cause=cause, exit=Exit(code=0)), RAN) is cause


def test_an_end_that_nobody_explains_is_no_success() -> None:
    assert cause_of(EndedRestart(restart=0), RAN) is Cause.VANISHED


@pytest.mark.parametrize("code", [2, 65, 69, 70, 74])
def test_a_code_of_the_helper_is_not_charged_to_the_program_while_the_root_is_silent(code):
    ended = EndedRestart(restart=0, exit=Exit(code=code))
    assert cause_of(ended, None) is Cause.LAUNCH_FAILED
    assert cause_of(ended, LastWord(claimed=True, program_started=True)) is Cause.FAILED
