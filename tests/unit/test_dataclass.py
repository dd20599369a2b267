"""The job's own dataclasses are what the standard library makes of the same classes."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from prefect_dispatch.format import dataclass as own
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.submission import Notice


def declare(decorate: Callable[..., Any]) -> type:
    """One class, declared with either decorator."""

    @decorate(frozen=True, order=True)
    class Point:
        """A place."""

        x: int
        y: int = 2
        label: str = ""

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError(f"x {self.x} is negative")

        @property
        def both(self) -> tuple[int, int]:
            return (self.x, self.y)

    return Point


OWN, STANDARD = declare(own.dataclass), declare(dataclasses.dataclass)


@pytest.mark.parametrize(
    "look",
    [
        lambda point: repr(point(1, label="a")),
        lambda point: point(1) == point(1, 2, ""),
        lambda point: point(1) == point(2),
        lambda point: point(1) == (1, 2, ""),
        lambda point: len({point(1), point(1, 2), point(2), point(x=1, label="", y=2)}),
        lambda point: hash(point(1, label="a")) == hash(point(label="a", x=1)),
        lambda point: [each.x for each in sorted([point(2), point(1, 9), point(1, 3)])],
        lambda point: [point(1) < point(2), point(1) <= point(1), point(1) > point(2), point(1) >= point(1)],
        lambda point: point(3).both,
        lambda point: dataclasses.asdict(point(1, label="a")),
        lambda point: [(field.name, field.default) for field in dataclasses.fields(point)],
        lambda point: dataclasses.replace(point(1, label="a"), y=5) == point(1, 5, "a"),
        lambda point: dataclasses.is_dataclass(point) and dataclasses.is_dataclass(point(1)),
        lambda point: copy.deepcopy(point(1)) == point(1),
        lambda point: point.__match_args__,
        lambda point: point.__doc__,
    ],
)
def test_both_say_the_same(look: Callable[[Any], Any]) -> None:
    assert look(OWN) == look(STANDARD)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda point: point(),
        lambda point: point(y=1),
        lambda point: point(1, 2, "", 4),
        lambda point: point(1, z=3),
        lambda point: point(1, x=3),
        lambda point: point(-1),
        lambda point: setattr(point(1), "x", 2),
        lambda point: setattr(point(1), "z", 2),
        lambda point: delattr(point(1), "x"),
        lambda point: point(1) < (1, 2, ""),
        lambda point: dataclasses.replace(point(1), x=-1),
        lambda point: dataclasses.replace(point(1), z=1),
    ],
)
def test_both_refuse_the_same(attempt: Callable[[Any], Any]) -> None:
    refusals = []
    for point in (OWN, STANDARD):
        with pytest.raises(Exception) as refusal:
            attempt(point)
        refusals.append(refusal.type)
    assert refusals[0] is refusals[1]


def test_one_that_can_change_is_not_made() -> None:
    with pytest.raises(TypeError, match="only frozen"):
        own.dataclass(frozen=False)(type("Loose", (), {}))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [Epoch(2, 3, 1), Notice()])
def test_they_go_through_a_pickle(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
