"""Reading a job from its YAML file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from pathlib import Path
from typing import Any

import yaml

from prefect_dispatch.blocks.resolve import resolve
from prefect_dispatch.cli.script_file import with_script
from prefect_dispatch.cli.temporary_server import prefect_api
from prefect_dispatch.errors import SpecError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.model.anchor import anchored
from prefect_dispatch.model.job import ResolvedJob
from prefect_dispatch.model.placeholders import fill
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.supervisor.clock import SystemClock

MAX_BYTES = 1024 * 1024
MOST_VALUES = 10_000
"""Values of a job spec; the YAML library takes a second for as many on a slow machine."""
MOST_DEPTH = 50
"""Levels of a job spec; the deepest that means something has 4."""
MOST_DIGITS = 100
"""Characters of a number; the time to read one of base 60 grows with the square of its length."""


def read_job(path: Path) -> JobSpec:
    """Read a job spec. Its relative places become absolute, relative to the folder of the file, and a
    ``{date}`` in its lineage today's.

    Raises:
        SpecError: the file cannot be read, is no YAML, or is no job spec; the text names the place.
    """
    text = _read(path)
    try:
        _check_extent(text)
        document = yaml.load(text, Loader=_StrictLoader)
    except Exception as error:
        # Besides its own errors the YAML library lets those of int(), datetime and other constructors through.
        raise SpecError(f"job {str(path)!r} is not YAML: {printable(' '.join(str(error).split()), 500)}") from None
    if _count(document, MOST_VALUES) > MOST_VALUES:
        raise SpecError(f"job {str(path)!r} has more than {MOST_VALUES} values, anchors written out; make it smaller")
    folder = path.absolute().parent
    if isinstance(document, dict) and "script" in document:
        document = with_script(document, folder)[0]
    spec = JobSpec.read(document, str(path))
    own = spec.model_copy(update={"lineage": fill(spec.lineage, SystemClock().now(), None)})
    return anchored(own, folder)


def script_notes(path: Path) -> list[str]:
    """What the batch script that a job names has, and gives way to what is ours or stands in the job itself.

    Raises:
        SpecError: it is no job, or its script cannot be taken.
    """
    document = yaml.load(_read(path), Loader=_StrictLoader)
    if not isinstance(document, dict) or "script" not in document:
        return []
    return with_script(document, path.absolute().parent)[1]


def resolve_job(path: Path) -> ResolvedJob:
    """Read a job spec and resolve it. A Prefect API is asked only for the blocks that it names.

    Raises:
        SpecError: it is no job spec, or names what is not there.
    """
    return resolve_spec(read_job(path))


def resolve_spec(spec: JobSpec) -> ResolvedJob:
    """Resolve a job spec that was read: its file may be another one by now. A Prefect API is asked as above.

    Raises:
        SpecError: it names what is not there.
    """
    with contextlib.ExitStack() as needed:
        if isinstance(spec.store, str) or isinstance(spec.scheduler, str):
            needed.enter_context(prefect_api())
        return asyncio.run(resolve(spec, Path.cwd()))


def _read(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise SpecError(f"job {str(path)!r} cannot be read: {error.strerror}; give the path of a YAML file") from None
    # Before it is wrapped in a file: what wraps a folder is an error that names a number.
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise SpecError(f"job {str(path)!r} is {kind}; give the path of a YAML file")
    with os.fdopen(descriptor, "rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise SpecError(f"job {str(path)!r} has more than {MAX_BYTES} bytes; a job spec has not")
    return text


def _check_extent(text: bytes) -> None:
    """Refuse what is too large to be built, while it is read: nothing is kept of it.

    Raises:
        yaml.YAMLError: it is no YAML, or too much of it.
    """
    values = depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        values += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if values > MOST_VALUES:
            raise yaml.YAMLError(f"more than {MOST_VALUES} values; make it smaller")
        if depth > MOST_DEPTH:
            raise yaml.YAMLError(f"more than {MOST_DEPTH} levels; make it flatter")


def _count(value: Any, most: int) -> int:
    """How many values a document has with its anchors written out, or a number above ``most``; endless ones as well."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        count += 1
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, (list, tuple, set)):
            waiting += each
    return count


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is given twice: one of the two would be lost without a word.

    Also refuses mappings that merge (``<<``) more than a job has: written out they may take all memory; and numbers
    without end.
    """

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        return int(super().construct_yaml_int(_check_digits(node)))

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        return float(super().construct_yaml_float(_check_digits(node)))

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                count = 0
                for each in merged:
                    if isinstance(each, yaml.MappingNode):
                        self.flatten_mapping(each)
                        count += len(each.value) + 1
                    if count > MOST_VALUES:
                        raise yaml.constructor.ConstructorError(
                            None, None, f"more than {MOST_VALUES} values are merged"
                        )
        super().flatten_mapping(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise yaml.constructor.ConstructorError(
                        None, None, f"field {key.value!r} is given twice, in line {line}"
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _check_digits(node: yaml.ScalarNode) -> yaml.ScalarNode:
    if len(node.value) > MOST_DIGITS:
        line = node.start_mark.line + 1
        raise yaml.constructor.ConstructorError(
            None, None, f"a number of {len(node.value)} characters in line {line}; write text in quotes"
        )
    return node


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _StrictLoader.construct_yaml_float)
