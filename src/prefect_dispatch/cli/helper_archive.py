"""The helper as one file: a zip archive of its modules that any Python 3.9 or newer runs, with nothing installed.

To compile the modules at each start would cost more than the rest of it, so the archive holds them compiled too, in a
folder for each minor version of Python that it was written for. Any other compiles the sources that lie beside them.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from prefect_dispatch.errors import UsageError

_PACKAGE = Path(__file__).resolve().parents[1]
_PARTS = ("__init__.py", "errors.py", "failpoint.py", "failpoints.py", "format", "job", "stores")
"""What the helper consists of. The stores for buckets are among it; their libraries are not."""
_BEGINNING = b"#!/usr/bin/env python3\n"
_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip archive can tell (APPNOTE.TXT 4.4.6): the same modules make the same bytes, whenever."""
_MODE = 0o100644 << 16
_MAIN = """\
import os, sys

if sys.version_info < (3, 9):
    sys.stderr.write("dispatch-job: this is Python %d.%d; start it with 3.9 or newer\\n" % sys.version_info[:2])
    sys.exit(2)

# From memory: what a job needs late is read late, and by then the file may be another one, or gone.
held = os.memfd_create("dispatch-job")
low = []
while held < 3:  # The numbers of the standard streams, where one was handed over closed.
    low.append(held)
    held = os.dup(held)
for each in low:
    os.close(each)
with open(sys.path[0], "rb") as archive, open(held, "wb", closefd=False) as copy:
    copy.write(archive.read())
place = "/proc/self/fd/%d" % held
if not os.path.exists(place):
    place = sys.path[0]

# What PYTHONPATH names comes last: a module of a job must not take the place of one of the library's.
rest = sys.path[1:]
library = "python%d%d.zip" % sys.version_info[:2]
begins = next((number for number, path in enumerate(rest) if os.path.basename(path) == library), 0)
sys.path[:] = [place + "/" + sys.implementation.cache_tag, place] + rest[begins:] + rest[:begins]

from prefect_dispatch.job.__main__ import start

start()
"""
_COMPILER = """\
import importlib.util, marshal, sys

assert sys.version_info >= (3, 9)
names = sys.stdin.buffer.readline().decode().split()
sizes = [int(size) for size in sys.stdin.buffer.readline().split()]
out = sys.stdout.buffer
compiled = []
for name, size in zip(names, sizes):
    source = sys.stdin.buffer.read(size)
    code = compile(source, name, "exec", dont_inherit=True)
    # Version 2 of the format knows no references, which depend on what else the process holds.
    data = marshal.dumps(code, 2)
    # PEP 552: told by a hash of the source that nobody need compare, since the archive holds both.
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    compiled.append(head + data)
out.write((sys.implementation.cache_tag + "\\n").encode())
out.write((" ".join(str(len(each)) for each in compiled) + "\\n").encode())
for each in compiled:
    out.write(each)
"""
_COMPILE_SECONDS = 120.0
"""Seconds that another interpreter may take; it takes one or two."""


def write_helper(path: Path, interpreters: Sequence[str] = (sys.executable,)) -> None:
    """Write the helper as one file that can be executed; what was there before is replaced at once or not at all.

    The same modules and interpreters make the same bytes.

    Args:
        path: the file; it may be executed, or given to a Python.
        interpreters: the Pythons that it shall start fast with; every other Python from 3.9 on runs it too.

    Raises:
        UsageError: an interpreter cannot be run, or is no Python 3.9 or newer; or the path is there and no file.
        OSError: the file cannot be written.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is there and no file; give another path")
    content = helper_content(interpreters)
    beside = path.parent / f".{path.name}.{os.getpid()}.new"
    try:
        beside.write_bytes(content)
        beside.chmod(0o755 & ~_umask())
        beside.replace(path)
    finally:
        if beside.exists():
            beside.unlink()


def helper_content(interpreters: Sequence[str] = (sys.executable,)) -> bytes:
    """The content of that file.

    Raises:
        UsageError: see :func:`write_helper`.
    """
    sources = dict(_sources())
    entries = dict(sources)
    for interpreter in interpreters:
        tag, compiled = _compile(interpreter, sources)
        entries.update({f"{tag}/{name}c": data for name, data in compiled.items()})
    entries["__main__.py"] = _MAIN.encode()
    archive = io.BytesIO()
    archive.write(_BEGINNING)
    # Stored, not deflated: unpacking would take time at each start, and its bytes depend on the library's version.
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_STORED) as zipped:
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr, entry.create_system = _MODE, 3
            zipped.writestr(entry, entries[name])
    return archive.getvalue()


def _sources() -> Iterator[tuple[str, bytes]]:
    """Each module's name in the archive, and its source."""
    for part in _PARTS:
        place = _PACKAGE / part
        for module in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            yield f"{_PACKAGE.name}/{module.relative_to(_PACKAGE).as_posix()}", module.read_bytes()


def _compile(interpreter: str, sources: dict[str, bytes]) -> tuple[str, dict[str, bytes]]:
    """The interpreter's tag, and what it makes of each source. A process of its own, so that nothing else shows in it.

    Raises:
        UsageError: it cannot be run, or is no Python 3.9 or newer.
    """
    names = list(sources)
    given = [" ".join(names), " ".join(str(len(sources[name])) for name in names)]
    head = "".join(f"{line}\n" for line in given).encode()
    found = shutil.which(interpreter)
    if found is None:
        raise UsageError(f"interpreter {interpreter!r} is not there or not executable; give the path of a Python")
    # Before Python 3.11 the order of a set's items, and with it the bytes, depends on how text is hashed.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [os.path.abspath(found), "-s", "-S", "-c", _COMPILER],
            input=head + b"".join(sources[name] for name in names),
            capture_output=True,
            timeout=_COMPILE_SECONDS,
            check=True,
            cwd="/",
            env={**environment, "PYTHONHASHSEED": "0"},
        )
        tag, lengths, rest = done.stdout.split(b"\n", 2)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UsageError(
            f"interpreter {interpreter!r} is no Python 3.9 or newer ({error}); give the path of one"
        ) from None
    compiled, begun = {}, 0
    sizes = [int(length) for length in lengths.split()]
    for name, size in zip(names, sizes, strict=True):
        compiled[name] = rest[begun : begun + size]
        begun += size
    return tag.decode(), compiled


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
