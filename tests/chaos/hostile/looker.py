"""Looks at a root in every way that the product has, in a child with a limit on memory and time for each look.

Started as a program of its own: it imports everything once, then forks a child for each line of its standard input, so
that a look costs what the look costs. A line is a JSON object (``root``, ``records``, ``lineage``, ``scratch``), the
answer is another one: for each operation its exit code, output, error and seconds, and the child's peak of memory.
"""

# ruff: noqa: T201
from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from prefect_dispatch.cli import logs, record, status, timeline  # noqa: F401
from prefect_dispatch.cli.__main__ import main as operate
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.job import commands  # noqa: F401
from prefect_dispatch.job.__main__ import main as dispatch_job
from prefect_dispatch.model.observation import Exit
from prefect_dispatch.pictures.history import history_of
from prefect_dispatch.pictures.timeline import draw_timeline
from prefect_dispatch.supervisor.advance import Supervisor
from prefect_dispatch.supervisor.assemble import root_view_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_lineage_root, open_record
from prefect_dispatch.supervisor.request import request_of
from prefect_dispatch.supervisor.root_view import RootView
from prefect_dispatch.testing.manual_clock import ManualClock
from prefect_dispatch.testing.scripted_scheduler import SCRIPTED, ScriptedScheduler

MEMORY = 1024 * 1024 * 1024
"""Address space of a child; a supervisor that takes this much for one lineage could not look after many."""
SECONDS = 60


class Look:
    """One look: all operations, one after the other, on one root."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.root = Path(order["root"])
        self.records = Path(order["records"])
        self.lineage = order["lineage"]
        self.scratch = Path(order["scratch"])
        self.root_of_lineage = str(self.root / self.lineage)

    def operations(self) -> dict[str, Callable[[], Any]]:
        ours = ["--store", str(self.records)]
        theirs = ["--root", self.root_of_lineage]
        return {
            "view": self.view,
            "advance": lambda: asyncio.run(self.advance()),
            "picture": self.picture,
            "status": lambda: operate(["status", self.lineage, *ours]),
            "status --json": lambda: operate(["status", self.lineage, "--json", *ours]),
            "status of all": lambda: operate(["status", *ours]),
            "record": lambda: operate(["record", self.lineage, *ours]),
            "record --json": lambda: operate(["record", self.lineage, "--json", *ours]),
            "record --export": lambda: operate(
                ["record", self.lineage, "--export", str(self.scratch / "export"), *ours]
            ),
            "timeline": lambda: operate(["timeline", self.lineage, *ours]),
            "timeline -o": lambda: operate(["timeline", self.lineage, "-o", str(self.scratch / "t.svg"), *ours]),
            "list": lambda: dispatch_job(["list", *theirs]),
            "list --json": lambda: dispatch_job(["list", "--json", *theirs]),
            "latest": lambda: dispatch_job(["latest", *theirs]),
            "check": lambda: dispatch_job(["check", *theirs]),
        }

    def view(self) -> int:
        """Every question that a supervisor has."""
        state = open_record(str(self.records), self.lineage, SystemClock()).refresh()
        view = root_view_of(self.lineage, state)
        assert view is not None
        publications = view.publications()
        print("published", view.published(0))
        print("final save", ascii(view.final_save(0)))
        for submission in state.submissions:
            attempt = submission.attempt(0)
            word = view.last_word(Epoch(0, submission.n, 0), attempt)
            print("last word", word)
            print("exited at", view.exited_at(attempt))
            print("progress", view.progress(attempt))
            print("pin", ascii(view.pin(attempt)))
        print("saved at", len(view.saved_at(publications or [])))
        print(*view.faults, sep="\n")
        return 0

    async def advance(self) -> int:
        """Carry the lineage from its present execution to its end, on a copy of its record."""
        copy = self.scratch / "records"
        shutil.copytree(self.records, copy)
        # Who acts on a copy of a record is refused; one that has its document is the record under another path.
        for document in self.records.glob("*/record.json"):
            (copy / document.relative_to(self.records)).unlink()
            os.link(document, copy / document.relative_to(self.records))
        clock = ManualClock(SystemClock().now())
        lineage_record = open_record(str(copy), self.lineage, clock)
        state = lineage_record.refresh()
        scheduler = ScriptedScheduler(clock.now, SCRIPTED)
        assert state.opened is not None and state.newest is not None
        request = request_of(self.lineage, lineage_record.id(), state.opened, state.newest, {}, lambda: True, state)
        reference = await scheduler.submit(request)
        scheduler.start(reference)
        view = RootView(open_lineage_root(str(self.root), self.lineage))
        supervisor = Supervisor(lineage_record, scheduler, view, clock)
        ended = False
        for _ in range(60):
            advanced = await supervisor.advance()
            if advanced.state.finished is not None:
                print(advanced.state.finished.outcome)
                return 0
            if not advanced.moved and not ended:
                scheduler.end(reference, None, Exit(code=0))
                ended = True
            clock.turn(timedelta(seconds=1))
        print("it never ends")
        return 1

    def picture(self) -> int:
        lineage_record = open_record(str(self.records), self.lineage, SystemClock())
        history = history_of(lineage_record.entries(), root_view_of(self.lineage, lineage_record.refresh()))
        print(draw_timeline(self.lineage, history.bars(), history.ticks, history.marks, SystemClock().now()))
        return 0


def look(order: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for name, operation in Look(order).operations().items():
        if order.get("only") and name not in order["only"]:
            continue
        out, error = io.StringIO(), ""
        errors, code = io.StringIO(), None
        began = time.monotonic()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                code = operation()
        except SystemExit as exit:
            code = exit.code
        except BaseException:
            error = traceback.format_exc()
        answer[name] = {
            "code": int(code) if code is not None else None,
            "out": out.getvalue(),
            "err": errors.getvalue(),
            "error": error,
            "seconds": time.monotonic() - began,
        }
    answer["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return answer


def serve() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            if order.get("user"):
                os.setgroups([])
                os.setgid(order["user"])
                os.setuid(order["user"])
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.alarm(SECONDS)
            try:
                answer = look(order)
            except BaseException:
                answer = {"harness": {"error": traceback.format_exc()}}
            with os.fdopen(writer, "w") as file:
                json.dump(answer, file)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as file:
            text = file.read()
        _, wait_status = os.waitpid(child, 0)
        died = {"died": {"error": f"the child ended with wait status {wait_status} and no answer"}}
        sys.stdout.write((text or json.dumps(died)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
