"""Identity: where the fields that make a run this run get their values from, and when two of them are the same run."""

from __future__ import annotations

import enum

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.contract import PREFIX
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.printable import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Optional, Tuple

CODE = "code"
"""The field that may change within a run, where the schema of its checkpoints is declared and stays."""
SCHEMA = "checkpoint_schema"
LITERAL = "literal:"
"""What a literal text begins with that would else be read as a provider."""
UNSET = "unset"
"""Stands in the place of a digest for a variable that is not set, which is not the same as one that is empty."""
_SHOWN_DIGITS = 12


class ProviderKind(enum.Enum):
    """What a field's value may be taken from."""

    FILE = "file"
    """A file's bytes, or a folder's content."""
    GIT = "git"
    """The commit of a working tree, and how its tracked files differ from it."""
    ENV = "env"
    """A variable of the job's environment."""


@dataclass(frozen=True)
class Provider:
    """Where one field's value is taken from, anew by each execution.

    Args:
        kind: what it is taken from.
        argument: a path, relative to the working folder or absolute; of an ``env`` the variable's name.
    """

    kind: ProviderKind
    argument: str

    @classmethod
    def parse(cls, text: str) -> Optional[Provider]:
        """Read ``file:PATH``, ``git:PATH`` or ``env:NAME``; None for any other text.

        Raises:
            UsageError: it begins as a provider and names nothing that can be one.
        """
        word, colon, argument = text.partition(":")
        kind = next((each for each in ProviderKind if each.value == word), None)
        if kind is None or not colon:
            return None
        wrong = _fault(kind, argument)
        if wrong:
            raise UsageError(f"{shorten(text)} {wrong}; for the text itself write {LITERAL}{word}:…")
        return cls(kind, argument)

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.argument}"


def literal_text(text: str) -> str:
    """A literal value as it is meant: without the prefix that keeps it from being read as a provider."""
    return text[len(LITERAL) :] if text.startswith(LITERAL) else text


@dataclass(frozen=True)
class Difference:
    """In what a run differs from what it should be.

    Args:
        fields: the fields whose values differ, ordered; empty where none does.
        tolerated: whether it may go on all the same: ``code`` alone differs, and a declared ``checkpoint_schema`` is
            the same.
    """

    fields: Tuple[str, ...]
    tolerated: bool


def compare_identity(expected: Mapping[str, str], found: Mapping[str, str]) -> Difference:
    """Compare two identities, field by field. A field that only one of them has differs.

    Args:
        expected: digests, by field.
        found: likewise.
    """
    fields = tuple(sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name)))
    declared = found.get(SCHEMA, UNSET) != UNSET
    return Difference(fields, fields == (CODE,) and declared)


def short_digest(digest: str) -> str:
    """A digest as people compare them: its kind, and the first digits of each part."""
    kind, colon, digits = digest.partition(":")
    shown = "+".join(part[:_SHOWN_DIGITS] for part in digits.split("+"))
    return f"{kind}{colon}{shown}"


def _fault(kind: ProviderKind, argument: str) -> str:
    if not argument:
        return "names nothing"
    if "\0" in argument:
        return "contains NUL"
    if kind is ProviderKind.ENV and "=" in argument:
        return "cannot be a variable's name"
    if kind is ProviderKind.ENV and argument.startswith(PREFIX):
        return "is set by dispatch-job and differs in each execution"
    return ""
