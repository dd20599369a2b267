"""The clerk: a thread that publishes saves and keeps the journal, so that a slow store never makes the program wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from datetime import timedelta

from prefect_dispatch.errors import Absent, Barred, DispatchError, Unpublishable, UsageError
from prefect_dispatch.failpoints import reach
from prefect_dispatch.format.journal import ExitNote, JournalKind
from prefect_dispatch.format.printable import printable
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.job.saving import Saving
from prefect_dispatch.stores.journal import Journal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Dict, Optional, Tuple, Union

    from prefect_dispatch.format.messages import CheckpointFiles, CheckpointSave, ResumeStatus
    from prefect_dispatch.job.data_set import Said

_RETRY_DELAY = 1.0
"""Seconds between a look that failed and its one repetition."""
_MAX_WAITING_SAVES = 64
"""Saves by message that may wait for a slow store; each supersedes the one before, so the oldest gives way."""
_MAX_REFUSALS = 100
"""Refused messages that are reported one by one; a program that prints nonsense must not fill the store."""
_MAX_FAILURES = 100
"""Failures that are noted one by one; the last word counts all the same."""
_LAST_ENTRY_TRIES = 4
"""How often the exit entry is tried, a second apart: a disk that is full now may have room for it in a moment."""


class Clerk:
    """Does in its own thread what waits for the store.

    Args:
        saving: publishes the saves.
        journal: the execution's journal.
        say: adds a line to the log.
        interval: how often saves are looked for, and how often a progress may be noted.
        scan_timeout: how long one look may take.
        alarm: called, in any thread, when :attr:`problem` gets its value.
        now: what stamps the journal's entries, in seconds since 1970; where there is a total deadline, the clock that
            it goes by, so that a later execution finds what time it was.

    Attributes:
        problem: why the saves cannot be published; None while they can.
        failure: the program's own word that it has failed; None while it has not said so.
        resumed: whether the program was given a save to go on from.
    """

    def __init__(
        self,
        saving: Saving,
        journal: Journal,
        say: Callable[[str], None],
        interval: timedelta,
        scan_timeout: timedelta,
        alarm: Callable[[], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.problem: Optional[str] = None
        self.failure: Optional[str] = None
        self.resumed = False
        self._saving = saving
        self._journal = journal
        self._say = say
        self._interval = interval.total_seconds()
        self._scan_timeout = scan_timeout.total_seconds()
        self._alarm = alarm
        self._now = now
        self._changed = threading.Condition()
        self._saves: Deque[Said] = deque()
        self._notes: Deque[Tuple[JournalKind, Dict[str, Any]]] = deque()
        self._latest: Dict[JournalKind, Dict[str, Any]] = {}
        self._refusals = 0
        self._failures = 0
        self._superseded = 0
        self._scan_failed = False
        self._next_scan = time.monotonic()
        self._next_latest = time.monotonic()
        self._looking = True
        self._stopping = False
        self._ended_well = False
        self._thread = threading.Thread(target=self._run, name="clerk", daemon=True)

    def start(self) -> None:
        """Begin to look for saves and to take notes."""
        self._thread.start()

    def take_line(self, line: bytes) -> None:
        """Take a line of the program that may be a message. Returns at once."""
        from prefect_dispatch.format.messages import (
            CheckpointFiles,
            CheckpointSave,
            Fail,
            Progress,
            ResumeStatus,
            Status,
            parse_line,
        )

        message = parse_line(line)
        if message is None:
            return
        if isinstance(message, CheckpointSave):
            self._take_save(message)
        elif isinstance(message, CheckpointFiles):
            self._take_files(message, line)
        elif isinstance(message, ResumeStatus):
            self._take_resume_status(message, line)
        elif isinstance(message, Progress):
            self._keep_latest(JournalKind.PROGRESS, percent=message.percent)
        elif isinstance(message, Status):
            self._keep_latest(JournalKind.STATUS, text=message.text)
        elif isinstance(message, Fail):
            self._take_failure(message.text)
        else:
            self._refuse(message.line, message.reason)

    def note(self, kind: JournalKind, **fields: Any) -> None:
        """Have an entry written into the journal. Returns at once."""
        with self._changed:
            self._notes.append((kind, {"at": self._now(), **fields}))
            self._changed.notify()

    def check_scan(self) -> None:
        """Find out whether a look at the saves has been going on for too long."""
        since = self._saving.looking_since
        if since is not None and time.monotonic() - since > self._scan_timeout:
            self._give_up(f"looking for saves takes longer than {self._scan_timeout:g}s; is the file system there?")

    def stop_looking(self) -> None:
        """Look for no saves any more until :meth:`finish`: the program is dead, and what it left torn stands still."""
        self._looking = False

    def finish(self, ended_well: bool) -> None:
        """Do what is waiting, look for saves a last time, and return when that is done or hangs in the file system.

        Args:
            ended_well: the program ended by its own will and nothing of it is left.
        """
        with self._changed:
            self._ended_well = ended_well
            self._stopping = True
            self._changed.notify()
        while self._thread.is_alive():
            self._thread.join(0.2)
            self.check_scan()
            if self.problem is not None and self._saving.looking_since is not None:
                return

    def write(self, kind: JournalKind, **fields: Any) -> None:
        """Write an entry into the journal now, stamped with its time.

        A journal that cannot be written is told, and stops nothing.
        """
        self._write(kind, fields, tries=1)

    def write_last(self, note: ExitNote) -> None:
        """Write the exit entry, by which a supervisor learns how it was; once more and again where that fails."""
        reach("exit-note")
        self._write(JournalKind.EXIT, note.fields(), tries=_LAST_ENTRY_TRIES)

    def _write(self, kind: JournalKind, fields: Dict[str, Any], tries: int) -> None:
        entry = {"at": self._now(), **fields}
        for left in reversed(range(tries)):
            try:
                self._journal.append(kind.value, **entry)
                return
            except (DispatchError, OSError) as error:
                if not left:
                    self._say(f"journal entry {kind.value!r} is lost: {printable(str(error))}")
                    return
                time.sleep(_RETRY_DELAY)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # A clerk that dies silently would lose saves silently.
            self._give_up(f"internal error: {type(error).__name__}: {error}")

    def _work(self) -> None:
        while True:
            with self._changed:
                if not (self._stopping or self._saves or self._notes):
                    self._changed.wait(self._patience())
                stopping = self._stopping
            # Saves before words, and one word at a time, so that a talkative program does not keep its saves waiting.
            self._publish_said()
            if self._saving.watches and self._looking and not stopping and time.monotonic() >= self._next_scan:
                self._scan()
            self._write_note()
            self._write_latest(everything=stopping)
            if stopping and not self._saves and not self._notes:
                self._twice(lambda: self._publish_found(self._ended_well, last=True))
                return

    def _patience(self) -> Optional[float]:
        """Seconds until something is due without anyone asking for it; None if nothing will be."""
        times = []
        if self._saving.watches and self._looking:
            times.append(self._next_scan)
        if self._latest:
            times.append(self._next_latest)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _write_note(self) -> None:
        if self._notes:
            kind, fields = self._notes.popleft()
            self.write(kind, **fields)

    def _write_latest(self, everything: bool) -> None:
        if self._latest and (everything or time.monotonic() >= self._next_latest):
            with self._changed:
                latest, self._latest = self._latest, {}
            self._next_latest = time.monotonic() + self._interval
            for kind, fields in latest.items():
                self.write(kind, **fields)

    def _scan(self) -> None:
        try:
            self._publish_found(ended_well=False)
            self._scan_failed = False
            self._next_scan = time.monotonic() + self._interval
        except (DispatchError, OSError) as error:
            self._fault(error)
            if self._scan_failed:
                self._give_up(str(error))
            self._next_scan = time.monotonic() + (self._interval if self._scan_failed else _RETRY_DELAY)
            self._scan_failed = True

    def _publish_found(self, ended_well: bool, last: bool = False) -> None:
        for publication in self._saving.scan(ended_well, last):
            self._tell(publication)

    def _publish_said(self) -> None:
        while self._saves:
            with self._changed:
                said = self._saves.popleft()
                superseded, self._superseded = self._superseded, 0
            if superseded:
                self._say(f"{superseded} saves by message were superseded before they could be published")
            self._twice(lambda: self._publish_one_said(said))  # noqa: B023

    def _publish_one_said(self, said: Said) -> None:
        try:
            self._tell(self._saving.publish_said(said))
        except Barred:
            raise
        except (Absent, Unpublishable, UsageError) as error:
            # The save is not what the program says, which is its own affair; the store is not to blame.
            self._refuse(f"openjd_checkpoint_save of {printable(said.save.file or 'a state')}", str(error))

    def _twice(self, act: Callable[[], None]) -> None:
        """Act, once more if it fails, and give up on the saves if it fails again."""
        for last in (False, True):
            try:
                act()
                return
            except (DispatchError, OSError) as error:
                self._fault(error)
                if last:
                    self._give_up(str(error))
                else:
                    time.sleep(_RETRY_DELAY)

    def _take_save(self, save: CheckpointSave) -> None:
        # Looked at here and not when its turn comes: this is the moment at which the program calls it whole.
        said = self._saving.look_at_said(save)
        with self._changed:
            if len(self._saves) >= _MAX_WAITING_SAVES:
                self._saves.popleft()
                self._superseded += 1
            self._saves.append(said)
            self._changed.notify()

    def _take_files(self, message: CheckpointFiles, line: bytes) -> None:
        from prefect_dispatch.format.messages import describe_line

        try:
            self._saving.declare(message)
        except (Unpublishable, UsageError) as error:
            self._refuse(describe_line(line), str(error))

    def _take_resume_status(self, status: ResumeStatus, line: bytes) -> None:
        from prefect_dispatch.format.messages import describe_line

        if not self.resumed:
            self._refuse(describe_line(line), "this execution was not resumed, it started from scratch")
            return
        self._keep_latest(JournalKind.RESUME_STATUS, status=status.value)
        if status is status.DISCARDED:
            self._say("the program says that it discarded its save and started from scratch")

    def _take_failure(self, text: str) -> None:
        self.failure = text
        self._failures += 1
        if self._failures <= _MAX_FAILURES:
            self.note(JournalKind.FAIL, text=text)
        elif self._failures == _MAX_FAILURES + 1:
            self._say(f"openjd_fail came more than {_MAX_FAILURES} times; further ones are not noted")

    def _keep_latest(self, kind: JournalKind, **fields: Any) -> None:
        with self._changed:
            if not self._latest:
                self._changed.notify()
            self._latest[kind] = fields

    def _refuse(self, line: str, reason: str) -> None:
        self._refusals += 1
        if self._refusals <= _MAX_REFUSALS:
            self._say(f"message refused: {printable(reason)}: {line[:200]}")
            self.note(JournalKind.REFUSED, line=line, reason=printable(reason))
        elif self._refusals == _MAX_REFUSALS + 1:
            self._say(f"more than {_MAX_REFUSALS} messages were refused; further ones are not reported")

    def _fault(self, error: Union[DispatchError, OSError]) -> None:
        text = printable(str(error))
        self._say(f"saves: {text}")
        self.write(JournalKind.FAULT, text=text)

    def _give_up(self, text: str) -> None:
        if self.problem is None:
            self.problem = printable(text)
            self._alarm()

    def _tell(self, publication: Publication) -> None:
        self._say(f"published step {publication.step}: {printable(publication.path)}")
