"""Field types of the spec: durations, sizes, counts and text as people write them."""

from __future__ import annotations

import math
from datetime import timedelta
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.durations import parse_duration, parse_size, write_duration
from prefect_dispatch.format.printable import shorten


@lru_cache(maxsize=256)
def _written_duration(text: str) -> timedelta:
    """One duration as written. Kept, since a record's facts tell the same few over and over."""
    return parse_duration(text)


def _duration(value: Any) -> timedelta:
    try:
        return _written_duration(value) if isinstance(value, str) else parse_duration(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _positive(value: timedelta) -> timedelta:
    if not value:
        raise ValueError("0s is no time at all; give more, or leave the field out")
    return value


def _size(value: Any) -> int:
    try:
        return parse_size(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _count(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"{value} is not a number; write a whole number")
    return value


def _word(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"YAML reads this word as {str(value).lower()}; write it in quotes")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"YAML reads this word as the number {value}; write it in quotes")
    return str(value) if isinstance(value, (int, float)) else value


def _transmissible(value: str) -> str:
    if "\0" in value:
        raise ValueError(f"{shorten(value)} contains NUL; take it out")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{shorten(value)} holds half a character, which UTF-8 cannot write; take it out") from None
    return value


Text = Annotated[str, AfterValidator(_transmissible)]
"""Text that a process can be handed."""

Word = Annotated[
    str,
    BeforeValidator(_word),
    AfterValidator(_transmissible),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]}),
]
"""A word of a command or the value of a variable. A number is taken as its text, since YAML makes numbers of bare
words; a bare ``yes`` or ``true`` is refused, since what was written is lost."""

Count = Annotated[int, BeforeValidator(_count)]
"""A whole number; true and false are none."""

Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(write_duration, return_type=str),
    WithJsonSchema({"anyOf": [{"type": "string", "examples": ["90s", "30min", "4h", "PT1H30M"]}, {"type": "number"}]}),
]
"""A duration: ``90`` (seconds), ``"90s"``, ``"1h30min"`` or ISO 8601; written back as seconds."""

PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
"""A duration that is more than nothing."""

Size = Annotated[
    int, BeforeValidator(_size), WithJsonSchema({"type": ["integer", "string"], "examples": ["512MiB", "16GiB"]})
]
"""A size in bytes: ``1024``, ``"512MiB"``, ``"2GB"``."""
