"""The timeline shows what happened, escapes what it is given and stays small."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from prefect_dispatch.errors import UsageError
from prefect_dispatch.pictures.time_axis import axis_marks, in_words
from prefect_dispatch.pictures.timeline import Bar, Mark, MarkKind, Tick, draw_text_timeline, draw_timeline

SVG = "{http://www.w3.org/2000/svg}"
BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOSTILE = "</text><script>alert(1)</script>&\"'\x1b[31m\x00\ud800\u202e]]>\n"
Draw = Callable[..., str]


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def preempted_once() -> tuple[list[Bar], list[Tick], list[Mark]]:
    bars = [
        Bar("g0n1r0", "epoch 1000000", at(0), at(100), at(160), "preempted", "from scratch"),
        Bar("g0n1r1", "epoch 1000001", at(120), at(200), None, "completed", "from g0n1r0, step 2", resumed_tick=1),
    ]
    ticks = [Tick(0, at(40), 1), Tick(0, at(80), 2), Tick(0, at(150), 3), Tick(1, at(180), 3)]
    marks = [Mark(at(100), MarkKind.SIGNAL, "preempted"), Mark(at(200), MarkKind.FINISH, "completed")]
    return bars, ticks, marks


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if element.get("class") == name]


def words(root: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def test_the_picture_shows_executions_saves_overlap_and_marks() -> None:
    # given an execution that lived on while its successor ran
    bars, ticks, marks = preempted_once()
    # when it is drawn
    root = drawn(draw_timeline("digits", bars, ticks, marks, at(210)))
    # then both are named, with why they ended and where they came from
    said = words(root)
    assert {"digits", "g0n1r0epoch 1000000", "preempted · from scratch", "completed · from g0n1r0, step 2"} <= set(said)
    assert "2 executions · 3 min 20 s from 2026-03-01 12:00:00 UTC" in said
    # and the time that they shared is shaded from 120 to 160 of 200 seconds, and said
    [shade] = of_class(root, "shared")[:1]
    assert float(shade.get("x", "")) == pytest.approx(236 + 640 * 0.6)
    assert float(shade.get("width", "")) == pytest.approx(640 * 0.2)
    assert "both alive 40 s" in said
    # and saves are ticks, the late one apart (the last of each class is the legend's);
    # one line leads from the save to what resumed from it
    assert [path.get("d", "").count("M") for path in of_class(root, "saves")] == [2, 1, 1]
    assert [path.get("d", "").count("M") for path in of_class(root, "late")] == [1, 1]
    assert len(of_class(root, "resume")) == 1
    # and the marks are numbered and told
    assert {"1 min 40 s · signal · preempted", "3 min 20 s · finish · completed"} <= set(said)
    assert len(of_class(root, "mark")) == 2


def test_a_running_execution_ends_now_and_nobody_overlaps_alone() -> None:
    root = drawn(draw_timeline("digits", [Bar("g0n1r0", "epoch 1000000", at(0))], [], [], at(60)))
    assert "running" in words(root)
    assert not any(text.startswith("both alive") for text in words(root))
    assert "1 execution · 1 min from 2026-03-01 12:00:00 UTC" in words(root)


def test_an_execution_not_seen_again_after_its_end_overlaps_with_nobody() -> None:
    bars = [Bar("g0n1r0", "", at(0), at(100)), Bar("g0n2r0", "", at(100), at(200))]
    assert "both alive" not in draw_timeline("digits", bars, [], [], at(200))
    assert "both alive" not in draw_text_timeline("digits", bars, [], [], at(200))


def test_an_overlap_ends_with_the_first_of_the_two() -> None:
    bars = [Bar("g0n1r0", "", at(0), at(10), at(90)), Bar("g0n2r0", "", at(30), at(50)), Bar("g0n3r0", "", at(80))]
    said = words(drawn(draw_timeline("digits", bars, [], [], at(100))))
    assert [text for text in said if text.startswith("both alive")] == ["both alive 20 s"]


def test_the_line_of_a_resume_starts_at_its_save_whatever_the_order_of_the_saves() -> None:
    # given saves in no order, and more executions than are drawn
    bars = [Bar(f"g0n{n}r0", "", at(n), at(n + 0.9), None, "", "", n - 1 if n else None) for n in range(50)]
    ticks = [Tick(n, at(n + 0.5), n) for n in range(50)]
    # when the picture is drawn with its saves in order, and in reverse
    forward = draw_timeline("digits", bars, ticks, [], at(50))
    backward = draw_timeline(
        "digits",
        [replace(bar, resumed_tick=50 - n if n else None) for n, bar in enumerate(bars)],
        ticks[::-1],
        [],
        at(50),
    )
    # then it is the same, and a line whose save is not drawn is not there either
    assert backward == forward
    assert len(of_class(drawn(forward), "resume")) == 39


def test_the_text_form_shows_the_same_in_80_columns() -> None:
    bars, ticks, marks = preempted_once()
    lines = draw_text_timeline("digits", bars, ticks, marks, at(210)).splitlines()
    older = next(line for line in lines if line.startswith("g0n1r0"))
    newer = next(line for line in lines if line.startswith("g0n1r1"))
    # 48 columns for 200 seconds: the first ends at column 24, lives on to 38; the second runs from 28 to the end
    assert older[14:62] == "=" * 9 + "|" + "=" * 9 + "|" + "=" * 5 + "~" * 11 + "!" + "~" * 2 + " " * 9
    assert newer[14:62] == " " * 28 + "=" * 15 + "|" + "=" * 4
    assert older.endswith("preempted")
    assert any("from scratch; both alive 40 s" in line for line in lines)
    assert any(line.startswith("1 min 40 s    signal: preempted") for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("draw", [draw_timeline, draw_text_timeline])
def test_hostile_text_stays_text(draw: Draw) -> None:
    # given markup, control, direction and surrogate characters in every text
    bar = Bar(HOSTILE, HOSTILE, at(0), at(1), None, HOSTILE, HOSTILE)
    # when it is drawn
    text = draw(HOSTILE, [bar], [], [Mark(at(0), MarkKind.HOLD, HOSTILE)], at(2))
    # then nothing of it acts: no control, no direction, no half character
    assert all(character.isprintable() or character == "\n" for character in text)
    text.encode()
    if draw is draw_timeline:
        root = drawn(text)
        assert not list(root.iter(f"{SVG}script"))
        assert any("<script>alert(1)</script>" in line for line in words(root))


@pytest.mark.parametrize("draw", [draw_timeline, draw_text_timeline])
def test_no_execution_is_drawn_as_that(draw: Draw) -> None:
    assert "no execution yet" in draw("digits", [], [], [], at(0))


@pytest.mark.parametrize(("draw", "bars", "limit"), [(draw_timeline, 40, 500_000), (draw_text_timeline, 200, 50_000)])
def test_a_thousand_executions_are_cut_to_the_newest_and_the_rest_is_counted(draw: Draw, bars: int, limit: int) -> None:
    # given a thousand executions with fifty saves and a mark each
    many = [Bar(f"g0n{n}r0", f"epoch {n}", at(n), at(n + 1), at(n + 2), "preempted", "x" * 500) for n in range(1000)]
    ticks = [Tick(n, at(n + part / 50), part) for n in range(1000) for part in range(50)]
    marks = [Mark(at(n), MarkKind.HOLD, "y" * 5000) for n in range(1000)]
    # when they are drawn
    text = draw("many", many, ticks, marks, at(1001))
    # then the newest are there, the note counts the others, and the whole is small
    assert f"g0n{1000 - bars}r0" in text
    assert f"g0n{999 - bars}r0" not in text
    assert f"{1000 - bars} earlier executions not shown" in text
    assert "earlier marks not shown" in text
    assert len(text) < limit


def test_ticks_on_one_pixel_are_drawn_once() -> None:
    ticks = [Tick(0, at(n / 1000), n) for n in range(20_000)]
    svg = draw_timeline("digits", [Bar("g0n1r0", "", at(0), at(20))], ticks, [], at(20))
    assert of_class(drawn(svg), "saves")[0].get("d", "").count("M") == 641


@pytest.mark.parametrize("draw", [draw_timeline, draw_text_timeline])
@pytest.mark.parametrize(
    ("bars", "ticks", "marks", "complaint"),
    [
        ([Bar("a", "", datetime(2026, 1, 1))], [], [], "time 2026-01-01T00:00:00 has no time zone"),
        ([], [], [Mark(datetime(2026, 1, 1), MarkKind.HOLD, "")], "has no time zone"),
        ([], [Tick(0, at(0), 40)], [], "tick of step 40 belongs to bar 0; there are 0"),
        ([Bar("a", "", at(0), resumed_tick=3)], [], [], "bar 'a' resumes from tick 3; there are 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    draw: Draw, bars: list[Bar], ticks: list[Tick], marks: list[Mark], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        draw("digits", bars, ticks, marks, at(0))


seconds = some.floats(-1e9, 1e9)


@settings(max_examples=40)
@given(
    some.lists(
        some.builds(
            Bar, some.text(), some.text(), seconds.map(at), some.none() | seconds.map(at), some.none() | seconds.map(at)
        ),
        max_size=6,
    ),
    some.lists(some.builds(Mark, seconds.map(at), some.sampled_from(MarkKind), some.text()), max_size=4),
    some.data(),
)
def test_any_times_in_any_order_give_a_whole_picture(bars: list[Bar], marks: list[Mark], data: some.DataObject) -> None:
    ticks = []
    if bars:
        ticks = data.draw(
            some.lists(
                some.builds(Tick, some.integers(0, len(bars) - 1), seconds.map(at), some.integers(0)), max_size=6
            )
        )
    root = drawn(draw_timeline("any", bars, ticks, marks, at(0)))
    for element in root.iter(f"{SVG}rect"):
        assert float(element.get("width", "0")) >= 0
        assert -10 <= float(element.get("x", "0")) <= 900
    for path in [*of_class(root, "saves")[:-1], *of_class(root, "late")[:-1]]:
        assert all(236 <= int(x) <= 876 for x in re.findall(r"M(-?\d+)", path.get("d", "")))
    assert all(len(line) <= 80 for line in draw_text_timeline("any", bars, ticks, marks, at(0)).split("\n"))


@given(some.timedeltas(timedelta(milliseconds=1), timedelta(days=36500)), some.integers(1, 12))
def test_an_axis_has_few_round_steps(span: timedelta, most: int) -> None:
    marks = axis_marks(span, most)
    assert marks[0].offset == timedelta(0)
    assert 1 <= len(marks) <= most + 1
    assert marks[-1].offset <= span
    assert len({mark.label for mark in marks}) == len(marks)


@pytest.mark.parametrize(
    ("span", "label"),
    [
        (timedelta(seconds=0), "0 s"),
        (timedelta(seconds=6.24), "6.2 s"),
        (timedelta(seconds=9.99), "10 s"),
        (timedelta(seconds=59.7), "1 min"),
        (timedelta(seconds=250), "4 min 10 s"),
        (timedelta(hours=2, seconds=7), "2 h"),
        (timedelta(days=3, hours=4, minutes=5), "3 d 4 h"),
        (timedelta(seconds=-90), "-1 min 30 s"),
    ],
)
def test_durations_are_said_in_their_two_greatest_units(span: timedelta, label: str) -> None:
    assert in_words(span) == label
