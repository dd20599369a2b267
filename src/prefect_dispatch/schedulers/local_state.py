"""The local scheduler's state folder: the lock, the queue and the objects.

<state>/
  id.json          which folder this is; made once, by the first submit, after the folders
  lock             held by whoever looks at or changes the queue
  queue/           one empty name per object that has not ended, <order>-<token>
  objects/<token>/ one object; see local_records
  tmp/             an object while it is being made

Where ``id.json`` is there and ``queue/`` or ``objects/`` is not, that one was moved away: nothing is known then.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event

from prefect_dispatch.errors import OutOfReach, SchedulerError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.model.submission_request import SubmissionRequest
from prefect_dispatch.schedulers.local_records import (
    MalformedRecord,
    ObjectFolder,
    create_once,
    encode_record,
    read_record,
    sync_folder,
    write_new,
)
from prefect_dispatch.schedulers.local_request import describe_object, job_environment
from prefect_dispatch.stores.folder import open_root
from prefect_dispatch.stores.removal import remove_all

LOCK_BOUND = timedelta(seconds=20)
"""How long a call waits for the lock; it is held for milliseconds."""
_LOCK_POLL_SECONDS = 0.01
_FOLDERS = ("objects", "queue", "tmp")
_ENTRY = re.compile(r"([0-9]{12})-([a-z2-7]{16})")


class LocalState:
    """A state folder on this machine's own disk. Everything but :meth:`object` needs the lock.

    Args:
        folder: the state folder; made by the first submit, readable by its owner alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._objects, self._queue, self._building = (folder / name for name in _FOLDERS)
        self._identity = folder / "id.json"
        self._seen: str | None = None

    @property
    def id(self) -> str | None:
        """Which folder this is, since the lock was first held; None before the first submit."""
        return self._seen

    def is_made(self) -> bool:
        """Whether there is a state folder.

        Raises:
            SchedulerError: there is none any more, or another one, since this process saw one; or a part of it is away.
        """
        self._recognise()
        return self._seen is not None or all(map(_is_folder, (self._objects, self._queue, self._building)))

    def make(self) -> None:
        """Make what is missing of the folder; only a submit may, and not what was there before.

        Raises:
            SchedulerError: see :meth:`is_made`.
        """
        self._recognise()
        # With the id there, all but the workshop is: what was in the others is not to be made anew.
        for folder in (self._building,) if self._seen is not None else (self._objects, self._queue, self._building):
            reach("local.state-folder")
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._seen is None:
            reach("local.state-id")
            create_once(self._identity, {"id": new_nonce()})

    def away(self, id: str, found: object = None) -> SchedulerError:
        """What to say where the folder with this id is not there.

        Args:
            id: that of the folder where the objects are.
            found: that of the folder which is in its place; None where there is none that anything was submitted to.
        """
        if found is not None:
            # Its id is not to be changed: the objects that were submitted to it would be out of reach then.
            return OutOfReach(
                f"the state folder {self.folder} is another one, {found}, than the one with id {id}, where the "
                "object is; bring it back, or find out if anything of it still runs, and say so once it is held for"
            )
        return SchedulerError(
            f"the state folder {self.folder} is not the one with id {id}, where the objects are; bring it back (is its "
            "file system mounted?), or, if it and all that ran there are lost for good, make empty folders "
            f'{self._objects} and {self._queue}, and write {{"id": "{id}"}} into {self._identity}'
        )

    @contextmanager
    def lock(self, abandoned: Event) -> Iterator[None]:
        """Hold the lock of a folder that is there.

        Args:
            abandoned: set when the caller no longer wants it; then nothing may happen any more.

        Raises:
            SchedulerError: it was abandoned, others held the lock for too long, or the folder is away or went away.
        """
        reach("local.lock")
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._acquire(descriptor, abandoned)
            self._recognise()
            yield
            # What was not there counts only if all the while it was this folder that was looked at.
            self._recognise()
        finally:
            os.close(descriptor)

    def queue(self) -> list[ObjectFolder]:
        """The objects that have not been retired, in the order of their submission."""
        entries = []
        for name, _, token in self._names():
            found = self.object(token)
            if found is None:
                reach("local.drop-entry")
                # Its submitter died before the object was there, and none will come: submitters hold the lock.
                (self._queue / name).unlink()
            else:
                entries.append(found)
        return entries

    def object(self, token: str) -> ObjectFolder | None:
        """The object with this token, if there is one."""
        path = self._objects / token
        return ObjectFolder(path) if _is_folder(path) else None

    def add(self, request: SubmissionRequest, wrapper: tuple[str, ...], linger: timedelta) -> None:
        """Put a new object at the queue's end, whole or not at all: once it is there, a crash does not take it back."""
        with open_root(str(self._building)) as building:
            for leftover in os.listdir(building):
                remove_all(building, leftover)
        built = ObjectFolder(self._building / request.token)
        placed = ObjectFolder(self._objects / request.token)
        reach("local.object-folder")
        built.path.mkdir(mode=0o700)
        reach("local.submission")
        write_new(built.submission, request.document.encode())
        reach("local.environment")
        write_new(built.environment, encode_record(job_environment(request.environment, os.environ, request.secrets)))
        reach("local.description")
        write_new(built.description, encode_record(describe_object(request, wrapper, linger, placed)))
        sync_folder(built.path)
        # The queue comes first: an entry without its object is nothing, an object without its entry would never start.
        self._enqueue(request.token)
        reach("local.place-object")
        os.rename(built.path, placed.path)
        sync_folder(self._objects)

    def retire(self, ended: ObjectFolder) -> None:
        """Take an ended object out of the queue, and with it what may be secret."""
        reach("local.forget-secrets")
        ended.environment.unlink(missing_ok=True)
        for name, _, token in self._names():
            if token == ended.token:
                reach("local.free-slot")
                (self._queue / name).unlink()

    def enlist(self, lost: ObjectFolder) -> None:
        """Put an object that has not been retired at the queue's end, unless it has an entry.

        One that lost its entry would never be started, or never be seen to end: an object is never without one before
        it is retired.
        """
        if all(token != lost.token for _, _, token in self._names()):
            self._enqueue(lost.token)

    def _enqueue(self, token: str) -> None:
        order = max((order for _, order, _ in self._names()), default=0) + 1
        reach("local.queue")
        os.close(os.open(self._queue / f"{order:012d}-{token}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        sync_folder(self._queue)

    def _names(self) -> list[tuple[str, int, str]]:
        """The entries of the queue in order: each one's name, order and token.

        Raises:
            SchedulerError: there is something that no scheduler put there; its place in the queue is nobody's guess.
        """
        entries = []
        for name in os.listdir(self._queue):
            entry = _ENTRY.fullmatch(name)
            if entry is None:
                raise SchedulerError(f"{self._queue / name} is no entry of the queue; move it away")
            entries.append((name, int(entry[1]), entry[2]))
        return sorted(entries, key=lambda entry: entry[1:])

    def _recognise(self) -> None:
        """Find out that the folder is the one that this process has seen, and whole.

        Raises:
            SchedulerError: it is not.
        """
        identity = read_record(self._identity)
        found = identity.get("id") if identity is not None else None
        if identity is not None and not isinstance(found, str):
            raise MalformedRecord(f"{self._identity} tells no id; put back what it held")
        if self._seen is None and isinstance(found, str):
            self._seen = found
        if self._seen is not None and found != self._seen:
            raise self.away(self._seen, found)
        for folder in (self._objects, self._queue):
            if found is not None and not _is_folder(folder):
                raise SchedulerError(
                    f"{folder} is not there, and it was made with {self._identity}; bring it back (was it moved "
                    "away?), or, if all that was in it is lost for good and nothing of it runs, make an empty folder "
                    "there"
                )

    def _acquire(self, descriptor: int, abandoned: Event) -> None:
        give_up = time.monotonic() + LOCK_BOUND.total_seconds()
        while not self._try_acquire(descriptor):
            if abandoned.is_set():
                break
            if time.monotonic() >= give_up:
                lock, bound = self.folder / "lock", f"{LOCK_BOUND.total_seconds():g}s"
                raise SchedulerError(f"{lock} was held by others for {bound}; find who holds it with fuser")
            time.sleep(_LOCK_POLL_SECONDS)
        # Asked once the lock is held: a call that was given up while it waited must not do its work late.
        if abandoned.is_set():
            raise SchedulerError(f"the call to {self.folder} was given up")

    def _try_acquire(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def describe_folder_refusal(folder: Path) -> str | None:
    """Say why a folder cannot be a state folder; None when it can be one, or can be made. Changes nothing."""
    field = f"scheduler.state_folder {str(folder)!r} cannot be used"
    # A link that leads nowhere is in the way too.
    there = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), folder)
    own = [folder / name for name in _FOLDERS] if there == folder else []
    for place in (there, *(place for place in own if os.path.lexists(place))):
        if not os.path.isdir(place):
            return f"{field}: {place} is not a folder; name another one, or move that away"
        if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
            return f"{field}: {place} may not be written; name another one, or give this user access"
    return None


def _is_folder(path: Path) -> bool:
    """Whether it is a folder. Only "there is none" is a no: a disk that fails is an error."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        return False
