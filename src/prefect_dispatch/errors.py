"""Every error of this package, in one tree.

    DispatchError
    ├── UsageError               2   a command, option, spec or document is wrong as given
    │   └── SpecError            2   a job spec is wrong, or asks for what this version does not have
    ├── NothingPublished         3   there is no save to resume from
    ├── MalformedError          65   stored data is not what the format says
    │   ├── MalformedName            a name in a ledger
    │   ├── MalformedDocument        a JSON document
    │   └── UnknownFormat            written by a newer version, or it belongs to another record
    ├── StoreUnreachable        69   the store cannot be reached or refuses us
    │   └── RootAbsent               its root is not there: nothing can be told of what is in it
    ├── StoreError              74   the store failed while we used it
    │   ├── Absent                   the name is confirmed not to be there
    │   ├── NotDurable               the disk refused to keep what was written
    │   └── Exists                   the name is taken already
    ├── DuplicateExecution     190   another execution holds this epoch, or a later one
    ├── UnusableCheckpoint     191   saves are published and none is whole
    ├── IdentityChanged        192   the save belongs to a different run, or this execution would become one
    │   └── IdentityUnknown          a field of the identity cannot be told
    ├── DeadlinePassed         193   the total deadline has passed, or is too near to start anything
    ├── Unpublishable          194   a save cannot be published
    │   └── Barred                   its files failed to reach the disk once
    ├── SchedulerError               the scheduler's answer cannot be used; nothing is known
    │   ├── SubmitRefused            it said no: the object does not exist and will not
    │   ├── Ambiguous                it cannot know whether the object exists
    │   └── OutOfReach               this object is where it cannot act, though it answers for others
    ├── LineageError                 the lineage does not allow this now
    ├── AnotherExecution             one execution has ended and another one is due
    └── ReadOnlyLineage              the record holds facts of a newer version

Each text names the thing, its value and the way out. ``exit_code`` is what a command line exits with.
"""

from __future__ import annotations


class DispatchError(Exception):
    """Base of all errors of this package."""

    exit_code = 1


class UsageError(DispatchError):
    """A command, an option, a specification or a document that was handed in is wrong as given."""

    exit_code = 2


class SpecError(UsageError):
    """A job specification is wrong, or asks for something that this version does not have."""


class NothingPublished(DispatchError):
    """There is no publication to resume from."""

    exit_code = 3


class MalformedError(DispatchError):
    """Stored data is not what the format says it must be."""

    exit_code = 65


class MalformedName(MalformedError):
    """A name in a ledger does not parse. It is never skipped: a skipped entry could be the newest."""


class MalformedDocument(MalformedError):
    """A stored JSON document does not parse, or a field has a value that it cannot have."""


class UnknownFormat(MalformedError):
    """The data was written by a newer format, or belongs to another record."""


class StoreUnreachable(DispatchError):
    """The store's root is not there, cannot be written, or does not keep what the format needs."""

    exit_code = 69


class RootAbsent(StoreUnreachable):
    """The store's root is not there. That is no empty root: a mount may be away, so nothing in it counts as absent."""


class StoreError(DispatchError):
    """The store failed while it was used."""

    exit_code = 74


class Absent(StoreError):
    """The name is confirmed not to be in the store."""


class NotDurable(StoreError):
    """The disk refused to keep what was written. What it holds of it is unknown; trying again proves nothing."""


class Exists(StoreError):
    """The name is in the store already; nothing was changed."""


class DuplicateExecution(DispatchError):
    """Another execution holds this epoch, or one of a later epoch has claimed its own."""

    exit_code = 190


class UnusableCheckpoint(DispatchError):
    """Publications exist and none of them is whole; starting from scratch would lose the work silently."""

    exit_code = 191


class IdentityChanged(DispatchError):
    """What makes the run this run differs between the save or lineage and this execution."""

    exit_code = 192


class DeadlinePassed(DispatchError):
    """The total deadline of the generation has passed, or is so near that nothing is started any more."""

    exit_code = 193


class IdentityUnknown(IdentityChanged):
    """A field of what makes the run this run cannot be told: unknown is never unchanged."""


class Unpublishable(DispatchError):
    """A save cannot be published as it is."""

    exit_code = 194


class Barred(Unpublishable):
    """The save's files failed to reach the disk once; what the disk holds of them is not known."""


class SchedulerError(DispatchError):
    """The scheduler's answer cannot be used. Nothing follows from it: unknown is never gone."""


class SubmitRefused(SchedulerError):
    """The scheduler refused a submission for certain: no object exists, and none will."""


class Ambiguous(SchedulerError):
    """The scheduler cannot know whether an object with this token exists."""


class OutOfReach(SchedulerError):
    """The scheduler can neither look nor act where this object is, though it answers for others: unknown, not gone."""


class LineageError(DispatchError):
    """The lineage's present state does not allow what was asked."""


class AnotherExecution(DispatchError):
    """One execution has ended and another one is due: the next try of the task that carries the job takes that one.

    Nothing went wrong, but a task is retried for an exception, and Prefect logs "failed with exception" and its
    ``repr``: so that is a sentence which takes it back.
    """

    def __repr__(self) -> str:
        return f"no error: {self}"


class ReadOnlyLineage(DispatchError):
    """The record holds a fact of a kind or format that this version does not know."""

    exit_code = 65
