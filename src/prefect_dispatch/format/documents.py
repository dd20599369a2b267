"""JSON documents as the format stores them: one spelling going out, and nothing believed coming in."""

from __future__ import annotations

import json

from prefect_dispatch.errors import MalformedDocument, UnknownFormat
from prefect_dispatch.format.printable import printable, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Tuple, Type, TypeVar, Union

    T = TypeVar("T")

FORMAT = 1
"""Major version of everything in a root and a record. A document of a greater one is refused."""
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
"""The longest document: a manifest of some 100,000 files, a fact, a snapshot of a record."""
SMALL_DOCUMENT_BYTES = 1024 * 1024
"""The longest of all others, which a job may have written and a supervisor of many jobs reads: claims and the like."""
_SPARE_BRACKETS = 128 * 1024
_BYTES_TO_A_BRACKET = 8
"""A file's entry in a manifest has 40 bytes to its two brackets. What has far more of them becomes lists and objects of
25 times its size in memory."""
MAX_INTEGER = 2**64 - 1
"""No number of a document is greater, nor its negative less: times in nanoseconds, sizes and steps have 63 bits."""

Json = dict["str", "Any"]


def encode(document: Mapping[str, Any]) -> bytes:
    """Write a document: UTF-8, keys sorted, one line, a newline at the end."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def decode(data: bytes, what: str, most: int = MAX_DOCUMENT_BYTES) -> Json:
    """Read a document and check its format version.

    Args:
        data: the stored bytes.
        what: where they were read, for the error.
        most: how many bytes such a document may have.

    Raises:
        MalformedDocument: not a JSON object in UTF-8, too large or nested too deeply.
        UnknownFormat: its ``format`` is a greater major version.
    """
    if len(data) > most:
        raise MalformedDocument(f"{what} is too long; such a document has at most {most} bytes")
    if data.count(b"[") + data.count(b"{") > _SPARE_BRACKETS + len(data) // _BYTES_TO_A_BRACKET:
        raise MalformedDocument(f"{what} is not a JSON document that anybody needs: it is little but brackets")
    try:
        document = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedDocument(f"{what} is not a JSON document: {error or 'nested too deeply'}") from None
    if not isinstance(document, dict):
        raise MalformedDocument(f"{what} is not a JSON object")
    version = document.get("format")
    if type(version) is not int or version < 1:
        raise MalformedDocument(f"{what} has format {shorten(version)}; expected {FORMAT}")
    if version > FORMAT:
        raise UnknownFormat(
            f"{what} has format {shorten(version)}; this version reads up to {FORMAT}: update prefect-dispatch"
        )
    return document


def field(document: Mapping[str, Any], name: str, kind: Union[Type[T], Tuple[Type[T], ...]], what: str) -> T:
    """Take one field of a document, of exactly the type that it must have (a bool is no int).

    Raises:
        MalformedDocument: it is missing or of another type.
    """
    if name not in document:
        raise MalformedDocument(f"{what} has no field {name!r}")
    value = document[name]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if type(value) not in kinds:
        words = " or ".join(k.__name__ for k in kinds)
        raise MalformedDocument(f"{what} has {name} = {shorten(value)}, which is not {words}")
    if type(value) is int and abs(value) > MAX_INTEGER:
        raise MalformedDocument(f"{what} has {name} = {shorten(value)}, which is beyond reason")
    return value  # type: ignore[no-any-return]


def text_map(document: Mapping[str, Any], name: str, what: str) -> Dict[str, str]:
    """Take a field that maps text to text.

    Raises:
        MalformedDocument: it does not.
    """
    value: Dict[Any, Any] = field(document, name, dict, what)
    for key, entry in value.items():
        if not isinstance(entry, str):
            raise MalformedDocument(f"{what} has {name}.{printable(key, 100)} = {shorten(entry)}, which is not text")
    return value


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")
