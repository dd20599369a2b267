"""A site's own command as its cessation signal: asked for each node or for all, and believed only at its plain word."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.schedulers.cessation import CessationAnswer, EndedObject

MOST_OUTPUT = 64 * 1024
"""A command that writes more than this many bytes is ended, and its answer is unknown."""
MOST_DETAIL = 200
_PLAIN = re.compile(r"[A-Za-z0-9_][!-~]*")
AT_A_TIME = 16
"""So many commands run at once for one object that is asked about node by node."""
_PLACEHOLDERS = ("lineage", "object", "restart", "attempt", "nodes")


@dataclass(frozen=True, kw_only=True)
class CommandSignal:
    """Runs a command of the site. No shell is between: each word is one argument, whatever is put into it.

    In each word ``{lineage}``, ``{object}``, ``{restart}``, ``{attempt}``, ``{nodes}`` (with commas between) and, asked
    node by node, ``{node}`` are replaced; ``{{`` and ``}}`` are braces. The same stand in its environment, as
    ``DISPATCH_CESSATION_NODE`` and so on, for commands that are a script.

    The command answers on standard output and exits with 0. Asked node by node it prints ``ceased`` or ``running``;
    asked once for all it prints a line ``NODE ceased`` or ``NODE running`` for each. Anything else is ``unknown``: a
    node without a line or with two different ones, another word, another exit code, too much output, a time-out.

    Attributes:
        command: the program and its arguments.
        each: ``node`` to run it once for each node, ``object`` to run it once for all.
        time_limit: how long one run may take; then it is killed, with its whole process group.
        environment: what it finds in its environment beside its own variables; that of this process where None.

    Example:
        >>> CommandSignal(command=("ssh", "{node}", "/opt/site/job-gone", "{attempt}"))
    """

    command: tuple[str, ...]
    each: Literal["node", "object"] = "node"
    time_limit: timedelta = timedelta(seconds=20)
    environment: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise UsageError("a cessation command needs a program; give its words as a list")
        if self.time_limit <= timedelta(0):
            raise UsageError(f"time_limit {self.time_limit} is no time at all; give a second or more")
        values = dict.fromkeys((*_PLACEHOLDERS, "node") if self.each == "node" else _PLACEHOLDERS, "")
        for word in self.command:
            _fill(word, values)

    async def ask(self, ended: EndedObject) -> CessationAnswer:
        """See the port."""
        if not ended.nodes:
            return CessationAnswer("unknown", "no node is known that it ran on")
        odd = next((name for name in (*ended.nodes, ended.object.id) if not _PLAIN.fullmatch(name)), None)
        if odd is not None:
            return CessationAnswer("unknown", f"{printable(repr(odd), 80)} is no plain word")
        if self.each == "object":
            output, fault = await self._run(ended, None)
            return _all(dict.fromkeys(ended.nodes, fault) if fault else _by_node(output, ended.nodes))
        limit = asyncio.Semaphore(AT_A_TIME)

        async def ask_one(node: str) -> str:
            async with limit:
                output, fault = await self._run(ended, node)
                return fault or output.strip()

        words = await asyncio.gather(*(ask_one(node) for node in ended.nodes))
        return _all(dict(zip(ended.nodes, words, strict=True)))

    async def _run(self, ended: EndedObject, node: str | None) -> tuple[str, str]:
        """Run it once; returns its output, and else what went wrong."""
        values = {
            "lineage": ended.lineage,
            "object": ended.object.id,
            "restart": str(ended.restart),
            "attempt": ended.attempt,
            "nodes": ",".join(ended.nodes),
            **({} if node is None else {"node": node}),
        }
        inherited = os.environ if self.environment is None else self.environment
        own = {f"DISPATCH_CESSATION_{name.upper()}": value for name, value in values.items()}
        try:
            process = await asyncio.create_subprocess_exec(
                *(_fill(word, values) for word in self.command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={**inherited, **own},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return "", f"the command cannot be run: {error}"
        try:
            async with asyncio.timeout(self.time_limit.total_seconds()):
                output = await _read(process)
                code = await process.wait()
        except TimeoutError:
            return "", f"no answer within {self.time_limit.total_seconds():g}s"
        except OverflowError:
            return "", f"more than {MOST_OUTPUT} bytes of output"
        finally:
            await _end(process)
        return (output, "") if code == 0 else ("", f"exit {code}")


async def _read(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    data = b""
    while piece := await process.stdout.read(MOST_OUTPUT):
        data += piece
        if len(data) > MOST_OUTPUT:
            raise OverflowError
    return data.decode("utf-8", "replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Leave nothing of it behind: the session is its own, and so the group, whether its leader lives or not."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _fill(word: str, values: Mapping[str, str]) -> str:
    """A word with its placeholders replaced, in one pass: what is put in is not looked at again."""
    filled = ""
    try:
        for text, name, form, conversion in string.Formatter().parse(word):
            filled += text
            if name is not None:
                filled += values[name if not form and not conversion else ""]
    except (KeyError, ValueError):
        known = ", ".join("{" + name + "}" for name in values)
        raise UsageError(f"cessation command: {word!r} asks for what is not there; it can have {known}") from None
    return filled


def _by_node(output: str, nodes: tuple[str, ...]) -> dict[str, str]:
    """What an answer for all says of each node; of one that it says two things of, it says nothing."""
    told: dict[str, set[str]] = {}
    for line in output.splitlines():
        node, _, word = line.strip().partition(" ")
        told.setdefault(node, set()).add(word.strip())
    return {node: next(iter(told[node])) if len(told.get(node, ())) == 1 else "nothing plain" for node in nodes}


def _all(words: Mapping[str, str]) -> CessationAnswer:
    """One answer of all nodes': one that runs is enough for ``running``, and ``ceased`` takes every one."""
    running = [node for node, word in words.items() if word == "running"]
    if running:
        return CessationAnswer("running", f"on {', '.join(running)}"[:MOST_DETAIL])
    other = [f"{node}: {printable(word, 80) or 'no word'}" for node, word in words.items() if word != "ceased"]
    if other:
        return CessationAnswer("unknown", "; ".join(other)[:MOST_DETAIL])
    return CessationAnswer("ceased", f"the site says so of {', '.join(words)}"[:MOST_DETAIL])
