"""Messages: what a program says about its own work, as ``openjd_<kind>: <payload>`` lines on its standard output."""

from __future__ import annotations

import enum
import json
import re

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.message_lines import MAX_LINE_BYTES
from prefect_dispatch.format.pattern import pattern
from prefect_dispatch.format.printable import printable
from prefect_dispatch.format.resume_state import check_state

MAX_TEXT = 1000
"""How many characters of a status, of a failure or of a refused line are kept."""

_LINE = pattern(rb"(\[[^\[\]]{1,61}\]:)?openjd_([a-z_]+):(.*)", re.DOTALL)
_PERCENT = pattern(r"[0-9]{1,12}(\.[0-9]{1,12})?\Z")


class MessageKind(enum.Enum):
    """The kinds of messages, by the word after ``openjd_``."""

    CHECKPOINT_SAVE = "checkpoint_save"
    """A save is whole: its state, its file, or both."""
    PROGRESS = "progress"
    """How much of the work is done, 0 to 100."""
    STATUS = "status"
    """What the program is doing, for people."""
    FAIL = "fail"
    """Why the work has failed; the action ends as failed whatever the exit code."""
    CHECKPOINT_FILES = "checkpoint_files"
    """Files and folders that belong to every save from now on."""
    TASK_COMPLETE = "task_complete"
    """One task of a chunk is done. Not in this version."""
    CHECKPOINT_RESUME_STATUS = "checkpoint_resume_status"
    """Whether a resumed program used its save."""


@dataclass(frozen=True)
class CheckpointSave:
    """A save that the program calls whole.

    Args:
        state: the program's own resume state, at most 64 KiB, or empty.
        file: the save as the program names it, or None where the state alone is the save.
    """

    state: str
    file: Optional[str]


@dataclass(frozen=True)
class CheckpointFiles:
    """Files and folders that a program declares as part of its data set.

    Args:
        files: files, as the program names them.
        dirs: folders, likewise; all that is in one when a save is made belongs to it.
        reset: whether what was declared before belongs to it no more.
    """

    files: Tuple[str, ...]
    dirs: Tuple[str, ...]
    reset: bool


class ResumeStatus(enum.Enum):
    """What a resumed program did with its save."""

    RESUMED = "RESUMED"
    """It goes on from it."""
    DISCARDED = "DISCARDED"
    """It started from scratch all the same."""


@dataclass(frozen=True)
class Progress:
    """How much of the work is done, in percent."""

    percent: float


@dataclass(frozen=True)
class Status:
    """What the program is doing."""

    text: str


@dataclass(frozen=True)
class Fail:
    """Why the program's work has failed."""

    text: str


@dataclass(frozen=True)
class Refused:
    """A line that looks like a message and cannot be taken as one.

    Args:
        line: its beginning, at most 1000 characters, as text without control characters.
        reason: what is wrong with it.
    """

    line: str
    reason: str


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Tuple, Union

    Message = Union[CheckpointSave, CheckpointFiles, ResumeStatus, Progress, Status, Fail]


def parse_line(line: bytes) -> Union[Message, Refused, None]:
    """Read one line of a program's output, without its line end.

    Args:
        line: any bytes.

    Returns:
        The message; what is wrong with a line that has a message's form; None for every other line.

    Example:
        >>> parse_line(b"[default0]:openjd_progress: 50")
        Progress(percent=50.0)
        >>> parse_line(b" openjd_progress: 50") is None
        True
    """
    match = _LINE.match(line)
    if match is None:
        return None
    if len(line) > MAX_LINE_BYTES:
        return refused(line, f"it is longer than {MAX_LINE_BYTES} bytes")
    word, rest = match.group(2).decode("ascii"), match.group(3)
    try:
        kind = MessageKind(word)
    except ValueError:
        return refused(line, f"openjd_{word} is not a message; the messages are {_words()}")
    if kind not in _PARSERS:
        return refused(line, f"openjd_{word} is not in this version")
    if not rest.startswith(b" "):
        return refused(line, f"write it as 'openjd_{word}: …', with one space after the colon")
    try:
        return _PARSERS[kind](rest[1:])
    except (ValueError, RecursionError) as error:
        return refused(line, str(error) if type(error) is ValueError else _describe(error))


def refused(line: bytes, reason: str) -> Refused:
    """Report a line that cannot be taken, in a form that any log can hold."""
    return Refused(describe_line(line), reason)


def describe_line(line: bytes) -> str:
    """The beginning of a line, at most 1000 characters, as text without control characters."""
    return printable(line[: MAX_TEXT * 4].decode("utf-8", "backslashreplace"))[:MAX_TEXT]


def _parse_save(payload: bytes) -> CheckpointSave:
    document = _object(payload, "a save", ("state", "file"))
    if not document:
        raise ValueError("it has neither a state nor a file, so nothing is saved")
    return CheckpointSave(_state(document.get("state", "")), _file(document.get("file")))


def _state(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("its state is not text")
    try:
        return check_state(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _file(value: Any) -> Optional[str]:
    return None if value is None else _path(value, "its file")


def _path(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"{what} is not a path")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{what} cannot be written as UTF-8") from None
    return value


def _parse_files(payload: bytes) -> CheckpointFiles:
    document = _object(payload, "a data set", ("files", "dirs", "mode"))
    mode = document.get("mode", "ACCUMULATE")
    if mode not in ("ACCUMULATE", "RESET"):
        raise ValueError(f"its mode is {str(mode)[:80]!r}, and not ACCUMULATE or RESET")
    return CheckpointFiles(_paths(document, "files"), _paths(document, "dirs"), mode == "RESET")


def _paths(document: Dict[str, Any], name: str) -> Tuple[str, ...]:
    value = document.get(name, [])
    if not isinstance(value, list):
        raise ValueError(f"its {name} are not a list")
    return tuple(_path(each, f"one of its {name}") for each in value)


def _parse_resume_status(payload: bytes) -> ResumeStatus:
    status = _object(payload, "a resume status", ("status",)).get("status")
    for known in ResumeStatus:
        if status == known.value:
            return known
    raise ValueError("its status is not RESUMED or DISCARDED")


def _object(payload: bytes, what: str, keys: Tuple[str, ...]) -> Dict[str, Any]:
    document = json.loads(payload.decode("utf-8"))
    if not isinstance(document, dict):
        raise ValueError("its payload is not a JSON object")
    unknown = sorted(set(document) - set(keys))
    if unknown:
        *others, last = keys
        known = f"{', '.join(others)} and {last}" if others else f"{last} alone"
        raise ValueError(f"it has the unknown key {unknown[0][:80]!r}; {what} has {known}")
    return document


def _parse_progress(payload: bytes) -> Progress:
    text = payload.decode("ascii", "backslashreplace").strip()
    if not _PERCENT.match(text) or float(text) > 100:
        raise ValueError("a progress is a number from 0 to 100")
    return Progress(float(text))


def _parse_status(payload: bytes) -> Status:
    return Status(_text(payload))


def _parse_fail(payload: bytes) -> Fail:
    return Fail(_text(payload))


def _text(payload: bytes) -> str:
    return printable(payload.decode("utf-8", "backslashreplace").strip())[:MAX_TEXT]


_PARSERS: Dict[MessageKind, Callable[[bytes], Message]] = {
    MessageKind.CHECKPOINT_SAVE: _parse_save,
    MessageKind.CHECKPOINT_FILES: _parse_files,
    MessageKind.CHECKPOINT_RESUME_STATUS: _parse_resume_status,
    MessageKind.PROGRESS: _parse_progress,
    MessageKind.STATUS: _parse_status,
    MessageKind.FAIL: _parse_fail,
}


def _words() -> str:
    return ", ".join(f"openjd_{kind.value}" for kind in MessageKind)


def _describe(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "its payload is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "its payload is not UTF-8"
    return f"its payload is not JSON: {error}"
