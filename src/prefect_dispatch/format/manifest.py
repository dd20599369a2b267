"""The manifest: what a save consisted of when it was published."""

from __future__ import annotations

from prefect_dispatch.errors import MalformedDocument, MalformedName, UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import FORMAT, Json, decode, encode, field, text_map
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.names import check_path
from prefect_dispatch.format.pattern import pattern
from prefect_dispatch.format.printable import printable, shorten
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_state import check_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

MAX_DEPTH = 64
"""Folders within folders of one save; each holds one open file while it is listed."""
MAX_NAME_BYTES = 255
"""The longest name of a file, in bytes of UTF-8, that file systems take."""

MANIFEST_PREFIX_LENGTH = 20 + 1 + 16 + 1
"""How much of a manifest's name :func:`manifest_prefix` makes: the step, and what the path comes to."""

SHORT_BYTES = 64
"""Up to how many bytes a file in a save's own folder has its digest listed: a marker is such a file."""

_NAME = pattern(r"([0-9]{20})-([0-9a-f]{16})-([0-9a-f]{16})\.json\Z")
_HEX = pattern(r"[0-9a-f]{16}\Z")
_SHA256 = pattern(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class SavedFile:
    """One file of a save.

    Args:
        path: relative to the save, '/' between parts; empty for a save that is one file.
        size: bytes.
        mtime_ns: modification time in nanoseconds since 1970; see :func:`find_rewriting`.
        link: the target, where the entry is a symbolic link that stays inside the save; else None.
        digest: what :func:`digest_of` says of its bytes, where it is short; else None, as in older manifests.
        sha256: the sha256 of its bytes in 64 hexadecimal digits, where they were sent to an object store; else None.
    """

    path: str
    size: int
    mtime_ns: int
    link: Optional[str] = None
    digest: Optional[str] = None
    sha256: Optional[str] = None

    @property
    def as_listed(self) -> SavedFile:
        """The entry as a listing of the files makes it, which reads none of the longer ones."""
        return SavedFile(self.path, self.size, self.mtime_ns, self.link, self.digest)


@dataclass(frozen=True)
class Manifest:
    """The files of one save, with what the program said of it.

    Args:
        publication: the epoch, step and path that it stands for; all must match.
        files: every file of the save, dot files included, ordered by path.
        nonce: the mark of its writer.
        state: the program's own resume state, at most 64 KiB, or empty.
        identity: the digests of the run's identity at that time.
        source: where the program wrote the save, relative to the lineage's root; the publication's own path where it
            was published in place, and where this is left out.
    """

    publication: Publication
    files: Tuple[SavedFile, ...]
    nonce: str
    state: str
    identity: Mapping[str, str]
    source: str = ""

    def __post_init__(self) -> None:
        if not self.source:
            object.__setattr__(self, "source", self.publication.path)

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
        return encode(
            {
                "format": FORMAT,
                "epoch": self.publication.epoch.number,
                "step": self.publication.step,
                "path": self.publication.path,
                "source": self.source,
                "files": encode_files(self.files),
                "nonce": self.nonce,
                "state": self.state,
                "identity": dict(self.identity),
            }
        )

    @classmethod
    def decode(cls, data: bytes, what: str) -> Manifest:
        """Read a stored manifest. Whatever publishing refuses is refused here too.

        Raises:
            MalformedDocument: it is not one.
            UnknownFormat: it is of a newer format.
        """
        document = decode(data, what)
        files = decode_files(document, what)
        try:
            publication = Publication(
                Epoch.of(field(document, "epoch", int, what)),
                field(document, "step", int, what),
                field(document, "path", str, what),
            )
            source = check_path(field({"source": publication.path, **document}, "source", str, what))
            state = check_state(field(document, "state", str, what))
        except UsageError as error:
            raise MalformedDocument(f"{what}: {error}") from None
        nonce = field(document, "nonce", str, what)
        if not _HEX.match(nonce):
            raise MalformedDocument(f"{what} has nonce = {shorten(nonce)}, which is not 16 hexadecimal digits")
        return cls(
            publication,
            files,
            nonce,
            state,
            text_map(document, "identity", what),
            source,
        )


def encode_files(files: Iterable[SavedFile]) -> List[Json]:
    """Files as a document lists them."""
    entries: List[Json] = []
    for file in files:
        entry: Dict[str, Any] = {"path": file.path, "size": file.size, "mtime_ns": file.mtime_ns}
        if file.link is not None:
            entry["link"] = file.link
        if file.digest is not None:
            entry["digest"] = file.digest
        if file.sha256 is not None:
            entry["sha256"] = file.sha256
        entries.append(entry)
    return entries


def decode_files(document: Json, what: str) -> Tuple[SavedFile, ...]:
    """Read the files that a document lists in its field ``files``.

    Raises:
        MalformedDocument: they cannot be those of one save.
    """
    files = tuple(_decode_file(entry, what) for entry in field(document, "files", list, what))
    _check_together(files, what)
    return files


def is_short(path: str, size: int) -> bool:
    """Whether a regular file's entry carries its digest.

    A program that writes a whole folder anew, in the same sizes, puts a marker of another step into it: by the marker's
    bytes the older manifest does not hold any more, whatever became of the times.
    """
    return size <= SHORT_BYTES and "/" not in path


def digest_of(content: bytes) -> str:
    """The first 16 hexadecimal digits of the sha256 of a short file's bytes."""
    import hashlib  # As below.

    return hashlib.sha256(content).hexdigest()[:16]


def manifest_prefix(publication: Publication) -> str:
    """How the names of all manifests of a publication begin; its writers' nonces follow."""
    import hashlib  # OpenSSL takes a while to load, and an execution without saves before it needs none of it.

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


def check_link(link: str, depth: int) -> bool:
    """Whether a symbolic link in a save stays in the save, wherever the save is copied to.

    Only leading '..' are counted: one behind a name could climb from wherever that name, itself a link, leads.

    Args:
        link: its target.
        depth: how many folders of the save it lies in.
    """
    parts = link.split("/")
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    return bool(link) and not link.startswith("/") and climbs <= depth and ".." not in parts[climbs:]


def find_rewriting(seen: Sequence[Tuple[SavedFile, int]]) -> Optional[str]:
    """Say whether files that have their sizes still were written over since they were listed.

    Whole seconds are compared, since not every copy of a root keeps finer ones. Where every file has another time, the
    root was copied without its times, and nothing follows from them. Links are left out: few copies keep their times.

    Args:
        seen: each file as it was listed, with the modification time that it has now, in nanoseconds since 1970.

    Returns:
        What was written over, in words; None where nothing was.
    """
    files = [(file, mtime_ns) for file, mtime_ns in seen if file.link is None]
    changed = [file for file, mtime_ns in files if mtime_ns // 10**9 != file.mtime_ns // 10**9]
    if not changed or len(changed) == len(files):
        return None
    return f"{changed[0].path} was written again since and other files were not, so the save is of two times"


def _decode_file(entry: Any, what: str) -> SavedFile:
    if not isinstance(entry, dict):
        raise MalformedDocument(f"{what} has a file entry that is not an object: {shorten(entry)}")
    path = field(entry, "path", str, what)
    parts = path.split("/") if path else []
    if any(part in ("", ".", "..") for part in parts):
        raise MalformedDocument(f"{what} has a file outside its save: {shorten(path)}")
    if len(parts) - 1 > MAX_DEPTH:
        raise MalformedDocument(f"{what} has a file more than {MAX_DEPTH} folders deep: {shorten(path)}")
    for part in parts:
        if not _can_be_a_file_name(part):
            raise MalformedDocument(f"{what} has a file entry {shorten(part)}, which no file of a save can be named")
    link = entry.get("link")
    if link is not None:
        if not isinstance(link, str):
            raise MalformedDocument(f"{what} has link = {shorten(link)}, which is not text")
        if not _is_text(link) or not check_link(link, len(parts) - 1):
            raise MalformedDocument(f"{what} has a link that leaves its save: {shorten(path)} to {shorten(link)}")
    size = field(entry, "size", int, what)
    if size < 0:
        raise MalformedDocument(f"{what} has a file of size {size}, which is negative: {shorten(path)}")
    digest = entry.get("digest")
    if digest is not None and (not isinstance(digest, str) or not _HEX.match(digest)):
        raise MalformedDocument(f"{what} has digest = {shorten(digest)}, which is not 16 hexadecimal digits")
    sha256 = entry.get("sha256")
    if sha256 is not None and (not isinstance(sha256, str) or not _SHA256.match(sha256)):
        raise MalformedDocument(f"{what} has sha256 = {shorten(sha256)}, which is not 64 hexadecimal digits")
    return SavedFile(path, size, field(entry, "mtime_ns", int, what), link, digest, sha256)


def _check_together(files: Sequence[SavedFile], what: str) -> None:
    paths: Set[str] = set()
    for file in files:
        if file.path in paths:
            raise MalformedDocument(f"{what} has the file {shorten(file.path)} twice")
        paths.add(file.path)
    if "" in paths and len(paths) > 1:
        raise MalformedDocument(f"{what} has files beside an entry without a path, which stands for all of a save")
    for path in paths:
        above = path.rpartition("/")[0]
        while above:
            if above in paths:
                raise MalformedDocument(f"{what} has {shorten(above)} as a file and as a folder of {shorten(path)}")
            above = above.rpartition("/")[0]


def _can_be_a_file_name(name: str) -> bool:
    return _is_text(name) and len(name.encode("utf-8")) <= MAX_NAME_BYTES


def _is_text(name: str) -> bool:
    try:
        return b"\0" not in name.encode("utf-8")
    except UnicodeEncodeError:
        return False
