"""Run: one execution from its claim to its exit."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from datetime import timedelta

from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.contract import Contract
from prefect_dispatch.format.durations import describe_duration
from prefect_dispatch.format.exit_codes import RESERVED, ExitCode, program_exit_code
from prefect_dispatch.format.journal import ExitNote, ExitReason, JournalKind
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.format.printable import printable
from prefect_dispatch.format.submission import RestartSource
from prefect_dispatch.job.assignment import Assignment, check_command, refuse_inside_step
from prefect_dispatch.job.clerk import Clerk
from prefect_dispatch.job.execution import Execution, lineage_root_at
from prefect_dispatch.job.guardian import KILL_WITHIN
from prefect_dispatch.job.notices import Noticed, Notices
from prefect_dispatch.job.processes import hold_standard_descriptors
from prefect_dispatch.job.program import Ending, Program
from prefect_dispatch.job.relay import Relay
from prefect_dispatch.job.saving import Saving
from prefect_dispatch.stores.pin import Pin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional, Sequence, Union

    from prefect_dispatch.job.deadline import Deadline
    from prefect_dispatch.job.transfers import Transfers
    from prefect_dispatch.stores.transfer import Transfer

OUTPUT_GRACE = 2.0
"""Seconds for which output is still read after nothing of the program is left: somebody else may hold the pipe."""
READER_GRACE = 5.0
"""Seconds that whoever reads our output gets for the last of it."""
_GUARDIAN_GRACE = 2 * KILL_WITHIN + 5.0
"""Seconds after the order to kill in which a guardian that has taken note of it must have reported the end."""
_GUARDIAN_PATIENCE = 5.0
"""Seconds in which it must have taken note of the order to kill or of the leader's end, which it does at once."""
_TICK = 1.0
_MOST_NAMES = 1000
_LONGEST_NAME = 100


def run(document: Optional[str], command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run one execution and return what to exit with.

    Args:
        document: path of the submission document; None to take the environment's.
        command: the program and its arguments.
        environment: the wrapper's own environment.

    Raises:
        UsageError: something is wrong as given; nothing was changed, unless it is the program that cannot be executed.
        DispatchError: the execution cannot start; see the exit codes.
    """
    hold_standard_descriptors()
    refuse_inside_step(environment)
    assignment = Assignment.read(document, environment)
    check_command(command[0], environment)
    wanted = getattr(signal, f"SIG{assignment.submission.notice.signal}")
    numbers = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, wanted}
    try:
        return _Run(assignment, Notices(numbers), assignment.workplace(environment)).execute(command, environment)
    except Noticed as noticed:
        return 128 + noticed.number
    finally:
        Notices.no_more(numbers)


class _Run:
    """One execution on its way."""

    def __init__(self, assignment: Assignment, notices: Notices, workplace: str) -> None:
        submission = assignment.submission
        self._assignment = assignment
        self._notices = notices
        self._submission = submission
        # What providers find out takes its place before the start, and so is in all that is published.
        self._identity = dict(submission.identity)
        self._execution = Execution(
            submission.lineage,
            assignment.epoch,
            assignment.attempt,
            lineage_root_at(assignment.root, workplace, lambda transfer: self._told(transfer)),
            submission.saves,
            submission.choice,
            self._identity,
        )
        self._workplace = workplace
        self._journal = self._execution.root.journal(self._execution.attempt)
        self._relay = Relay(lambda line: self._clerk.take_line(line))
        self._saving = Saving(self._execution, say=self._relay.say)
        self._clerk = Clerk(
            self._saving,
            self._journal,
            self._relay.say,
            submission.watch_interval,
            submission.scan_timeout,
            notices.wake,
        )
        self._starting = False
        self._noticed = False
        self._killed_by_us = False
        self._deadline: Optional[Deadline] = None
        self._ended_by_deadline = False
        self._terminated = False
        self._transfers: Optional[Transfers] = None

    def execute(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start, see to the end, and tell how it was."""
        try:
            program = self._launch(command, environment)
            if isinstance(program, int):
                return program
            self._relay.start(program.output)
            self._clerk.start()
            ending = self._see_to_end(program)
            self._clerk.stop_looking()
            if not self._relay.drain(OUTPUT_GRACE):
                self._relay.say("the program's output has no end: a stranger holds it open; going on without it")
            self._clerk.finish(self._ended_well(ending))
            code = self._tell_end(ending)
            self._leave_workplace()
            return code
        finally:
            self._relay.close(READER_GRACE)

    def _launch(self, command: Sequence[str], environment: Mapping[str, str]) -> Union[Program, int]:
        """Start the program; what to exit with where a notice came first.

        A notice is raised once at most, wherever it comes, so what is done about one is not disturbed by another.
        """
        try:
            try:
                contract = self._contract(self._begin(environment))
                if self._deadline is not None:
                    self._deadline.require_time()  # Once more: an import takes its time.
                self._notices.program_starts()
                inherited = self._assignment.inherited(environment)
                _collect_garbage_from_now_on()
                to_all = self._submission.restart_source is RestartSource.SLURM
                return Program.start(command, contract.environment(inherited), self._execution.attempt, to_all)
            except (DispatchError, OSError) as error:
                code = error.exit_code if isinstance(error, DispatchError) else ExitCode.IO_ERROR.value
                self._end_without_program(code, ExitReason.REFUSED, printable(str(error)))
                raise
        except Noticed as noticed:
            code = 128 + noticed.number
            self._end_without_program(code, ExitReason.NOTICE)
            self._relay.say(f"exit {code}: {_name(noticed.number)} came before the program was started")
            return code

    def _begin(self, environment: Mapping[str, str]) -> Pin:
        """Claim, find out what this execution is, start, pin."""
        execution, record = self._execution, self._submission.record
        root = execution.root
        if self._submission.root_prepared:
            # A root that was made and is not there is an outage, never a start from scratch.
            root.enter(record, execution.lineage)
        else:
            root.prepare(record, execution.lineage)
        claimed_at = self._look_at_deadline()
        root.claim(execution.epoch, execution.attempt, record, new_nonce(), claimed_at)
        details = {
            **execution.details(),
            **_surroundings(environment, time.time() if claimed_at is None else claimed_at),
        }
        established = None
        if self._submission.identity_from:
            # Most jobs have no providers: only who has some pays for what asks them.
            from prefect_dispatch.job.identity import establish_identity

            inherited = self._assignment.inherited(environment)
            established = establish_identity(self._submission, execution.attempt, root, inherited)
            self._identity.clear()
            self._identity.update(established.values)
            details.update(established.details())
        self._starting = True
        root.start(execution.epoch, execution.attempt, details, execution.identity)
        if established is not None:
            self._tell_notes(established.notes)
            if established.fault is not None:
                raise established.fault
        if self._deadline is not None:
            self._settle(self._deadline)
        pin = root.pin(execution.epoch, execution.attempt, execution.choice, execution.identity)
        for passed_over in pin.passed_over:
            self._relay.say(f"passed over {printable(str(passed_over))}")
        self._tell_notes(pin.notes)
        who = f"{execution.lineage} {execution.epoch} as {execution.attempt}"
        if pin.publication is None:
            self._relay.say(f"start {who} from scratch")
        else:
            origin = pin.publication
            self._relay.say(f"resume {who} from step {origin.step} of {origin.epoch}: {printable(origin.path)}")
        return pin

    def _look_at_deadline(self) -> Optional[float]:
        """Set the clock that the total deadline goes by, before the claim; returns now, or None without a deadline."""
        terms = self._submission.deadline
        if terms is None:
            return None
        from prefect_dispatch.job.deadline import Deadline

        self._deadline = Deadline(terms)
        self._deadline.look(self._execution.root.store, self._submission.generation)
        self._clerk.clock = self._deadline.now
        return self._deadline.now()

    def _settle(self, deadline: Deadline) -> None:
        execution = self._execution
        total = deadline.settle(
            execution.root.store, execution.lineage, execution.epoch.generation, execution.attempt, execution.identity
        )
        deadline.require_time()
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(total.ends_at))
        self._relay.say(f"total deadline {at}, in {describe_duration(timedelta(seconds=deadline.left()))}")

    def _tell_notes(self, notes: Sequence[str]) -> None:
        for note in notes:
            self._relay.say(printable(note))
            self._clerk.write(JournalKind.NOTE, text=printable(note))

    def _contract(self, pin: Pin) -> Contract:
        execution = self._execution
        return Contract(
            execution.lineage,
            execution.attempt,
            execution.epoch,
            execution.root.location,
            execution.folder,
            None if pin.path is None else execution.root.absolute(pin.path),
            pin.step,
            pin.state,
            self._workplace,
            None if self._deadline is None else self._deadline.ends_at,
        )

    def _see_to_end(self, program: Program) -> Ending:
        """Wait until nothing of the program is left; pass one notice on, and kill it when its time is over."""
        poll = select.poll()
        poll.register(program.reports, select.POLLIN)
        poll.register(self._notices.descriptor, select.POLLIN)
        period = self._submission.notice.period.total_seconds()
        kill_at: Optional[float] = None
        unnoticed_since: Optional[float] = None
        shortened = False
        while True:
            patience = _TICK if kill_at is None or self._killed_by_us else max(0.0, kill_at - time.monotonic())
            if self._deadline is not None and not self._killed_by_us:
                patience = min(patience, self._deadline.until_next())
            ready = {descriptor for descriptor, _ in poll.poll(1000 * min(_TICK, patience) + 1)}
            if self._notices.descriptor in ready:
                self._notices.clear()
            now = time.monotonic()
            self._clerk.check_scan()
            if kill_at is None and (self._notices.first is not None or self._clerk.problem is not None):
                kill_at = now + period
                cause = self._clerk.problem if self._notices.first is None else f"{_name(self._notices.first)} received"
                self._give_notice(program, cause, self._submission.notice.period)
            elif self._ended_by_deadline and self._notices.first is not None and not shortened and kill_at is not None:
                # Whoever takes the machine away waits no longer for a program that was asked already.
                kill_at, shortened = min(kill_at, now + period), True
            if self._deadline is not None and not self._killed_by_us:
                kill_at = self._mind_deadline(program, self._deadline, kill_at, now)
            if kill_at is not None and now >= kill_at and not self._killed_by_us:
                self._killed_by_us = True
                if self._deadline is not None and self._deadline.left() <= 0:
                    self._ended_by_deadline = True
                    self._relay.say("the total deadline has passed; killing")
                else:
                    over = describe_duration(self._submission.notice.period)
                    self._relay.say(f"the notice period is over after {over}; killing")
                program.kill()
            if program.reports in ready:
                ending = program.take_reports()
                if ending is not None:
                    return ending
            unnoticed_since = (unnoticed_since or now) if program.leader_is_unnoticed else None
            silent = unnoticed_since is not None and now >= unnoticed_since + _GUARDIAN_PATIENCE
            if kill_at is not None:
                grace = _GUARDIAN_GRACE if program.is_clearing else _GUARDIAN_PATIENCE
                silent = silent or now >= kill_at + grace
            if silent:
                self._relay.say("the guardian does not answer; killing it and what it guards")
                return program.end_without_guardian()

    def _mind_deadline(
        self, program: Program, deadline: Deadline, kill_at: Optional[float], now: float
    ) -> Optional[float]:
        """Do what the total deadline asks for now; returns by when the program is to be gone."""
        left = deadline.left()
        if left > deadline.margin.total_seconds():
            return kill_at
        if kill_at is None:
            self._ended_by_deadline = True
            self._give_notice(program, "the total deadline is near", timedelta(seconds=max(0.0, left)))
        if left <= deadline.terminate_at and not self._terminated:
            self._ended_by_deadline = self._terminated = True
            self._relay.say(f"the total deadline is in {max(0.0, left):.1f}s: SIGTERM to the program")
            program.notify(signal.SIGTERM)
        ends = now + max(0.0, left)
        return ends if kill_at is None else min(kill_at, ends)

    def _give_notice(self, program: Program, cause: Optional[str], period: timedelta) -> None:
        notice = self._submission.notice
        self._noticed = True
        self._relay.say(
            f"notice: SIG{notice.signal} to the program, which has {describe_duration(period)} "
            f"to save and exit ({cause})"
        )
        self._clerk.note(
            JournalKind.NOTICE,
            signal=notice.signal,
            cause=cause,
            period_seconds=period.total_seconds(),
        )
        program.notify(getattr(signal, f"SIG{notice.signal}"))

    def _ended_well(self, ending: Ending) -> bool:
        """Whether the program wrote all that it wanted to write: it ended by itself and well, and nobody asked it to.

        A program that exits because of a notice may leave the save that it was writing half done, and exit with 0.
        """
        if self._noticed or self._notices.first is not None:
            return False
        if ending.killed or ending.left or ending.signal is not None or ending.status is None:
            return False
        return ending.exit_code == 0

    def _tell_end(self, ending: Ending) -> int:
        """Note how the execution ended, in journal and log; returns what to exit with."""
        theirs = ending.exit_code
        # A signal to all of a job's processes may reach the program first: what came until now counts.
        asked = self._notices.first is not None
        code, reason, why = program_exit_code(theirs), ExitReason.PROGRAM, ""
        if self._ended_by_deadline:
            code, reason = ExitCode.DEADLINE_PASSED.value, ExitReason.DEADLINE
            unpublished = (
                f", and its saves could not be published: {self._clerk.problem}" if self._clerk.problem else ""
            )
            why = f"; the total deadline ended it{unpublished}"
        elif self._clerk.problem is not None:
            code, reason = ExitCode.UNPUBLISHABLE.value, ExitReason.SAVES
            why = f"; its saves could not be published: {self._clerk.problem}"
        elif self._killed_by_us:
            reason, why = ExitReason.KILLED, "; it was killed after its notice period"
        elif ending.status is None:
            reason, why = ExitReason.GUARDIAN_LOST, "; its guardian was killed, so its own exit is not known"
        elif self._clerk.failure is not None:
            code, reason, why = code or 1, ExitReason.FAIL, f"; it said that it failed: {self._clerk.failure}"
        elif asked:
            reason = ExitReason.NOTICE
        if asked and code == ExitCode.DONE:
            # Nobody can tell a program that was done from one that saved and left. Run again, the former ends at once.
            code, why = ExitCode.SAVED_ON_REQUEST.value, "; it was asked to end, so that it may not be done"
        if ending.left:
            pids = ", ".join(str(pid) if pid else "unseen" for pid in ending.left)
            survivors = f"processes of the program survived SIGKILL: {pids}; look at their file system"
            why += f"; {survivors}"
            self._clerk.write(JournalKind.FAULT, text=survivors)
        if theirs in RESERVED:
            why += "; 190 to 195 are the wrapper's own codes"
        number = ending.signal
        exit_code = None if number is not None or ending.status is None else theirs
        self._write_last(ExitNote(True, exit_code, number, code, reason))
        how = f"ended by {_name(number)}" if number is not None else f"exited {theirs}"
        self._relay.say(f"exit {code}: the program {how}{why}")
        return code

    def _end_without_program(self, code: int, reason: ExitReason, fault: str = "") -> None:
        """Note an end before the program ran; a wrapper that did not get as far as its own folder notes nothing."""
        self._notices.raise_no_more()
        if self._has_started():
            if fault:
                self._clerk.write(JournalKind.FAULT, text=fault)
            self._write_last(ExitNote(False, None, None, code, reason), fault)

    def _write_last(self, note: ExitNote, fault: str = "") -> None:
        """Write the last word into the journal; and beside the record, where its supervisor may not see the journal."""
        self._clerk.write_last(note)
        if self._submission.record_root:
            from prefect_dispatch.job.reporting import report_end

            told = fault or self._clerk.problem or self._clerk.failure or ""
            self._relay.say(report_end(self._submission, self._execution, note, self._saving, told))

    def _told(self, transfer: Transfer) -> None:
        """Tell how far a save is on its way between this machine and the store, if it takes its time."""
        if self._transfers is None:
            from prefect_dispatch.job.transfers import Transfers

            self._transfers = Transfers(self._relay.say, self._clerk.write)
        self._transfers.take(transfer)

    def _leave_workplace(self) -> None:
        """Remove what the store has by now from this machine, and say where the rest is."""
        if not self._workplace:
            return
        from prefect_dispatch.job.leaving import leave

        self._relay.say(leave(self._workplace, self._execution.attempt, self._saving))

    def _has_started(self) -> bool:
        """Whether this execution's start is noted; a notice may come while that is done."""
        if not self._starting:
            return False
        try:
            return self._execution.root.started(self._execution.attempt) is not None
        except DispatchError:
            return True


def _collect_garbage_from_now_on() -> None:
    """What there is by now stays, and is not looked at: not here, nor in the guardian, which shares its pages."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _surroundings(environment: Mapping[str, str], now: float) -> Dict[str, Any]:
    """What a start notes of where it is. Of variables the names alone: a value may be a secret."""
    system = os.uname()
    names = [printable(name, _LONGEST_NAME) for name in sorted(environment)[:_MOST_NAMES]]
    return {
        "host": system.nodename,
        "pid": os.getpid(),
        "started_at": now,
        "environment": {
            "system": f"{system.sysname} {system.release} {system.machine}",
            "python": sys.version.split()[0],
            "cpus": len(os.sched_getaffinity(0)),
            "variables": names,
        },
    }


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
