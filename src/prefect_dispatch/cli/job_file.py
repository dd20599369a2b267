"""Reading a job from its YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from prefect_dispatch.errors import SpecError
from prefect_dispatch.model.anchor import anchored
from prefect_dispatch.model.spec import JobSpec

MAX_BYTES = 1024 * 1024


def read_job(path: Path) -> JobSpec:
    """Read a job spec. Its relative places become absolute, relative to the folder of the file.

    Raises:
        SpecError: the file cannot be read, is no YAML, or is no job spec; the text names the place.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SpecError(f"job {str(path)!r} cannot be read: {error.strerror}; give the path of a YAML file") from None
    if len(text) > MAX_BYTES:
        raise SpecError(f"job {str(path)!r} has {len(text)} bytes; a job spec has at most {MAX_BYTES}")
    try:
        document = yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"job {str(path)!r} is not YAML: {' '.join(str(error).split())}") from None
    return anchored(JobSpec.read(document, str(path)), path.absolute().parent)


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is given twice: one of the two would be lost without a word."""

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
