"""The form of a hold: nothing that decides has a default, and an answer means one thing or nothing."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.facts import Resolution
from prefect_dispatch.tasks.hold_form import MOST_SAVES, HoldAnswer, form_of, read_answer


def save(step: int, path: str = "exec/a-0/x", n: int = 1) -> Publication:
    return Publication(Epoch(0, n, 0), step, path)


def test_only_the_choice_is_required_and_it_has_no_default():
    form = form_of([save(2), save(1)], "h3")
    schema = form.model_json_schema()
    assert schema["required"] == ["choice"]
    assert "default" not in schema["properties"]["choice"]
    for nonsense in ({}, {"choice": None}, {"choice": "Run again"}, {"note": "x"}, {"choice": "run again", "x": 1}):
        with pytest.raises(ValidationError):
            form(**nonsense)


def test_the_form_of_another_hold_is_refused_and_says_which():
    schema = form_of([], "h3").model_json_schema()["properties"]["about"]
    # The UI sends along what is a default, unasked.
    assert (schema["const"], schema["default"]) == ("hold h3", "hold h3")
    stale = {"choice": "run again", "about": "hold h1"}
    with pytest.raises(ValidationError, match="hold h3"):
        form_of([], "h3")(**stale)
    with pytest.raises(UsageError, match="the form was about 'hold h1', and asked was about hold h3"):
        read_answer(stale, [], "h3")
    assert read_answer({**stale, "about": "hold h3"}, [], "h3").resolution is Resolution.RUN_AGAIN


def test_there_are_never_more_saves_than_a_person_can_choose_from():
    form = form_of([save(step) for step in range(500, 0, -1)], "h3")
    choices = form.model_json_schema()["properties"]["choice"]["enum"]
    assert len(choices) == MOST_SAVES + 3
    assert choices[1] == "continue from g0n1r0 step 500"


def test_every_choice_of_a_form_can_be_read_again():
    saves = [save(2, "exec/a-0/x"), save(2, "exec/a-0/y"), save(1)]
    choices = form_of(saves, "h3").model_json_schema()["properties"]["choice"]["enum"]
    answers = [read_answer({"choice": choice, "note": "n", "name": "ada"}, saves, "h3") for choice in choices]
    assert [each.resolution for each in answers] == [
        Resolution.RUN_AGAIN,
        *[Resolution.CONTINUE_FROM] * 3,
        Resolution.FROM_SCRATCH,
        Resolution.STOP,
    ]
    assert [each.publication for each in answers[1:4]] == saves
    assert {(each.who, each.note) for each in answers} == {("ada", "n")}


def test_a_save_that_is_gone_is_no_choice_any_more():
    with pytest.raises(UsageError, match="continue from g0n1r0 step 2 is not possible: that save is not published"):
        read_answer({"choice": "continue from g0n1r0 step 2"}, [save(1)], "h3")


@pytest.mark.parametrize("values", [{}, {"choice": 7}, {"choice": "yes"}, {"choice": ["run again"]}])
def test_what_is_no_answer_is_none(values):
    with pytest.raises(UsageError, match="is no answer"):
        read_answer(values, [], "h3")


def test_what_a_person_writes_is_one_harmless_line():
    answer = read_answer({"choice": "run again", "note": "a\nb\x1b[31m", "name": None}, [], "h3")
    assert answer == HoldAnswer(Resolution.RUN_AGAIN, None, "", "a\\nb\\x1b[31m")
