"""The timeline picture: one SVG that holds all it needs, and its text form for terminals.

Executions are bars and saves are ticks. A bar goes on, hatched, while the processes of an execution live on after the
scheduler called it ended, and the time that an execution shares with the next one is shaded across both.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from prefect_dispatch.format.printable import printable
from prefect_dispatch.pictures.time_axis import axis_marks, in_words
from prefect_dispatch.pictures.timeline_text import draw_text_timeline
from prefect_dispatch.pictures.timeline_values import Bar, Chart, Mark, MarkKind, Overlap, Tick

__all__ = ["Bar", "Mark", "MarkKind", "Overlap", "Tick", "draw_text_timeline", "draw_timeline"]

MOST_BARS = 40
"""Executions in a picture; older ones are counted in a note."""
MOST_MARKS = 12

_WIDTH = 900
_LEFT, _RIGHT = 236, 876
_TOP = 92
_ROW = 52
_BAR = 16
_LINE = 20

# Slate for text, one hue for each fate of an execution, orange for what overlaps: all keep a contrast of 4.5 to the
# card that they lie on, which is the picture's own, so that the page around it may be light or dark.
_STYLE = """
text{font-family:Inter,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:12px;fill:#475569}
.title{font-size:17px;font-weight:600;fill:#0f172a}.name{font-size:13px;font-weight:600;fill:#0f172a}
.small{font-size:11px;fill:#64748b}.grid{stroke:#e2e8f0;stroke-width:1}.rule{stroke:#cbd5e1;stroke-width:1}
.saves{stroke:#0f172a;stroke-width:1.2;fill:none}.late{stroke:#c2410c;stroke-width:1.2;fill:none}
.resume{stroke:#64748b;stroke-width:1.2;fill:none;stroke-dasharray:3 3}
.shared{fill:#fb923c;fill-opacity:.22}.sharedtext{font-size:11px;font-weight:600;fill:#c2410c;paint-order:stroke;stroke:#fff;stroke-width:3px}
.mark{stroke-width:1;stroke-dasharray:2 3}.number{font-size:10px;font-weight:700;fill:#fff;text-anchor:middle}
"""
_FATES = {"": "#2563eb", "completed": "#15803d", "preempted": "#b45309", "node_lost": "#b45309", "failed": "#b91c1c"}
_OTHER_FATE = "#475569"
_KINDS = {MarkKind.HOLD: "#7c3aed", MarkKind.SIGNAL: "#b45309", MarkKind.FINISH: "#15803d"}


class _Scale(NamedTuple):
    """Where a moment lies in the picture."""

    begin: datetime
    end: datetime

    def x(self, at: datetime) -> float:
        share = (at - self.begin) / (self.end - self.begin)
        return round(_LEFT + (_RIGHT - _LEFT) * min(1.0, max(0.0, share)), 1)


def draw_timeline(title: str, bars: Sequence[Bar], ticks: Sequence[Tick], marks: Sequence[Mark], now: datetime) -> str:
    """Draw the picture, 900 pixels wide, on a background of its own.

    All text is escaped and cut to its place. The newest 40 executions and 12 marks are drawn and the rest counted in a
    note, and of several saves on one pixel one; so the picture of any run stays below half a megabyte.

    Args:
        title: what it is of, such as the lineage's name.
        bars: the executions, oldest first.
        ticks: their saves, in any order.
        marks: what happened to the job, in any order.
        now: the moment that it shows, where running executions end.

    Returns:
        An SVG document. It loads nothing and runs nothing.

    Raises:
        UsageError: a time without a time zone, or a tick of no bar.
    """
    chart = Chart.arrange(bars, ticks, marks, now, most_bars=MOST_BARS, most_marks=MOST_MARKS)
    scale = _Scale(chart.begin, chart.end)
    bottom = _TOP + max(1, len(chart.bars)) * _ROW
    footer = _footer(chart, bottom)
    height = bottom + 58 + _LINE * (len(chart.marks) + len(chart.notes()))
    overlaps = chart.overlaps()
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{_safe(title, 90)}</title>",
        f"<style>{_STYLE}</style>",
        *_clips(height),
        *_hatches(chart),
        f'<rect x=".5" y=".5" width="{_WIDTH - 1}" height="{height - 1}" rx="10" fill="#fff" stroke="#cbd5e1"/>',
        _text(24, 34, title, "title", 80),
        _text(24, 53, _summary(chart), "small", 120),
        *_axis(chart, scale, bottom),
        *(_shade(overlap, scale) for overlap in overlaps),
        *_marks(chart, scale, bottom),
    ]
    for number, saves in enumerate(chart.saves()):
        parts += _row(number, saves, chart, scale)
    parts += [_tell(overlap, scale) for overlap in overlaps]
    if not chart.bars:
        parts.append(_text(_LEFT, _TOP + 30, "no execution yet", "small", 80))
    return "\n".join([*parts, *footer, "</svg>"]) + "\n"


def _safe(text: str, most: int) -> str:
    return escape(printable(text, most))


def _text(x: float, y: float, text: str, style: str, most: int, anchor: str = "start", area: str = "page") -> str:
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{style}" x="{x:g}" y="{y:g}"{side} clip-path="url(#{area})">{_safe(text, most)}</text>'


def _clips(height: int) -> list[str]:
    """Make the areas that text cannot leave, however wide its letters are."""
    return [
        f'<clipPath id="{name}"><rect width="{right}" height="{height}"/></clipPath>'
        for name, right in (("page", _WIDTH - 8), ("names", _LEFT - 6))
    ]


def _colour(bar: Bar) -> str:
    return _FATES.get(bar.cause, _OTHER_FATE)


def _hatches(chart: Chart) -> list[str]:
    """Make one pattern for each colour that an execution lives on in."""
    return [
        f'<pattern id="on{colour[1:]}" width="6" height="6" patternTransform="rotate(45)" '
        f'patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="#fff"/>'
        f'<rect width="2.5" height="6" fill="{colour}" fill-opacity=".75"/></pattern>'
        for colour in sorted({_colour(bar) for bar in chart.bars} | {_OTHER_FATE})
    ]


def _summary(chart: Chart) -> str:
    count = len(chart.bars) + chart.bars_left_out
    begin = chart.begin.astimezone(UTC)
    executions = f"{count:,} execution{'' if count == 1 else 's'}"
    return f"{executions} · {in_words(chart.end - chart.begin)} from {begin:%Y-%m-%d %H:%M:%S} UTC"


def _axis(chart: Chart, scale: _Scale, bottom: int) -> list[str]:
    parts = []
    for mark in axis_marks(chart.end - chart.begin):
        x = scale.x(chart.begin + mark.offset)
        parts.append(f'<path class="grid" d="M{x:g} {_TOP - 6}V{bottom}"/>')
        parts.append(_text(x, _TOP - 12, mark.label, "small", 16, "middle"))
    return [*parts, f'<path class="rule" d="M24 {_TOP - 6}H{_RIGHT}M24 {bottom}H{_RIGHT}"/>']


def _bar_top(number: int) -> int:
    return _TOP + number * _ROW + 14


def _row(number: int, saves: Sequence[datetime], chart: Chart, scale: _Scale) -> list[str]:
    bar = chart.bars[number]
    top, colour = _bar_top(number), _colour(bar)
    start, end = scale.x(bar.started_at), scale.x(chart.ended_at(bar))
    alive = scale.x(chart.alive_until(bar))
    parts = [
        f'<text x="24" y="{top + 8}" clip-path="url(#names)"><tspan class="name">{_safe(bar.label, 20)}</tspan>'
        f'<tspan class="small" dx="6">{_safe(bar.epoch, 22)}</tspan></text>',
        _text(24, top + 24, f"{bar.cause or 'running'} · {bar.resumed_from}".rstrip(" ·"), "small", 38, area="names"),
    ]
    if alive - end >= 2:
        parts.append(
            f'<rect x="{end:g}" y="{top}" width="{alive - end:.1f}" height="{_BAR}" rx="3" '
            f'fill="url(#on{colour[1:]})" stroke="{colour}"/>'
        )
    width = max(2.0, end - start)
    parts.append(f'<rect x="{start:g}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="3" fill="{colour}"/>')
    ended_at = chart.ended_at(bar)
    for style, times in (
        ("saves", [at for at in saves if at <= ended_at]),
        ("late", [at for at in saves if at > ended_at]),
    ):
        if places := sorted({round(scale.x(at)) for at in times}):
            parts.append(f'<path class="{style}" d="{"".join(f"M{x} {top - 5}v4" for x in places)}"/>')
    if bar.resumed_tick is not None:
        tick = chart.ticks[bar.resumed_tick]
        above = _bar_top(tick.bar) + _BAR + 1
        if tick.bar < number:
            middle = (above + top) / 2
            x = scale.x(tick.at)
            parts.append(
                f'<path class="resume" d="M{x:g} {above}C{x:g} {middle:g} {start:g} {middle:g} {start:g} {top}"/>'
            )
            parts.append(f'<circle cx="{x:g}" cy="{above}" r="2.5" fill="#64748b"/>')
    return parts


def _shade(overlap: Overlap, scale: _Scale) -> str:
    left, right = scale.x(overlap.start), scale.x(overlap.end)
    top = _bar_top(overlap.bar) - 8
    return (
        f'<rect class="shared" x="{left:g}" y="{top}" width="{max(1.0, right - left):.1f}" '
        f'height="{_ROW + _BAR + 16}" rx="3"/>'
    )


def _tell(overlap: Overlap, scale: _Scale) -> str:
    right = scale.x(overlap.end)
    text = f"both alive {in_words(overlap.duration)}"
    y = _bar_top(overlap.bar) + _BAR + 16
    if right + 6 + 6.5 * len(text) < _RIGHT:
        return _text(right + 6, y, text, "sharedtext", 40)
    return _text(scale.x(overlap.start) - 6, y, text, "sharedtext", 40, "end")


def _marks(chart: Chart, scale: _Scale, bottom: int) -> list[str]:
    parts = []
    for number, mark in enumerate(chart.marks, 1):
        x, colour = scale.x(mark.at), _KINDS[mark.kind]
        parts.append(f'<path class="mark" stroke="{colour}" d="M{x:g} {_TOP - 6}V{bottom}"/>')
        parts += _badge(x, bottom, number, colour)
    return parts


def _badge(x: float, y: float, number: int, colour: str) -> list[str]:
    return [
        f'<circle cx="{x:g}" cy="{y:g}" r="8" fill="{colour}" stroke="#fff" stroke-width="1.5"/>',
        _text(x, y + 3.5, str(number), "number", 4),
    ]


def _footer(chart: Chart, bottom: int) -> list[str]:
    y = bottom + 32
    swatch = f'y="{y - 10}" width="22" height="11" rx="2"'
    parts = [
        f'<rect x="24" {swatch} fill="{_OTHER_FATE}"/>',
        _text(52, y, "runs", "small", 40),
        f'<rect x="98" {swatch} fill="url(#on{_OTHER_FATE[1:]})" stroke="{_OTHER_FATE}"/>',
        _text(126, y, "lives on after the scheduler called it ended", "small", 60),
        f'<rect x="374" {swatch} class="shared"/>',
        _text(402, y, "two alive at once", "small", 40),
        f'<path class="saves" d="M520 {y - 8}v8m5 -8v8m5 -8v8"/>',
        _text(538, y, "saves", "small", 40),
        f'<path class="late" d="M590 {y - 8}v8m5 -8v8m5 -8v8"/>',
        _text(608, y, "saves after its end", "small", 40),
    ]
    y += _LINE + 6
    for number, mark in enumerate(chart.marks, 1):
        parts += _badge(32, y - 4, number, _KINDS[mark.kind])
        when = in_words(mark.at - chart.begin)
        parts.append(_text(48, y, f"{when} · {mark.kind} · {mark.text}", "small", 130))
        y += _LINE
    for note in chart.notes():
        parts.append(_text(24, y, note, "small", 120))
        y += _LINE
    return parts
