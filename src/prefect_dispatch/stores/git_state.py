"""State of a git working tree: its commit, and how its tracked files differ from that commit.

Git is asked for names alone: which commit, which files it holds, which files the index holds. The files themselves are
read here, as they lie there. So no filter, hook, monitor or external diff that some configuration names is ever run,
nothing is written into the repository, and the answer depends neither on whose configuration is in force nor on what
the index remembers of sizes and times.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from typing import Dict, List, NamedTuple, Optional, Tuple

from prefect_dispatch.errors import IdentityUnknown
from prefect_dispatch.format.printable import printable, shorten
from prefect_dispatch.stores.content_digest import feed_file, signature_of

MOST_FILES = 500_000
"""Tracked files of a repository; each of them is read."""
MOST_DEEP = 16
"""How deep submodules may lie in one another."""
PATIENCE_SECONDS = 300.0
"""How long git may take for one answer."""
_TRIES = 3
_LINK, _SUBMODULE = b"120000", b"160000"
_OBJECT = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
_OVERRIDES = (
    # The repository may be another user's: nothing that it configures is run.
    *("-c", "safe.directory=*"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.untrackedCache=false"),
)
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1",
    # A partial clone would else fetch what it lacks, by whatever program its configuration names.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
}


class _Tracked(NamedTuple):
    """What the commit says of one file; both empty for one that only the index has."""

    mode: bytes = b""
    object: bytes = b""


class _Meanwhile(Exception):
    """A file was not the same before and after it was read."""


def state_of_repository(path: str) -> Tuple[str, str]:
    """The state of the working tree that a path lies in, as a whole, and its commit.

    A file counts by its bytes, and whether it is executable, beside what the commit has of it; whether a difference is
    staged makes none. A submodule counts by its own state. Untracked files do not count.

    Returns:
        ``git:<commit>``, or ``git:<commit>+<digest of the differences>``; and the commit.

    Raises:
        IdentityUnknown: git is not there or has no answer, the path is in no working tree, there is no commit yet, or
            something changes whenever it is read.
    """
    place = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if not os.path.exists(path):
        raise IdentityUnknown(f"{shorten(path)} is not there")
    return _state(_ask_path(os.fsencode(place), "rev-parse", "--show-toplevel"), 0)


def _state(top: bytes, depth: int) -> Tuple[str, str]:
    if depth > MOST_DEEP:
        raise IdentityUnknown(f"{_shown(top)} is a submodule in more than {MOST_DEEP} others")
    for _ in range(_TRIES):
        commit = _commit_of(top)
        differences = _Tree(top, len(commit), depth).differences(_tracked(top, commit))
        if _commit_of(top) == commit:
            named = commit.decode("ascii")
            return f"git:{named}{f'+{differences}' if differences else ''}", named
    raise IdentityUnknown(f"the commit of {_shown(top)} changes while its files are read")


def _commit_of(top: bytes) -> bytes:
    try:
        commit = _ask(top, "rev-parse", "--verify", "HEAD^{commit}").strip()
    except IdentityUnknown as error:
        raise IdentityUnknown(
            f"there is no commit at the HEAD of {_shown(top)}, make one or mend it: {error}"
        ) from None
    if not _OBJECT.match(commit):
        raise IdentityUnknown(f"git names the commit of {_shown(top)} {shorten(commit)}, which is none")
    return commit


def _tracked(top: bytes, commit: bytes) -> Dict[bytes, _Tracked]:
    """The files of the commit and of the index."""
    files: Dict[bytes, _Tracked] = {}
    for line in _lines(_ask(top, "ls-tree", "-r", "-z", "--full-tree", commit.decode("ascii"))):
        facts, _, name = line.partition(b"\t")
        mode, _, identifier = facts.split(b" ")
        files[name] = _Tracked(mode, identifier)
    for name in _lines(_ask(top, "ls-files", "-z", "--cached", "--full-name")):
        files.setdefault(name, _Tracked())
    if len(files) > MOST_FILES:
        raise IdentityUnknown(f"{_shown(top)} has {len(files):,} tracked files; at most {MOST_FILES:,} are read")
    return files


class _Tree:
    """The files of one working tree, read as they are."""

    def __init__(self, top: bytes, digits: int, depth: int) -> None:
        self._top = top
        self._depth = depth
        self._new_hash = hashlib.sha1 if digits == 40 else hashlib.sha256
        self._real_folders: Dict[bytes, bool] = {b"": True}

    def differences(self, files: Dict[bytes, _Tracked]) -> str:
        """A digest of how the files differ from the commit; empty where none does."""
        digest, count = hashlib.sha256(), 0
        for name in sorted(files):
            found = self._settled(name, files[name])
            if found is not None:
                count += 1
                digest.update(b"%d %s%s\0" % (len(name), name, found))
        return digest.hexdigest() if count else ""

    def _settled(self, name: bytes, tracked: _Tracked) -> Optional[bytes]:
        for _ in range(_TRIES):
            try:
                return self._difference(name, tracked)
            except _Meanwhile:
                continue
            except OSError as error:
                raise IdentityUnknown(f"tracked file {_shown(name)} cannot be read: {error.strerror}") from None
        raise IdentityUnknown(f"tracked file {_shown(name)} changes while it is read")

    def _difference(self, name: bytes, tracked: _Tracked) -> Optional[bytes]:
        """What lies there instead of what the commit has; None where it is the same."""
        place = os.path.join(self._top, name)
        try:
            status = os.lstat(place) if self._is_real(os.path.dirname(name)) else None
        except (FileNotFoundError, NotADirectoryError):
            status = None
        if status is None:
            return b"gone" if tracked.mode else None
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(place)
            return _unless_same(tracked, _LINK, self._blob(target))
        if stat.S_ISREG(status.st_mode):
            mode = b"100755" if status.st_mode & stat.S_IXUSR else b"100644"
            return _unless_same(tracked, mode, self._blob_of_file(place, status))
        if not stat.S_ISDIR(status.st_mode):
            raise IdentityUnknown(f"tracked file {_shown(name)} is no file, folder or link, and has no content")
        if os.path.lexists(os.path.join(place, b".git")):
            return self._submodule(place, tracked)
        return b"not checked out" if tracked.mode == _SUBMODULE else b"a folder"

    def _submodule(self, place: bytes, tracked: _Tracked) -> Optional[bytes]:
        top = _ask_path(place, "rev-parse", "--show-toplevel")
        if os.path.realpath(top) != os.path.realpath(place):
            raise IdentityUnknown(f"submodule {_shown(place)} has its files in {_shown(top)}")
        state = _state(place, self._depth + 1)[0].encode("ascii")
        return _unless_same(tracked, _SUBMODULE, state[len("git:") :])

    def _blob(self, content: bytes) -> bytes:
        return self._new_hash(b"blob %d\0" % len(content) + content).hexdigest().encode("ascii")

    def _blob_of_file(self, place: bytes, status: os.stat_result) -> bytes:
        """The name that git would give the bytes of a file, without any conversion."""
        try:
            descriptor = os.open(place, _READ)
        except FileNotFoundError:
            raise _Meanwhile from None
        try:
            before = signature_of(os.fstat(descriptor))
            digest = self._new_hash(b"blob %d\0" % status.st_size)
            size = feed_file(descriptor, status.st_size, digest.update) if stat.S_ISREG(before[2]) else -1
            if size != status.st_size or before != signature_of(status):
                raise _Meanwhile
            if before != signature_of(os.fstat(descriptor)):
                raise _Meanwhile
            return digest.hexdigest().encode("ascii")
        finally:
            os.close(descriptor)

    def _is_real(self, folder: bytes) -> bool:
        """Whether a folder below the top is one, and no link in its path leads elsewhere."""
        known = self._real_folders.get(folder)
        if known is None:
            known = self._is_real(os.path.dirname(folder))
            if known:
                known = stat.S_ISDIR(os.lstat(os.path.join(self._top, folder)).st_mode)
            self._real_folders[folder] = known
        return known


def _unless_same(tracked: _Tracked, mode: bytes, identifier: bytes) -> Optional[bytes]:
    return None if (mode, identifier) == tracked else b"%s %s" % (mode, identifier)


def _lines(answer: bytes) -> List[bytes]:
    return answer.split(b"\0")[:-1]


def _ask_path(place: bytes, *words: str) -> bytes:
    # One line end belongs to the answer; more of them to the path.
    return _ask(place, *words)[:-1]


def _ask(place: bytes, *words: str) -> bytes:
    """Ask git, in a folder.

    Raises:
        IdentityUnknown: it is not installed, fails, or takes too long.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        answer = subprocess.run(
            ["git", *_OVERRIDES, *words],
            cwd=place,
            env={**own, **_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise IdentityUnknown(f"git {words[0]} in {_shown(place)} takes more than {PATIENCE_SECONDS:g}s") from None
    except OSError as error:
        raise IdentityUnknown(f"git cannot be run on {os.uname().nodename}: {error.strerror}; install it") from None
    if answer.returncode:
        said = answer.stderr.decode("utf-8", "backslashreplace").strip().partition("\n")[0]
        raise IdentityUnknown(f"git {words[0]} in {_shown(place)} fails: {printable(said, 300) or answer.returncode}")
    return answer.stdout


def _shown(place: bytes) -> str:
    return shorten(os.fsdecode(place))
