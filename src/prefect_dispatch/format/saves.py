"""Where an execution's saves come from: one source each, so that steps always compare."""

from __future__ import annotations

import enum
from datetime import timedelta

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.durations import parse_duration, write_duration
from prefect_dispatch.format.printable import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping


class SaveKind(enum.Enum):
    """The sources of saves that this version knows."""

    EXPLICIT = "explicit"
    """The program publishes by itself, with ``dispatch-job publish`` or :func:`prefect_dispatch.job.publish`."""
    MARKER = "marker"
    """A marker file says that a save is whole, and carries its step."""
    SETTLE = "settle"
    """A save is whole when nothing of it has changed for a while; numbered from 1 within the execution."""
    MESSAGES = "messages"
    """The program says ``openjd_checkpoint_save: …``; numbered from 1 within the execution."""
    HUGGINGFACE = "huggingface"
    """A folder ``checkpoint-N`` of the Hugging Face Trainer is whole, by what it writes and in which order."""


LATER_KINDS = ("lightning", "dcp", "orbax")
"""Kinds that the design names and this version does not have yet; refused by name."""

_FIELDS = {
    SaveKind.EXPLICIT: ("overwritten",),
    SaveKind.MARKER: ("marker",),
    SaveKind.SETTLE: ("pattern", "settle"),
    SaveKind.MESSAGES: (),
    SaveKind.HUGGINGFACE: ("only_model",),
}


@dataclass(frozen=True)
class Saves:
    """The source of an execution's saves.

    Args:
        kind: which source it is.
        marker: for ``marker``: the marker's file name. A file of exactly this name marks its folder; a file whose name
            is a save's name followed by it marks that save. Its text is the step in decimal.
        pattern: for ``settle``: a glob, relative to the execution's folder, of the saves; it must be given.
        settle: for ``settle``: how long nothing may have changed.
        overwritten: for ``explicit``: whether the program may write into a save after it has published it, so that a
            copy is published. False is the program's promise that it never does; then each save is published in place.
        only_model: for ``huggingface``: whether the Trainer saves no optimiser, as with its ``save_only_model``.
    """

    kind: SaveKind = SaveKind.EXPLICIT
    marker: str = ".complete"
    pattern: str = ""
    settle: timedelta = timedelta(seconds=30)
    overwritten: bool = True
    only_model: bool = False

    @classmethod
    def decode(cls, document: Mapping[str, Any]) -> Saves:
        """Read ``{"kind": …, …}`` from a spec or a submission.

        Raises:
            UsageError: an unknown kind, a field that the kind does not have, or a bad value.
        """
        word = document.get("kind", SaveKind.EXPLICIT.value)
        if word in LATER_KINDS:
            raise UsageError(f"saves.kind {word!r} is not in this version; use {_kinds()} until it is")
        try:
            kind = SaveKind(word)
        except ValueError:
            raise UsageError(f"saves.kind {shorten(word)} is unknown; use {_kinds()}") from None
        for name in document:
            if name != "kind" and name not in _FIELDS[kind]:
                known = ", ".join(_FIELDS[kind]) or "none"
                raise UsageError(f"saves.{name} is not a field of kind {kind.value!r}; it has: {known}")
        try:
            settle = parse_duration(document.get("settle", cls.settle))
        except UsageError as error:
            raise UsageError(f"saves.settle: {error}") from None
        if kind is SaveKind.SETTLE and "pattern" not in document:
            raise UsageError(
                "saves.pattern is missing, which kind 'settle' needs; give a glob of the saves, such as ckpt-*.pt"
            )
        return cls(
            kind,
            _check_marker(document.get("marker", cls.marker)),
            _check_pattern(document["pattern"]) if kind is SaveKind.SETTLE else cls.pattern,
            settle,
            _check_boolean("overwritten", document.get("overwritten", cls.overwritten)),
            _check_boolean("only_model", document.get("only_model", cls.only_model)),
        )

    def encode(self) -> Dict[str, Any]:
        """Write it as documents carry it."""
        values: Dict[str, Any] = {
            "marker": self.marker,
            "pattern": self.pattern,
            "settle": write_duration(self.settle),
            "overwritten": self.overwritten,
            "only_model": self.only_model,
        }
        return {"kind": self.kind.value, **{name: values[name] for name in _FIELDS[self.kind]}}


def _check_marker(marker: Any) -> str:
    if not isinstance(marker, str) or marker in ("", ".", "..") or "/" in marker or "\0" in marker:
        raise UsageError(f"saves.marker {shorten(marker)} is not a file name; give one such as '.complete'")
    return marker


def _check_pattern(pattern: Any) -> str:
    if not isinstance(pattern, str) or not pattern or pattern.startswith("/") or "\0" in pattern:
        raise UsageError(
            f"saves.pattern {shorten(pattern)} is not a glob relative to the execution's folder; give one such as *.pt"
        )
    if ".." in pattern.split("/"):
        raise UsageError(f"saves.pattern {pattern!r} leaves the execution's folder; take '..' out")
    return pattern


def _check_boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"saves.{name} {shorten(value)} is neither true nor false; give one of them")
    return value


def _kinds() -> str:
    return ", ".join(kind.value for kind in SaveKind)
