"""The timeline as plain text, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from prefect_dispatch.format.printable import printable
from prefect_dispatch.pictures.time_axis import axis_marks, in_words
from prefect_dispatch.pictures.timeline_values import Bar, Chart, Mark, Tick

MOST_BARS = 200
MOST_MARKS = 50

_COLUMNS = 80
_NAME = 14
_LANE = 48
_CAUSE = _COLUMNS - _NAME - _LANE - 1
_LEGEND = "= runs   ~ lives on after its end   | save   ! save after its end"


def draw_text_timeline(
    title: str, bars: Sequence[Bar], ticks: Sequence[Tick], marks: Sequence[Mark], now: datetime
) -> str:
    """Draw the timeline in 80 columns of text, with the signs that every terminal has.

    Args:
        title: what it is of, such as the lineage's name.
        bars: the executions, oldest first; the newest 200 are drawn.
        ticks: their saves, in any order.
        marks: what happened to the job, in any order; the newest 50 are listed.
        now: the moment that it shows, where running executions end.

    Raises:
        UsageError: a time without a time zone, or a tick of no bar.
    """
    chart = Chart.arrange(bars, ticks, marks, now, most_bars=MOST_BARS, most_marks=MOST_MARKS)
    saves = chart.saves()
    overlaps = {overlap.bar: overlap for overlap in chart.overlaps()}
    begin = chart.begin.astimezone(UTC)
    lines = [
        printable(title, _COLUMNS),
        f"{in_words(chart.end - chart.begin)} from {begin:%Y-%m-%d %H:%M:%S} UTC",
        "",
        " " * _NAME + _axis(chart),
    ]
    for number, bar in enumerate(chart.bars):
        name, cause = printable(bar.label, _NAME - 1), printable(bar.cause or "running", _CAUSE)
        lines.append(f"{name:<{_NAME}}{_lane(chart, bar, saves[number])} {cause}".rstrip())
        more = [bar.resumed_from] if bar.resumed_from else []
        if number in overlaps:
            more.append(f"both alive {in_words(overlaps[number].duration)}")
        if more:
            lines.append(" " * _NAME + printable("; ".join(more), _COLUMNS - _NAME))
    if not chart.bars:
        lines.append(" " * _NAME + "no execution yet")
    lines.append("")
    for mark in chart.marks:
        when = in_words(mark.at - chart.begin)
        lines.append(printable(f"{when:<{_NAME}}{mark.kind}: {mark.text}", _COLUMNS))
    return "\n".join([*lines, *chart.notes(), _LEGEND]) + "\n"


def _column(chart: Chart, at: datetime) -> int:
    share = (at - chart.begin) / (chart.end - chart.begin)
    return min(_LANE - 1, max(0, int(share * _LANE)))


def _lane(chart: Chart, bar: Bar, saves: Sequence[datetime]) -> str:
    lane = [" "] * _LANE
    for sign, start, end in (
        ("~", chart.ended_at(bar), chart.alive_until(bar)),
        ("=", bar.started_at, chart.ended_at(bar)),
    ):
        if sign == "=" or end > start:
            for column in range(_column(chart, start), _column(chart, end) + 1):
                lane[column] = sign
    for at in saves:
        lane[_column(chart, at)] = "|" if at <= chart.ended_at(bar) else "!"
    return "".join(lane)


def _axis(chart: Chart) -> str:
    line = ""
    for mark in axis_marks(chart.end - chart.begin, most=4):
        column = _column(chart, chart.begin + mark.offset)
        if column >= len(line) + (1 if line else 0) and column + len(mark.label) <= _LANE + _CAUSE:
            line = f"{line:<{column}}{mark.label}"
    return line
