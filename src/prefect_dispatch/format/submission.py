"""The submission: the one document that a supervisor hands to the wrapper in the job."""

from __future__ import annotations

import enum
import os.path
from datetime import timedelta

from prefect_dispatch.errors import DispatchError, DuplicateExecution, MalformedDocument, UsageError
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.documents import FORMAT, decode, encode, field, text_map
from prefect_dispatch.format.durations import parse_duration
from prefect_dispatch.format.epoch import MAX_GENERATION, MAX_SUBMISSION, Epoch
from prefect_dispatch.format.names import attempt_of, check_lineage, check_token
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.format.saves import Saves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional

    from prefect_dispatch.format.deadline import DeadlineTerms

SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2", "QUIT")
"""The signals that a notice may be, without their SIG."""


class RestartSource(enum.Enum):
    """Where the wrapper finds the restart R of its execution."""

    ENVIRONMENT = "environment"
    """``DISPATCH_RESTART``, which must be set."""
    SLURM = "slurm"
    """``SLURM_RESTART_COUNT``, where absent means 0."""


@dataclass(frozen=True)
class Notice:
    """How a program is asked to save and exit.

    Args:
        signal: one of TERM, INT, HUP, USR1, USR2, QUIT.
        period: how long it may take before it is killed.
    """

    signal: str = "TERM"
    period: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if self.signal not in SIGNALS:
            raise UsageError(f"signal {self.signal!r} cannot be a notice; use one of {', '.join(SIGNALS)}")


@dataclass(frozen=True)
class Submission:
    """Everything that ``dispatch-job run`` needs to know of its execution but the restart and the command.

    Args:
        lineage: the lineage's name.
        record: the random id of the lineage's record; empty when the wrapper is run by hand without one.
        generation: G.
        submission: N.
        token: 16 characters; the attempt is ``<token>-<R>``.
        root: the checkpoint root as the job sees it, absolute; the lineage's own root is ``<root>/<lineage>``.
        choice: which saves this execution may resume from.
        saves: where its own saves come from.
        identity: digests of what makes the run this run, as far as they are known.
        notice: how the program is asked to save and exit when the job is to be preempted.
        restart_source: where R is found.
        root_prepared: whether the lineage's root was made already, so that one that is not there is an outage.
        watch_interval: how often saves are looked for.
        scan_timeout: how long one look may take.
        shared_checkpoint: whether all executions write into one place of the program's own, so that no restart may run.
        identity_from: for some fields of the identity, the provider by which each execution computes them anew, such
            as ``file:cfg.yaml``. Where ``identity`` lacks such a field, its first value is the one that counts. None
            where all fields are literals.
        workplace: the folder of all workplaces on the job's machines, where the root is a URL; empty for the machine's
            own choice.
        record_root: where the helper's last word goes too, where the root is out of the supervisor's reach; else empty.
        deadline: how long the generation may take in all; None for as long as it takes.
    """

    lineage: str
    record: str
    generation: int
    submission: int
    token: str
    root: str
    choice: ResumeChoice
    saves: Saves
    identity: Mapping[str, str]
    notice: Notice
    restart_source: RestartSource
    root_prepared: bool = False
    watch_interval: timedelta = timedelta(seconds=5)
    scan_timeout: timedelta = timedelta(seconds=60)
    shared_checkpoint: bool = False
    identity_from: Optional[Mapping[str, str]] = None
    workplace: str = ""
    record_root: str = ""
    deadline: Optional[DeadlineTerms] = None

    def check_restart(self, restart: int) -> None:
        """Refuse a restart that a scheduler made by itself, where nobody has said that the old processes are gone.

        Raises:
            DuplicateExecution: the checkpoint is shared, and this is no first run.
        """
        if self.shared_checkpoint and restart > 0:
            raise DuplicateExecution(
                f"{self.epoch(restart)} of {self.lineage} is a restart by the scheduler itself, and its checkpoint is "
                "shared with whatever still lives of the run before: nothing was started; turn the scheduler's own "
                "restarts off, and answer the hold"
            )

    def epoch(self, restart: int) -> Epoch:
        """The epoch of this submission's execution number ``restart``."""
        return Epoch(self.generation, self.submission, restart)

    def attempt(self, restart: int) -> str:
        """The attempt of this submission's execution number ``restart``."""
        return attempt_of(self.token, restart)

    def encode(self) -> bytes:
        """Write it as the wrapper reads it."""
        shared = {"shared_checkpoint": True} if self.shared_checkpoint else {}
        deadline = {"deadline": self.deadline.encode()} if self.deadline is not None else {}
        return encode(
            {
                **shared,
                **deadline,
                "format": FORMAT,
                "lineage": self.lineage,
                "record": self.record,
                "generation": self.generation,
                "submission": self.submission,
                "token": self.token,
                "root": self.root,
                **self.choice.encode(),
                "saves": self.saves.encode(),
                "identity": dict(self.identity),
                "identity_from": dict(self.identity_from or {}),
                "notice": {"signal": self.notice.signal, "period": _seconds(self.notice.period)},
                "restart_source": self.restart_source.value,
                "root_prepared": self.root_prepared,
                "watch_interval": _seconds(self.watch_interval),
                "scan_timeout": _seconds(self.scan_timeout),
                "workplace": self.workplace,
                "record_root": self.record_root,
            }
        )

    @classmethod
    def decode(cls, data: bytes, what: str) -> Submission:
        """Read a submission document.

        Raises:
            UsageError: it is not one; the text names the document and the field.
        """
        try:
            return cls._decode(data, what)
        except UsageError as error:
            raise UsageError(f"submission {what}: {error}") from None
        except DispatchError as error:
            raise UsageError(f"submission {error}") from None

    @classmethod
    def _decode(cls, data: bytes, what: str) -> Submission:
        document = decode(data, what)
        for name in document:
            if name not in _KNOWN:
                raise UsageError(f"unknown field {name!r}; it has {', '.join(sorted(_KNOWN))}")
        root = field(document, "root", str, what)
        _check_place("root", root)
        others = {name: field({name: "", **document}, name, str, what) for name in ("workplace", "record_root")}
        for name, place in others.items():
            if place:
                _check_place(name, place, may_be_url=name == "record_root")
        generation = field(document, "generation", int, what)
        submission = field(document, "submission", int, what)
        if not 0 <= generation <= MAX_GENERATION or not 1 <= submission <= MAX_SUBMISSION:
            raise MalformedDocument(f"{what} has generation {generation}, submission {submission}: out of range")
        try:
            source = RestartSource(field(document, "restart_source", str, what))
        except ValueError:
            raise UsageError(
                f"restart_source {document['restart_source']!r} is unknown; use environment or slurm"
            ) from None
        return cls(
            check_lineage(field(document, "lineage", str, what)),
            field(document, "record", str, what),
            generation,
            submission,
            check_token(field(document, "token", str, what)),
            root,
            ResumeChoice.decode(field(document, "base", str, what), field(document, "floor", int, what), what),
            Saves.decode(field(document, "saves", dict, what)),
            text_map(document, "identity", what),
            _notice(field(document, "notice", dict, what), what),
            source,
            "root_prepared" in document and field(document, "root_prepared", bool, what),
            _positive(document, "watch_interval", cls.watch_interval),
            _positive(document, "scan_timeout", cls.scan_timeout),
            "shared_checkpoint" in document and field(document, "shared_checkpoint", bool, what),
            _providers(document, what) if document.get("identity_from") else None,
            others["workplace"],
            others["record_root"],
            _deadline(document, what) if document.get("deadline") is not None else None,
        )


_KNOWN = {
    "format",
    "lineage",
    "record",
    "generation",
    "submission",
    "token",
    "root",
    "base",
    "floor",
    "saves",
    "identity",
    "identity_from",
    "notice",
    "restart_source",
    "root_prepared",
    "watch_interval",
    "scan_timeout",
    "shared_checkpoint",
    "workplace",
    "record_root",
    "deadline",
}


def _providers(document: Mapping[str, Any], what: str) -> Dict[str, str]:
    """The providers by field. Few jobs have any, so what reads them is not loaded before."""
    from prefect_dispatch.format.identity import Provider

    providers = text_map(document, "identity_from", what)
    for name, text in providers.items():
        if Provider.parse(text) is None:
            raise UsageError(f"identity_from.{name} {text!r} is no provider; use file:PATH, git:PATH or env:NAME")
    return providers


def _deadline(document: Mapping[str, Any], what: str) -> DeadlineTerms:
    """The total deadline. Few jobs have one, so what reads it is not loaded before."""
    from prefect_dispatch.format.deadline import DeadlineTerms

    return DeadlineTerms.decode(field(document, "deadline", dict, what), what)


def _check_place(name: str, place: str, may_be_url: bool = True) -> None:
    if "\0" in place or not (os.path.isabs(place) or (may_be_url and place.startswith("s3://"))):
        raise UsageError(f"{name} {place!r} is not an absolute path{' or s3://BUCKET/PREFIX' if may_be_url else ''}")


def _notice(document: Mapping[str, Any], what: str) -> Notice:
    for name in document:
        if name not in ("signal", "period"):
            raise UsageError(f"unknown field {'notice.' + name!r}; a notice has period, signal")
    field(document, "period", (int, float), what)
    return Notice(field(document, "signal", str, what), _duration(document, "period", Notice.period))


def _duration(document: Mapping[str, Any], name: str, default: timedelta) -> timedelta:
    try:
        return parse_duration(document.get(name, default))
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _positive(document: Mapping[str, Any], name: str, default: timedelta) -> timedelta:
    duration = _duration(document, name, default)
    if not duration:
        raise UsageError(f"{name} {document[name]!r} is no time at all; give at least a millisecond")
    return duration


def _seconds(duration: timedelta) -> float:
    return duration.total_seconds()
