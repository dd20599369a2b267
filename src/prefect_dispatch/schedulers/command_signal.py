"""A site's own command as its cessation signal: asked for each node or for all, and believed only at its plain word."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import select
import signal
import string
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import Literal

from prefect_dispatch.errors import UsageError
from prefect_dispatch.format.printable import printable
from prefect_dispatch.schedulers.cessation import CessationAnswer, EndedObject
from prefect_dispatch.schedulers.marked import end_marked

MOST_OUTPUT = 64 * 1024
"""A command that writes more than this many bytes is ended, and its answer is unknown."""
MOST_DETAIL = 200
_PLAIN = re.compile(r"[A-Za-z0-9_][!-~]*")
LOOK_MILLISECONDS = 20
"""How late it may notice an exit, or that nobody waits any more."""
AT_A_TIME = 16
"""So many commands run at once for one object that is asked about node by node."""
CALL = "DISPATCH_CESSATION_CALL"
"""The variable by which everything that one call of a command has started is found again."""
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
        time_limit: how long one run may take; then it is killed, with its process group and whatever of it went
            elsewhere with the environment that it was given.
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
        values: dict[str, str] = dict.fromkeys((*_PLACEHOLDERS, "node") if self.each == "node" else _PLACEHOLDERS, "")
        for word in self.command:
            _fill(word, values)

    async def ask(self, ended: EndedObject) -> CessationAnswer:
        """See the port."""
        if not ended.nodes:
            return CessationAnswer("unknown", "no node is known that it ran on")
        odd = next((name for name in (*ended.nodes, ended.object.id) if not _PLAIN.fullmatch(name)), None)
        if odd is not None:
            return CessationAnswer("unknown", f"{printable(repr(odd), 80)} is no plain word")
        each = (None,) if self.each == "object" else ended.nodes
        abandoned = Event()
        pool = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="cessation")
        loop = asyncio.get_running_loop()
        try:
            told = await asyncio.gather(
                *(loop.run_in_executor(pool, self._run, ended, node, abandoned) for node in each)
            )
        finally:
            # Whoever is cancelled waits for no thread; each one ends its command as soon as it sees this.
            abandoned.set()
            pool.shutdown(wait=False, cancel_futures=True)
        if self.each == "object":
            output, fault = told[0]
            return _all(dict.fromkeys(ended.nodes, fault) if fault else _by_node(output, ended.nodes))
        words = (fault or output.strip() for output, fault in told)
        return _all(dict(zip(ended.nodes, words, strict=True)))

    def _run(self, ended: EndedObject, node: str | None, abandoned: Event) -> tuple[str, str]:
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
        call = secrets.token_hex(16)
        own = {CALL: call, **{f"DISPATCH_CESSATION_{name.upper()}": value for name, value in values.items()}}
        try:
            process = subprocess.Popen(
                [_fill(word, values) for word in self.command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**inherited, **own},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return "", f"the command cannot be run: {error}"
        give_up, whole = time.monotonic() + self.time_limit.total_seconds(), False
        try:
            output = _read(process, lambda: not abandoned.is_set() and time.monotonic() < give_up)
            whole = True
        except TimeoutError:
            return "", f"no answer within {self.time_limit.total_seconds():g}s"
        except OverflowError:
            return "", f"more than {MOST_OUTPUT} bytes of output"
        finally:
            _end(process)
            if not whole:
                # One that came to its end answers for what it left: to look at all processes takes its time.
                end_marked(CALL, call)
        return (output, "") if process.returncode == 0 else ("", f"exit {process.returncode}")


def _read(process: subprocess.Popen[bytes], may_wait: Callable[[], bool]) -> str:
    """Read all that it prints, until it has exited; who left a child behind has not said all.

    Raises:
        TimeoutError: it took too long.
        OverflowError: it printed too much.
    """
    assert process.stdout is not None
    data, poll = b"", select.poll()
    poll.register(process.stdout, select.POLLIN)
    while may_wait():
        if poll.poll(LOOK_MILLISECONDS):
            piece = os.read(process.stdout.fileno(), MOST_OUTPUT)
            data += piece
            if len(data) > MOST_OUTPUT:
                raise OverflowError
            if not piece:
                break
    # Not reaped yet: until its group is ended, its number must be nobody else's.
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if not may_wait():
            raise TimeoutError
        time.sleep(LOOK_MILLISECONDS / 1000)
    if not may_wait():
        raise TimeoutError
    return data.decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of it behind: the session is its own, and so the group, whether its leader lives or not."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


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
