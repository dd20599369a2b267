"""The one switch of the long tests."""

from __future__ import annotations

import pytest

from support.full_form import VARIABLE, is_full


@pytest.mark.parametrize(("asked", "full"), [("full", True), ("", False)])
def test_the_full_form_is_asked_for_by_its_name(asked: str, full: bool) -> None:
    assert is_full(asked) is full


@pytest.mark.parametrize("asked", ["1", "true", "Full"])
def test_another_value_is_refused_since_who_set_it_wanted_more(asked: str) -> None:
    with pytest.raises(ValueError, match=f"{VARIABLE} is {asked!r}; set it to full"):
        is_full(asked)
