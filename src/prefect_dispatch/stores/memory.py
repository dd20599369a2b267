"""The store in memory: what the others do, for tests and simulations. Safe for threads."""

from __future__ import annotations

import threading

from prefect_dispatch.errors import Absent, Exists, StoreError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import MAX_DOCUMENT_BYTES
from prefect_dispatch.format.manifest import SavedFile, digest_of, find_rewriting, is_short
from prefect_dispatch.stores.folder import check_name, split_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple


@dataclass(frozen=True)
class _File:
    content: bytes
    mtime_ns: int


class MemoryStore:
    """A store in memory; see :class:`~prefect_dispatch.stores.port.Store` for the contract.

    Args:
        location: what it calls itself.
    """

    def __init__(self, location: str = "memory://store") -> None:
        self._location = location
        self._lock = threading.RLock()
        self._folders: Dict[str, Dict[str, _File]] = {"": {}}
        self._clock_ns = 0

    @property
    def location(self) -> str:
        """What it calls itself."""
        return self._location

    def local(self, path: str) -> str:
        """A name for it; there are no files in memory."""
        return f"{self._location}/{path}"

    def probe(self, make: bool = True) -> None:
        """Nothing can be wrong with it."""

    def ledger(self, folder: str) -> MemoryLedger:
        """The ledger at a folder."""
        split_path(folder)
        return MemoryLedger(self, folder)

    def folders(self, path: str) -> List[str]:
        """List the folders in a folder."""
        prefix = f"{path}/" if path else ""
        with self._lock:
            below = (folder[len(prefix) :] for folder in self._folders if folder.startswith(prefix) and folder != path)
            names: Set[str] = {name.split("/", 1)[0] for name in below}
        return sorted(names)

    def make_folder(self, path: str) -> None:
        """Make a folder."""
        parts = split_path(path)
        with self._lock:
            for depth in range(1, len(parts) + 1):
                if self._find("/".join(parts[:depth])) is not None:
                    raise StoreError(f"{self._location}/{'/'.join(parts[:depth])} is a file; a folder cannot be there")
            for depth in range(1, len(parts) + 1):
                self._folders.setdefault("/".join(parts[:depth]), {})

    def files(self, path: str) -> Tuple[SavedFile, ...]:
        """List every file of a save."""
        if not split_path(path):
            raise StoreError("the root itself is no save; name a file or folder in it")
        with self._lock:
            single = self._find(path)
            if single is not None:
                return (_listed("", single),)
            if path not in self._folders:
                raise Absent(f"{self._location}/{path} is not there")
            found = [
                _listed(f"{folder}/{name}"[len(path) + 1 :], file)
                for folder, files in self._folders.items()
                if folder == path or folder.startswith(f"{path}/")
                for name, file in files.items()
            ]
        return tuple(sorted(found, key=lambda file: file.path))

    def difference(self, path: str, files: Tuple[SavedFile, ...]) -> Optional[str]:
        """Say how a save differs from a list of its files."""
        seen: List[Tuple[SavedFile, int]] = []
        with self._lock:
            for entry in files:
                file = self._find(_join(path, entry.path))
                if file is None:
                    return f"{entry.path or path} is gone"
                if len(file.content) != entry.size:
                    return f"{entry.path or path} has {len(file.content)} bytes, not {entry.size}"
                if entry.digest not in (None, digest_of(file.content)):
                    return f"{entry.path or path} has other bytes than when it was published"
                seen.append((entry, file.mtime_ns))
        return find_rewriting(seen)

    def sync(self, path: str, files: Tuple[SavedFile, ...]) -> Tuple[SavedFile, ...]:
        """Check that the files are as listed; memory has no disk."""
        difference = self.difference(path, files)
        if difference:
            raise Absent(f"{self._location}/{path}: {difference}")
        return files

    def copy(self, source: str, target: str, files: Tuple[SavedFile, ...]) -> None:
        """Copy a save."""
        with self._lock:
            if target in self._folders or self._find(target) is not None:
                raise Exists(f"{self._location}/{target} is there already")
            self.sync(source, files)
            if [entry.path for entry in files] != [""]:
                self.make_folder(target)
            for entry in files:
                file = self._find(_join(source, entry.path))
                if file is not None:
                    self._put(_join(target, entry.path), file)

    def write(self, path: str, content: bytes) -> None:
        """Write a file as a program would: new, or over what was there."""
        with self._lock:
            self._clock_ns += 1_000_000_000
            self._put(path, _File(content, self._clock_ns))

    def delete(self, path: str) -> None:
        """Delete a file, or a folder and all in it, as a program would."""
        with self._lock:
            folder, _, name = path.rpartition("/")
            if self._folders.get(folder, {}).pop(name, None) is None:
                for below in [other for other in self._folders if other == path or other.startswith(f"{path}/")]:
                    del self._folders[below]

    def _find(self, path: str) -> Optional[_File]:
        folder, _, name = path.rpartition("/")
        return self._folders.get(folder, {}).get(name)

    def _put(self, path: str, file: _File) -> None:
        folder, _, name = path.rpartition("/")
        self.make_folder(folder)
        if path in self._folders:
            raise StoreError(f"{self._location}/{path} is a folder; a file cannot be there")
        self._folders[folder][name] = file


class MemoryLedger:
    """One folder of a MemoryStore; see :class:`~prefect_dispatch.stores.port.Ledger` for the contract."""

    def __init__(self, store: MemoryStore, folder: str) -> None:
        self._store = store
        self._folder = folder

    def create(self, name: str, content: bytes = b"") -> None:
        """Create a name exclusively."""
        path = self._path(name)
        with self._store._lock:
            if self._store._find(path) is not None:
                raise Exists(f"{self._store.location}/{path} is there already")
            self._store.write(path, content)

    def read(self, name: str, most: int = MAX_DOCUMENT_BYTES) -> bytes:
        """Read a name's content, up to one byte more than it may have."""
        path = self._path(name)
        with self._store._lock:
            file = self._store._find(path)
        if file is None:
            raise Absent(f"{self._store.location}/{path} is not there")
        return file.content[: most + 1]

    def names(self, after: str = "", most: Optional[int] = None) -> List[str]:
        """List the names."""
        with self._store._lock:
            held = self._store._folders.get(self._folder, {})
            if most is not None and len(held) > most:
                raise StoreError(f"{self._store.location}/{self._folder} holds more than {most:,} entries")
            names = [name for name in held if name > after]
        return sorted(names)

    def unordered_names(self) -> List[str]:
        """List the names as they came, which is not their order."""
        with self._store._lock:
            return list(self._store._folders.get(self._folder, {}))

    def strangers(self) -> List[str]:
        """List the folders; memory has nothing else that is no file."""
        return self._store.folders(self._folder)

    def remove(self, name: str) -> None:
        """Remove a name, if it is there."""
        self._path(name)
        with self._store._lock:
            self._store._folders.get(self._folder, {}).pop(name, None)

    def _path(self, name: str) -> str:
        return _join(self._folder, check_name(name))


def _listed(path: str, file: _File) -> SavedFile:
    digest = digest_of(file.content) if is_short(path, len(file.content)) else None
    return SavedFile(path, len(file.content), file.mtime_ns, None, digest)


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name
