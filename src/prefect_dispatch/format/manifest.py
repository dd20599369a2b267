"""The manifest: what a save consisted of when it was published."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from prefect_dispatch.errors import MalformedDocument, MalformedName, UsageError
from prefect_dispatch.format.documents import FORMAT, Json, decode, encode, field, text_map
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.printable import printable
from prefect_dispatch.format.publication import Publication

_NAME = re.compile(r"([0-9]{20})-([0-9a-f]{16})-([0-9a-f]{16})\.json\Z")
_NONCE = re.compile(r"[0-9a-f]{16}\Z")


@dataclass(frozen=True)
class SavedFile:
    """One file of a save.

    Args:
        path: relative to the save, '/' between parts; empty for a save that is one file.
        size: bytes.
        mtime_ns: modification time in nanoseconds since 1970, for checks before a hard link only.
        link: the target, where the entry is a symbolic link that stays inside the save; else None.
    """

    path: str
    size: int
    mtime_ns: int
    link: Optional[str] = None


@dataclass(frozen=True)
class Manifest:
    """The files of one save, with what the program said of it.

    Args:
        publication: the epoch, step and path that it stands for; all must match.
        files: every file of the save, dot files included, ordered by path.
        nonce: the mark of its writer.
        state: the program's own resume state, at most 64 KiB, or empty.
        identity: the digests of the run's identity at that time.
    """

    publication: Publication
    files: Tuple[SavedFile, ...]
    nonce: str
    state: str
    identity: Mapping[str, str]

    @property
    def name(self) -> str:
        """Its name in ``meta/<attempt>/saves/``."""
        return f"{manifest_prefix(self.publication)}{self.nonce}.json"

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def encode(self) -> bytes:
        """Write it as the format stores it."""
        files: List[Json] = []
        for file in self.files:
            entry: Dict[str, Any] = {"path": file.path, "size": file.size, "mtime_ns": file.mtime_ns}
            if file.link is not None:
                entry["link"] = file.link
            files.append(entry)
        return encode(
            {
                "format": FORMAT,
                "epoch": self.publication.epoch.number,
                "step": self.publication.step,
                "path": self.publication.path,
                "files": files,
                "nonce": self.nonce,
                "state": self.state,
                "identity": dict(self.identity),
            }
        )

    @classmethod
    def decode(cls, data: bytes, what: str) -> Manifest:
        """Read a stored manifest.

        Raises:
            MalformedDocument: it is not one.
            UnknownFormat: it is of a newer format.
        """
        document = decode(data, what)
        files = tuple(_decode_file(entry, what) for entry in field(document, "files", list, what))
        try:
            publication = Publication(
                Epoch.of(field(document, "epoch", int, what)),
                field(document, "step", int, what),
                field(document, "path", str, what),
            )
        except UsageError as error:
            raise MalformedDocument(f"{what}: {error}") from None
        nonce = field(document, "nonce", str, what)
        if not _NONCE.match(nonce):
            raise MalformedDocument(f"{what} has nonce = {nonce!r}, which is not 16 hexadecimal digits")
        return cls(
            publication,
            files,
            nonce,
            field(document, "state", str, what),
            text_map(document, "identity", what),
        )


def manifest_prefix(publication: Publication) -> str:
    """How the names of all manifests of a publication begin; its writers' nonces follow."""
    digest = hashlib.sha256(publication.path.encode("utf-8")).hexdigest()[:16]
    return f"{publication.step:020d}-{digest}-"


def check_manifest_name(name: str) -> str:
    """Return a name of ``saves/`` if it is a manifest's.

    Raises:
        MalformedName: it is not.
    """
    if not _NAME.match(name):
        raise MalformedName(
            f"saves/{printable(name)} is not a manifest's name; find out who wrote it, then move it away"
        )
    return name


def _decode_file(entry: Any, what: str) -> SavedFile:
    if not isinstance(entry, dict):
        raise MalformedDocument(f"{what} has a file entry that is not an object: {entry!r}")
    path = field(entry, "path", str, what)
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        raise MalformedDocument(f"{what} has a file outside its save: {path!r}")
    link = entry.get("link")
    if link is not None and not isinstance(link, str):
        raise MalformedDocument(f"{what} has link = {link!r}, which is not text")
    for name in (path, link or ""):
        if not _can_be_a_file_name(name):
            raise MalformedDocument(f"{what} has a file entry {name!r}, which no file system can hold")
    size = field(entry, "size", int, what)
    if size < 0:
        raise MalformedDocument(f"{what} has a file of size {size}, which is negative: {path!r}")
    return SavedFile(path, size, field(entry, "mtime_ns", int, what), link)


def _can_be_a_file_name(name: str) -> bool:
    """Bytes that are not UTF-8 are carried as the surrogates that Python reads them as; others cannot be a name."""
    try:
        return b"\0" not in name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
