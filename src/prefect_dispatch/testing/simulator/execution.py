"""An execution: the helper's protocol over the real lineage root, around a program that counts and saves."""

from __future__ import annotations

from collections.abc import Callable

from prefect_dispatch.errors import DispatchError, StoreError
from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.format.journal import ExitNote, ExitReason, JournalKind
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.stores.layout import exec_folder
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.testing.simulator.parked_store import ParkedStore
from prefect_dispatch.testing.simulator.referee import ExecutionWatch, Referee
from prefect_dispatch.testing.simulator.truth import Ran

KEEPS = 2
"""How many of its own saves the program's rotation leaves."""
CHILDREN = ("model", "optimizer")
"""The files of a save."""


class Execution:
    """One execution, from its claim to its exit.

    Args:
        referee: watches.
        ran: what it is.
        noticed: whether it has been asked to end by itself.
        exits: told of the exit code, when it ends by itself.
    """

    def __init__(self, referee: Referee, ran: Ran, noticed: Callable[[], bool], exits: Callable[[int], None]) -> None:
        stage = referee.stage
        watch = ExecutionWatch(referee, ran.attempt, ran.epoch)
        failure = stage.setting.job_failure
        self._store = ParkedStore(referee.truth.root, stage, watch, failure, failure)
        self._root = LineageRoot(self._store)
        self._referee = referee
        self._stage = stage
        self._ran = ran
        self._noticed = noticed
        self._exits = exits
        self._started = False

    def main(self) -> None:
        """Run it."""
        stage = self._stage
        code = self._run()
        stage.pause()
        stage.note(f"exits {code}")
        self._exits(code)

    def _run(self) -> int:
        try:
            self._begin()
        except DispatchError as error:
            self._stage.note(f"cannot start: {error}")
            self._stage.happen(f"exit {error.exit_code}")
            self._write_exit(ExitNote(False, None, None, error.exit_code, ExitReason.REFUSED))
            return error.exit_code
        code = self._compute()
        reason = ExitReason.NOTICE if self._noticed() else ExitReason.PROGRAM
        self._write_exit(ExitNote(True, code, None, code, reason))
        return code

    def _begin(self) -> None:
        """Claim, start and pin, as ``dispatch-job run`` does."""
        root, ran, document = self._root, self._ran, self._ran.document
        document.check_restart(ran.epoch.restart)
        if document.root_prepared:
            root.require()
        root.prepare(document.record, document.lineage)
        root.claim(ran.epoch, ran.attempt, document.record, new_nonce())
        root.start(ran.epoch, ran.attempt, {}, document.identity)
        self._started = True
        ran.pin_began = self._stage.moment
        root.pin(ran.epoch, ran.attempt, document.choice, document.identity)
        self._referee.computes(ran)

    def _compute(self) -> int:
        """The program: it goes on from the imported step, saves after each one, and deletes its oldest saves."""
        stage, setting = self._stage, self._stage.setting
        pin = self._ran.pin
        step = 0 if pin is None or pin.step is None else pin.step
        mine: list[str] = []
        while step < setting.steps:
            stage.kernel.sleep(setting.pace * stage.random.uniform(0.5, 1.5))
            if self._noticed() and stage.random.random() < 0.5:
                stage.note("exits on notice")
                return stage.random.choice((0, 143))
            if stage.chance(setting.program_failure):
                stage.happen("program failure")
                return 1
            step += 1
            path = f"{exec_folder(self._ran.attempt)}/step-{step}"
            try:
                for child in CHILDREN:
                    self._store.write(f"{path}/{child}", f"{child} of step {step} by {self._ran.attempt}".encode())
                self._publish(path, step)
                mine.append(path)
                if len(mine) > KEEPS:
                    stage.happen("rotation")
                    self._store.delete(mine.pop(0))
            except DispatchError as error:
                stage.note(f"saves cannot be published: {error}")
                stage.happen(f"exit {ExitCode.UNPUBLISHABLE.value}")
                return ExitCode.UNPUBLISHABLE.value
        self._ran.completed = True
        return 0

    def _publish(self, path: str, step: int) -> None:
        """Publish once, and a second time where that failed, as the helper does."""
        root, ran, snapshot = self._root, self._ran, self._stage.setting.snapshots
        try:
            published = root.publish(ran.epoch, ran.attempt, path, step, f"{step}", ran.document.identity, snapshot)
        except StoreError:
            self._stage.kernel.sleep(1.0)
            published = root.publish(ran.epoch, ran.attempt, path, step, f"{step}", ran.document.identity, snapshot)
        self._referee.returned(published)

    def _write_exit(self, note: ExitNote) -> None:
        if self._started:
            try:
                self._root.journal(self._ran.attempt).append(JournalKind.EXIT.value, at=0.0, **note.fields())
            except DispatchError:
                self._stage.note("its last word is lost")
