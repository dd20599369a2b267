"""``prefect-dispatch down``: ends the ``up`` that runs, and what one that was killed has left."""

from __future__ import annotations

import argparse
import signal

from prefect_dispatch.cli.output import say_now as say
from prefect_dispatch.cli.standing_up import end, forget_standing, only_one, read_standing
from prefect_dispatch.errors import DispatchError
from prefect_dispatch.settings import state_folder

PATIENCE_SECONDS = 90.0
"""How long an ``up`` may take: its worker, the flow processes and the server end one after the other."""
LEFT_OVER_SECONDS = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments: there are none. Which ``up`` is meant is told by ``$DISPATCH_STATE``."""


def run(options: argparse.Namespace) -> int:
    """Run the command. Done twice, the second time there is nothing to do, and that is no fault."""
    standing = read_standing()
    if standing is None:
        say(f"no up runs for {state_folder()}")
        return 0
    if standing.up.lives:
        say(f"ending up, process {standing.up.pid}…")
        standing.up.send(signal.SIGTERM)
        if not standing.up.ended_within(PATIENCE_SECONDS):
            raise DispatchError(f"up, process {standing.up.pid}, has not ended within {PATIENCE_SECONDS:g}s; try again")
        say("up has ended; jobs that were submitted go on, and the next up takes them up")
        return 0
    with only_one():
        clear_up()
    return 0


def clear_up() -> None:
    """End what an ``up`` has left that was killed. Whoever begins to serve does so first."""
    standing = read_standing()
    if standing is None or standing.up.lives:
        return
    left = [each for each in standing.children if each.lives]
    end(left, LEFT_OVER_SECONDS)
    forget_standing()
    say(f"up, process {standing.up.pid}, was killed; {len(left)} processes of its own have been ended")
