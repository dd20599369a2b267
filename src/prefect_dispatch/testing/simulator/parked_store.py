"""A store whose every call parks before and after its effect, may fail, and may lose its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from prefect_dispatch.errors import DispatchError, StoreError
from prefect_dispatch.format.documents import MAX_DOCUMENT_BYTES
from prefect_dispatch.format.manifest import SavedFile
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.testing.simulator.stage import Stage

T = TypeVar("T")


class Watcher(Protocol):
    """Is told of every effect on a store at the moment at which it has it."""

    def read(self, path: str) -> None:
        """A document was read."""
        ...

    def created(self, path: str, content: bytes) -> None:
        """A name of a ledger was created."""
        ...

    def changed(self, path: str) -> None:
        """A file or folder was written, copied to, made or deleted."""
        ...


class ParkedStore:
    """One actor's way to a store; see :class:`~prefect_dispatch.stores.port.Store` for the contract.

    Args:
        store: the store behind it.
        stage: whose turn it is, and what goes wrong.
        watcher: is told of effects.
        failure: how likely a call fails without an effect.
        lost_reply: how likely a call that changes something fails after its effect.
    """

    def __init__(
        self, store: MemoryStore, stage: Stage, watcher: Watcher, failure: float = 0.0, lost_reply: float = 0.0
    ) -> None:
        self._store = store
        self._stage = stage
        self._failure = failure
        self._lost_reply = lost_reply
        self.watcher = watcher

    @property
    def location(self) -> str:
        """Where it is, for people."""
        return self._store.location

    def local(self, path: str) -> str:
        """See the port."""
        return self._store.local(path)

    def probe(self, make: bool = True) -> None:
        """See the port."""
        self.change("probe", lambda: self._store.probe(make))

    def ledger(self, folder: str) -> ParkedLedger:
        """See the port."""
        return ParkedLedger(self, self._store, folder)

    def folders(self, path: str) -> list[str]:
        """See the port."""
        return self.look(f"folders {path}", lambda: self._store.folders(path))

    def make_folder(self, path: str) -> None:
        """See the port."""
        self.change(f"make folder {path}", lambda: self._store.make_folder(path), lambda: self.watcher.changed(path))

    def files(self, path: str) -> tuple[SavedFile, ...]:
        """See the port."""
        return self.look(f"files {path}", lambda: self._store.files(path))

    def difference(self, path: str, files: tuple[SavedFile, ...]) -> str | None:
        """See the port."""
        return self.look(f"compare {path}", lambda: self._store.difference(path, files))

    def sync(self, path: str, files: tuple[SavedFile, ...]) -> tuple[SavedFile, ...]:
        """See the port."""
        self.change(f"sync {path}", lambda: self._store.sync(path, files))
        return files

    def copy(self, source: str, target: str, files: tuple[SavedFile, ...]) -> None:
        """See the port."""
        self.change(
            f"copy {source} to {target}",
            lambda: self._store.copy(source, target, files),
            lambda: self.watcher.changed(target),
        )

    def write(self, path: str, content: bytes) -> None:
        """Write a file as a program would."""
        self.change(f"write {path}", lambda: self._store.write(path, content), lambda: self.watcher.changed(path))

    def delete(self, path: str) -> None:
        """Delete a file or folder as a program would."""
        self.change(f"delete {path}", lambda: self._store.delete(path), lambda: self.watcher.changed(path))

    def appears(self) -> bool:
        """Whether a name that came while a listing was taken is in it."""
        return self._stage.random.random() < 0.5

    def look(self, what: str, effect: Callable[[], T]) -> T:
        """Make a call that changes nothing."""
        stage = self._stage
        stage.pause()
        self._may_fail(what)
        try:
            result = effect()
        except DispatchError as error:
            stage.note(f"{what}: {type(error).__name__}")
            raise
        stage.note(what if result is None or isinstance(result, bytes) else f"{what}: {_describe(result)}")
        return result

    def change(self, what: str, effect: Callable[[], object], tell: Callable[[], None] | None = None) -> None:
        """Make a call that changes something, and lose its answer now and then."""
        stage = self._stage
        stage.pause()
        self._may_fail(what)
        try:
            effect()
        except DispatchError as error:
            stage.note(f"{what}: {type(error).__name__}")
            raise
        stage.note(what)
        if tell is not None:
            tell()
        stage.pause()
        if stage.chance(self._lost_reply):
            stage.happen("lost reply of a store")
            stage.note(f"{what}: the reply is lost")
            raise StoreError(f"{what}: the reply is lost")

    def _may_fail(self, what: str) -> None:
        if self._stage.chance(self._failure):
            self._stage.happen("store failure")
            self._stage.note(f"{what}: fails")
            raise StoreError(f"{what}: the store does not answer")


class ParkedLedger:
    """One folder of a ParkedStore; see :class:`~prefect_dispatch.stores.port.Ledger` for the contract."""

    def __init__(self, parked: ParkedStore, store: MemoryStore, folder: str) -> None:
        self._parked = parked
        self._ledger = store.ledger(folder)
        self._folder = folder

    def create(self, name: str, content: bytes = b"") -> None:
        """See the port."""
        path = self._path(name)
        self._parked.change(
            f"create {path}",
            lambda: self._ledger.create(name, content),
            lambda: self._parked.watcher.created(path, content),
        )

    def read(self, name: str, most: int = MAX_DOCUMENT_BYTES) -> bytes:
        """See the port."""
        path = self._path(name)
        content = self._parked.look(f"read {path}", lambda: self._ledger.read(name, most))
        self._parked.watcher.read(path)
        return content

    def names(self, after: str = "", most: int | None = None) -> list[str]:
        """See the port. A name that is created while the listing is taken may be in it or not."""
        what = f"list {self._folder}"
        before = set(self._parked.look(f"{what}, its beginning", lambda: self._ledger.names(after, most)))
        names = self._parked.look(what, lambda: self._ledger.names(after, most))
        return [name for name in names if name in before or self._parked.appears()]

    def unordered_names(self) -> list[str]:
        """See the port."""
        return self.names()

    def strangers(self) -> list[str]:
        """See the port."""
        return self._parked.look(f"strangers {self._folder}", self._ledger.strangers)

    def remove(self, name: str) -> None:
        """See the port."""
        path = self._path(name)
        self._parked.change(
            f"remove {path}", lambda: self._ledger.remove(name), lambda: self._parked.watcher.changed(path)
        )

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name


def _describe(result: object) -> str:
    if isinstance(result, list | tuple):
        return f"{len(result)} found"
    return str(result)
