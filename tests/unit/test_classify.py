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
ASKED = LastWord(claimed=True, program_started=True, asked=True)
ASKED_BEFORE_IT_STARTED = LastWord(claimed=True, program_started=False, asked=True)
ASKED_AND_SILENT = LastWord(claimed=True, asked=True)
GUARDIAN_LOST = LastWord(claimed=True, program_started=True, exit_known=False, code=1)
DONE_BEFORE_IT_WAS_LOST = LastWord(claimed=True, program_started=True, code=0)


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
        (195, None, RAN, Cause.PREEMPTED),
        (195, None, None, Cause.PREEMPTED),
        (0, None, ASKED, Cause.PREEMPTED),
        (0, None, ASKED_AND_SILENT, Cause.PREEMPTED),
        (1, None, ASKED, Cause.PREEMPTED),
        (143, None, ASKED, Cause.PREEMPTED),
        (143, None, ASKED_BEFORE_IT_STARTED, Cause.PREEMPTED),
        (None, 15, ASKED, Cause.PREEMPTED),
        (None, 9, ASKED_AND_SILENT, Cause.VANISHED),
        (194, None, ASKED, Cause.UNPUBLISHABLE),
        (None, 9, SILENT, Cause.VANISHED),
        (70, None, SILENT, Cause.VANISHED),
        (1, None, GUARDIAN_LOST, Cause.VANISHED),
        (None, 9, DONE_BEFORE_IT_WAS_LOST, Cause.COMPLETED),
        (2, None, RAN, Cause.FAILED),
        (65, None, NEVER_STARTED, Cause.LAUNCH_FAILED),
    ],
)
def test_an_exit_is_told_by_code_and_root(
    code: int | None, signal: int | None, word: LastWord | None, cause: Cause
) -> None:
    assert cause_of(EndedRestart(restart=0, exit=Exit(code=code, signal=signal)), word) is cause


def test_who_was_asked_to_save_and_did_is_suspended_if_the_asking_was_ours() -> None:
    ended = EndedRestart(restart=0, exit=Exit(code=195))
    assert cause_of(ended, None, suspended=True) is Cause.SUSPENDED


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
