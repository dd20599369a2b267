"""Runs Slurm's commands: here, or behind a prefix such as ``ssh login``; bounded, and killed when nobody waits."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Event

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.format.contract import PATIENCE, PREFIX
from prefect_dispatch.format.printable import printable

SETTINGS = ("LC_ALL=C", "SLURM_TIME_FORMAT=%s")
"""Times come as seconds since 1970, whatever the time zone of the machine that the commands run on."""
_WITHOUT_SETTINGS = ("sbatch",)
"""Its environment becomes the job's."""
LOOK_SECONDS = 0.02
MOST_OUTPUT = 256 * 1024 * 1024
MOST_COMPLAINT = 1024 * 1024
MOST_TOLD = 300
NOT_FOUND = 127
"""What ``env`` and shells exit with where there is no such command."""
_SLURM_OWN = ("SLURM_CONF", "SLURM_JWT", "SLURM_TIME_FORMAT")
_STRIPPED = ("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SALLOC_", "SRUN_")
_NOT_FOR_JOBS = ("PREFECT_API_KEY", "PREFECT_API_AUTH_STRING")


@dataclass(frozen=True)
class Answer:
    """What a command said.

    Attributes:
        words: the command, for people.
        code: its exit code.
        output: what it printed.
        complaint: what it printed on standard error, all of it: a banner may stand before what decides.
    """

    words: str
    code: int
    output: str
    complaint: str

    @property
    def is_missing(self) -> bool:
        """Whether there is no such command where it was to run."""
        return self.code == NOT_FOUND and not self.output.strip()

    @property
    def told(self) -> str:
        """What went wrong, for people."""
        what = _end_of(self.complaint) or _end_of(self.output) or "it said nothing"
        missing = f"{self.words.partition(' ')[0]} is not on PATH where it was to run: " if self.is_missing else ""
        return f"{self.words}: {missing}{what} (exit {self.code})"

    def require(self) -> str:
        """Its output, where it went well.

        Raises:
            SchedulerError: it did not.
        """
        if self.code != 0:
            raise SchedulerError(self.told)
        return self.output


@dataclass(frozen=True)
class Commands:
    """Where and how Slurm's commands run. No shell is between, or one that is quoted for: ``ssh`` brings one along.

    Attributes:
        prefix: words before each command, such as ``ssh login``; empty where they run here.
        time_limit: how long one may take before it is killed.
    """

    prefix: tuple[str, ...] = ()
    time_limit: timedelta = timedelta(seconds=60)

    def run(
        self,
        *words: str,
        script: bytes = b"",
        secrets: Mapping[str, str] | None = None,
        abandoned: Event | None = None,
    ) -> Answer:
        """Run one command and wait for it. Blocks.

        Args:
            words: the command, word by word.
            script: what it reads from standard input.
            secrets: variables for its environment, and so for a job that inherits it.
            abandoned: once set, nobody waits any more, and it is killed.

        Raises:
            SchedulerError: it cannot be run, or was killed; it may have done its work.
        """
        told = printable(" ".join(words[:2]), 80)
        if abandoned is not None and abandoned.is_set():
            raise SchedulerError(f"{told} was given up before it began")
        line = self._line(words)
        environment = {**cleaned(os.environ), **(secrets or {})}
        # Files, not pipes: a connection that ssh leaves open in the background would hold a pipe open as well.
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as fault:
            source.write(script)
            source.seek(0)
            try:
                process = subprocess.Popen(
                    line,
                    stdin=source,
                    stdout=output,
                    stderr=fault,
                    env=environment,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                where = "; look at command_prefix" if self.prefix else ""
                raise SchedulerError(f"{told} cannot be run: {line[0]} does not start: {error}{where}") from None
            self._wait(process, told, abandoned)
            if output.seek(0, os.SEEK_END) > MOST_OUTPUT:
                raise SchedulerError(f"{told} printed more than {MOST_OUTPUT} bytes")
            output.seek(0)
            fault.seek(max(0, fault.seek(0, os.SEEK_END) - MOST_COMPLAINT))
            complaint = fault.read().decode("utf-8", "replace").strip()
            said = output.read().decode("utf-8", "replace")
        return Answer(told, process.returncode, said, complaint)

    def _line(self, words: Sequence[str]) -> list[str]:
        line = ["env", *(() if words[0] in _WITHOUT_SETTINGS else SETTINGS), *words]
        if any(os.path.basename(word) == "ssh" for word in self.prefix):
            # It joins its words with blanks, and a shell on the other side takes them apart (ssh(1)).
            line = [shlex.quote(word) for word in line]
        return [*self.prefix, *line]

    def _wait(self, process: subprocess.Popen[bytes], told: str, abandoned: Event | None) -> None:
        give_up = time.monotonic() + self.time_limit.total_seconds()
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_SECONDS)
                    return
                if abandoned is not None and abandoned.is_set():
                    raise SchedulerError(f"{told} was given up; what it did is not known")
                if time.monotonic() >= give_up:
                    raise SchedulerError(f"{told} gave no answer within {self.time_limit.total_seconds():g}s")
        finally:
            if process.returncode is None:
                # Not reaped yet, so that its number is nobody else's; its session is its own.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _end_of(text: str) -> str:
    """The end of a text, in one line: what went wrong is said last, after banners and warnings."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= MOST_TOLD else f"…{line[1 - MOST_TOLD :]}"


def cleaned(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what would change the commands' answers, or belongs to no job.

    Slurm's commands take options from variables, and a supervisor may itself run inside a job of Slurm's.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in (*_SLURM_OWN, *PATIENCE) or not (name.startswith((*_STRIPPED, PREFIX)) or name in _NOT_FOR_JOBS)
    }
