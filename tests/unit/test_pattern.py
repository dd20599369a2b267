"""Patterns that are compiled when they are first used."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from prefect_dispatch.format.pattern import pattern


def test_it_does_what_a_compiled_pattern_does():
    # given
    late, early = pattern(rb"(a)(.*)", re.DOTALL), re.compile(rb"(a)(.*)", re.DOTALL)
    # then, at the first use and at the second
    for text in (b"ab\nc", b"b", b"a"):
        for method in ("match", "fullmatch", "search"):
            ours, theirs = getattr(late, method)(text), getattr(early, method)(text)
            assert (ours and ours.groups()) == (theirs and theirs.groups())
    assert late.split(b"xay") == early.split(b"xay")
    assert late.pattern == early.pattern


def test_what_a_pattern_does_not_have_is_an_error():
    with pytest.raises(AttributeError, match="no_such_method"):
        _ = pattern("a").no_such_method


def test_nothing_is_compiled_when_the_helper_starts():
    # given
    program = (
        "import re\n"
        "import datetime, json, signal, threading\n"
        "def refuse(*given): raise AssertionError(given)\n"
        "re.compile = refuse\n"
        "import prefect_dispatch.job.run\n"
    )
    # when, then
    subprocess.run([sys.executable, "-I", "-c", program], check=True, timeout=60)
