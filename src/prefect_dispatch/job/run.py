"""Run: one execution from its claim to its exit."""

from __future__ import annotations

import gc
import signal
import time

from prefect_dispatch.errors import DispatchError
from prefect_dispatch.format.contract import Contract
from prefect_dispatch.format.exit_codes import RESERVED, ExitCode, program_exit_code
from prefect_dispatch.format.journal import ExitNote, ExitReason, JournalKind
from prefect_dispatch.format.names import new_nonce
from prefect_dispatch.format.printable import printable
from prefect_dispatch.format.submission import RestartSource, Submission
from prefect_dispatch.job.asking import Asking
from prefect_dispatch.job.assignment import Assignment, check_command, refuse_inside_step
from prefect_dispatch.job.clerk import Clerk
from prefect_dispatch.job.execution import Execution, lineage_root_at
from prefect_dispatch.job.notices import Noticed, Notices, name_of_signal
from prefect_dispatch.job.processes import hold_standard_descriptors
from prefect_dispatch.job.program import Ending, Program
from prefect_dispatch.job.relay import Relay
from prefect_dispatch.job.saving import Saving
from prefect_dispatch.job.surroundings import surroundings
from prefect_dispatch.job.vigil import Asked, Vigil
from prefect_dispatch.stores.layout import notice_file
from prefect_dispatch.stores.pin import Pin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Optional, Sequence, Union

    from prefect_dispatch.job.deadline import Deadline, DeadlineClock
    from prefect_dispatch.job.transfers import Transfers
    from prefect_dispatch.stores.deadline import Past
    from prefect_dispatch.stores.transfer import Transfer

OUTPUT_GRACE = 2.0
"""Seconds for which output is still read after nothing of the program is left: somebody else may hold the pipe."""
READER_GRACE = 5.0
"""Seconds that whoever reads our output gets for the last of it."""


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
        self._notice_file = self._execution.root.absolute(notice_file(self._execution.attempt))
        self._relay = Relay(lambda line: self._clerk.take_line(line))
        self._deadline: Optional[Deadline] = None
        self._deadline_clock = _deadline_clock(submission)
        self._now = time.time if self._deadline_clock is None else self._deadline_clock.now
        self._saving = Saving(self._execution, say=self._relay.say, now=self._now)
        self._clerk = Clerk(
            self._saving,
            self._journal,
            self._relay.say,
            submission.watch_interval,
            submission.scan_timeout,
            notices.wake,
            self._now,
        )
        self._starting = False
        self._transfers: Optional[Transfers] = None

    def execute(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start, see to the end, and tell how it was."""
        try:
            program = self._launch(command, environment)
            if isinstance(program, int):
                return program
            self._relay.start(program.output)
            self._clerk.start()
            asking = Asking(program, self._submission.notice, self._notice_file, self._clerk, self._relay.say)
            vigil = Vigil(program, asking, self._notices, self._clerk, self._relay.say, self._deadline)
            ending = vigil.keep()
            self._clerk.stop_looking()
            if not self._relay.drain(OUTPUT_GRACE):
                self._relay.say("the program's output has no end: a stranger holds it open; going on without it")
            self._clerk.finish(self._ended_well(ending, vigil.asked))
            code = self._tell_end(ending, vigil.asked)
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
            self._relay.say(f"exit {code}: {name_of_signal(noticed.number)} came before the program was started")
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
        past = self._look_back()
        claimed_at = self._now()
        root.claim(execution.epoch, execution.attempt, record, new_nonce(), None if past is None else claimed_at)
        details = {**execution.details(), **surroundings(environment, claimed_at)}
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
        if past is not None:
            self._settle_deadline(claimed_at if past.first_claim is None else min(claimed_at, past.first_claim))
        pin = root.pin(execution.epoch, execution.attempt, execution.choice, execution.identity)
        for passed_over in pin.passed_over:
            self._relay.say(f"passed over {printable(str(passed_over))}")
        self._tell_notes(pin.notes)
        self._clerk.resumed = pin.publication is not None
        who = f"{execution.lineage} {execution.epoch} as {execution.attempt}"
        if pin.publication is None:
            self._relay.say(f"start {who} from scratch")
        else:
            origin = pin.publication
            self._relay.say(f"resume {who} from step {origin.step} of {origin.epoch}: {printable(origin.path)}")
        return pin

    def _look_back(self) -> Optional[Past]:
        """Learn what time it was when somebody of this generation last wrote; None without a total deadline."""
        if self._deadline_clock is None:
            return None
        from prefect_dispatch.stores.deadline import read_past

        past = read_past(self._execution.root.store, self._submission.generation)
        self._deadline_clock.learn(past.latest)
        return past

    def _settle_deadline(self, first_claim: float) -> None:
        terms, clock, execution = self._submission.deadline, self._deadline_clock, self._execution
        assert terms is not None and clock is not None
        from prefect_dispatch.format.deadline import TotalDeadline, without_code
        from prefect_dispatch.job.deadline import settle

        wanted = TotalDeadline(
            execution.lineage,
            execution.epoch.generation,
            execution.attempt,
            first_claim if terms.opened_at is None else terms.opened_at,
            terms.budget.total_seconds(),
            without_code(execution.identity),
        )
        self._deadline = settle(execution.root.store, terms, clock, wanted)
        self._deadline.require_time()
        self._relay.say(f"total deadline {self._deadline}")

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
            self._notice_file,
            self._submission.notice.signal,
        )

    def _ended_well(self, ending: Ending, asked: Optional[Asked]) -> bool:
        """Whether the program wrote all that it wanted to write: it ended by itself and well, and nobody asked it to.

        A program that exits because of a notice may leave the save that it was writing half done, and exit with 0.
        """
        if asked is not None or self._notices.first is not None:
            return False
        if ending.killed or ending.left or ending.signal is not None or ending.status is None:
            return False
        return ending.exit_code == 0

    def _tell_end(self, ending: Ending, asked: Optional[Asked]) -> int:
        """Note how the execution ended, in journal and log; returns what to exit with."""
        theirs = ending.exit_code
        # A signal to all of a job's processes may reach the program first: what came until now counts.
        noticed = self._notices.first is not None
        code, reason, why = program_exit_code(theirs), ExitReason.PROGRAM, ""
        if asked is not None and asked.by_deadline:
            code, reason = ExitCode.DEADLINE_PASSED.value, ExitReason.DEADLINE
            unpublished = (
                f", and its saves could not be published: {self._clerk.problem}" if self._clerk.problem else ""
            )
            why = f"; the total deadline ended it{unpublished}"
        elif self._clerk.problem is not None:
            code, reason = ExitCode.UNPUBLISHABLE.value, ExitReason.SAVES
            why = f"; its saves could not be published: {self._clerk.problem}"
        elif asked is not None and asked.killed:
            reason, why = ExitReason.KILLED, "; it was killed after its notice period"
        elif ending.status is None:
            reason, why = ExitReason.GUARDIAN_LOST, "; its guardian was killed, so its own exit is not known"
        elif self._clerk.failure is not None:
            code, reason, why = code or 1, ExitReason.FAIL, f"; it said that it failed: {self._clerk.failure}"
        elif noticed:
            reason = ExitReason.NOTICE
        if noticed and code == ExitCode.DONE:
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
        how = f"ended by {name_of_signal(number)}" if number is not None else f"exited {theirs}"
        self._relay.say(f"exit {code}: the program {how}{why}")
        return code

    def _end_without_program(self, code: int, reason: ExitReason, fault: str = "") -> None:
        """Note an end before the program ran; a wrapper that did not get as far as its own folder notes nothing."""
        self._notices.raise_no_more()
        if self._has_started():
            if fault:
                self._clerk.write(JournalKind.FAULT, text=fault)
            self._write_last(ExitNote(False, None, None, code, reason), fault)
            self._leave_workplace()

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


def _deadline_clock(submission: Submission) -> Optional[DeadlineClock]:
    """The clock that a total deadline goes by, from before the claim on; None without one."""
    if submission.deadline is None:
        return None
    from prefect_dispatch.job.deadline import DeadlineClock

    return DeadlineClock(submission.deadline.now)
