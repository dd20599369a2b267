"""What a timeline shows: executions as bars, saves as ticks, and marks for what happened to the job."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from prefect_dispatch.errors import UsageError


@dataclass(frozen=True)
class Bar:
    """One execution.

    Args:
        label: its name, such as ``submission 2``.
        epoch: its epoch, such as ``g0n2r1``.
        started_at: when it began to run.
        ended_at: when it ended, by the scheduler's word; None while it runs.
        last_seen_alive: when its processes were last seen alive, which may be later; None where nobody knows.
        cause: why it ended.
        resumed_from: what it went on from, in words.
        resumed_tick: the save that it went on from, as an index into the timeline's ticks; None to draw no line.
    """

    label: str
    epoch: str
    started_at: datetime
    ended_at: datetime | None = None
    last_seen_alive: datetime | None = None
    cause: str = ""
    resumed_from: str = ""
    resumed_tick: int | None = None


@dataclass(frozen=True)
class Tick:
    """One save.

    Args:
        bar: index of the execution that wrote it.
        at: when.
        step: its step.
    """

    bar: int
    at: datetime
    step: int


class MarkKind(enum.StrEnum):
    """What a mark stands for."""

    HOLD = "hold"
    """The job waits for a person."""
    SIGNAL = "signal"
    """A hold was lifted, a stop asked for, or a new generation opened."""
    FINISH = "finish"
    """The job is over."""


@dataclass(frozen=True)
class Mark:
    """Something that happened to the job as a whole.

    Args:
        at: when.
        kind: what it stands for.
        text: what it was, in a few words.
    """

    at: datetime
    kind: MarkKind
    text: str


@dataclass(frozen=True)
class Overlap:
    """A time in which two executions were alive.

    Args:
        bar: index of the older; the newer is the next one.
        start: when the newer began.
        end: when the older, or if that was earlier the newer, was last alive.
    """

    bar: int
    start: datetime
    end: datetime

    @property
    def duration(self) -> timedelta:
        """How long both lived."""
        return self.end - self.start


@dataclass(frozen=True)
class Chart:
    """A timeline, checked and cut to a size that can be drawn.

    Attributes:
        bars: the newest executions, oldest first.
        ticks: their saves, by time; ``bar`` counts within ``bars``.
        marks: the newest marks since the first bar began, by time.
        now: the moment that it shows.
        bars_left_out: how many older executions it does not show.
        marks_left_out: how many older marks it does not show.
    """

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    now: datetime
    bars_left_out: int = 0
    marks_left_out: int = 0

    @classmethod
    def arrange(
        cls,
        bars: Sequence[Bar],
        ticks: Sequence[Tick],
        marks: Sequence[Mark],
        now: datetime,
        *,
        most_bars: int,
        most_marks: int,
    ) -> Chart:
        """Keep the newest of what there is.

        Raises:
            UsageError: a time without a time zone, or an index of nothing.
        """
        times = [now, *(tick.at for tick in ticks), *(mark.at for mark in marks)]
        for bar in bars:
            times += [time for time in (bar.started_at, bar.ended_at, bar.last_seen_alive) if time is not None]
            if bar.resumed_tick is not None and not 0 <= bar.resumed_tick < len(ticks):
                raise UsageError(f"bar {bar.label!r} resumes from tick {bar.resumed_tick}; there are {len(ticks)}")
        for time in times:
            if time.utcoffset() is None:
                raise UsageError(f"time {time.isoformat()} has no time zone; give it one, such as UTC")
        for tick in ticks:
            if not 0 <= tick.bar < len(bars):
                raise UsageError(f"tick of step {tick.step} belongs to bar {tick.bar}; there are {len(bars)}")

        first = max(0, len(bars) - most_bars)
        kept = [number for number, tick in sorted(enumerate(ticks), key=lambda one: one[1].at) if tick.bar >= first]
        place = {number: new for new, number in enumerate(kept)}
        shown = tuple(
            replace(bar, resumed_tick=None if bar.resumed_tick is None else place.get(bar.resumed_tick))
            for bar in bars[first:]
        )
        begin = min((bar.started_at for bar in shown), default=None) if first else None
        recent = sorted((mark for mark in marks if begin is None or mark.at >= begin), key=lambda mark: mark.at)
        recent = recent[max(0, len(recent) - most_marks) :]
        return cls(
            shown,
            tuple(replace(ticks[number], bar=ticks[number].bar - first) for number in kept),
            tuple(recent),
            now,
            first,
            len(marks) - len(recent),
        )

    @cached_property
    def begin(self) -> datetime:
        """The earliest moment that it shows."""
        times = [bar.started_at for bar in self.bars] + [mark.at for mark in self.marks]
        return min(times, default=self.now)

    @cached_property
    def end(self) -> datetime:
        """The latest moment that it shows, a second after its beginning at least."""
        times = [self.alive_until(bar) for bar in self.bars]
        times += [tick.at for tick in self.ticks] + [mark.at for mark in self.marks]
        return max([*times, self.begin + timedelta(seconds=1)])

    def ended_at(self, bar: Bar) -> datetime:
        """When the scheduler said that an execution was over; now, while it runs."""
        return max(bar.started_at, bar.ended_at or self.now)

    def alive_until(self, bar: Bar) -> datetime:
        """When an execution was last alive, as far as anybody knows."""
        ended_at = self.ended_at(bar)
        return max(ended_at, bar.last_seen_alive or ended_at)

    def saves(self) -> tuple[tuple[datetime, ...], ...]:
        """When each execution saved, by execution and time."""
        times: list[list[datetime]] = [[] for _ in self.bars]
        for tick in self.ticks:
            times[tick.bar].append(tick.at)
        return tuple(map(tuple, times))

    def overlaps(self) -> tuple[Overlap, ...]:
        """The times in which an execution and the next one were both alive."""
        found = []
        for number, (older, newer) in enumerate(zip(self.bars, self.bars[1:], strict=False)):
            end = min(self.alive_until(older), self.alive_until(newer))
            if end > newer.started_at:
                found.append(Overlap(number, newer.started_at, end))
        return tuple(found)

    def notes(self) -> tuple[str, ...]:
        """What it leaves out, in words."""
        left_out = ((self.bars_left_out, "execution"), (self.marks_left_out, "mark"))
        return tuple(
            f"{count:,} earlier {what}{'' if count == 1 else 's'} not shown" for count, what in left_out if count
        )
