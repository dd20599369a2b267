"""Field types of the spec: durations and sizes as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.durations import parse_duration, parse_size


def _duration(value: Any) -> timedelta:
    try:
        return parse_duration(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _size(value: Any) -> int:
    try:
        return parse_size(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _write_duration(value: timedelta) -> str:
    return f"{value.total_seconds():g}s" if value.total_seconds() < 1e6 else f"{round(value.total_seconds())}s"


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(_write_duration, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["90s", "30min", "4h", "PT1H30M"]}),
]
"""A duration: ``90`` (seconds), ``"90s"``, ``"1h30min"`` or ISO 8601; written back as seconds."""

Size = Annotated[
    int, BeforeValidator(_size), WithJsonSchema({"type": ["integer", "string"], "examples": ["512MiB", "16GiB"]})
]
"""A size in bytes: ``1024``, ``"512MiB"``, ``"2GB"``."""
