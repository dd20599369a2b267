"""The resume point: the greatest publication that is whole, what was passed over on the way to it, and why."""

from __future__ import annotations

from prefect_dispatch.errors import IdentityChanged, UnusableCheckpoint
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.manifest import Manifest
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import SCRATCH, ResumeChoice
from prefect_dispatch.stores.published import greatest_first, list_names
from prefect_dispatch.stores.root_format import require_root
from prefect_dispatch.stores.verdict import Finding, Judge, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Mapping, Optional, Tuple

    from prefect_dispatch.stores.port import Store

MOST_LOOKS = 20
"""How often one looks again: a program that rotates faster than its saves can be looked at has no usable one."""

_NAMED_IN_ERROR = 20


@dataclass(frozen=True)
class PassedOver:
    """A publication that was not taken.

    Args:
        publication: which.
        why: in words.
        forged: whether no earlier execution can have published it where it is; such a name decides nothing.
    """

    publication: Publication
    why: str
    forged: bool = False

    def __str__(self) -> str:
        return f"{self.publication.path!r} of epoch {self.publication.epoch}, step {self.publication.step}: {self.why}"


@dataclass(frozen=True)
class Resume:
    """What to resume from.

    Args:
        publication: the publication; None for a start from scratch.
        manifest: its manifest; None for a start from scratch.
        passed_over: publications that were looked at and not taken, the greatest first.
        notes: what does not stop it but should be told, such as changed code.
    """

    publication: Optional[Publication] = None
    manifest: Optional[Manifest] = None
    passed_over: Tuple[PassedOver, ...] = ()
    notes: Tuple[str, ...] = ()


def choose(
    store: Store,
    choice: ResumeChoice,
    below: Optional[Epoch] = None,
    identity: Optional[Mapping[str, str]] = None,
    refuted: Optional[Mapping[str, str]] = None,
) -> Resume:
    """Find the resume point; see :meth:`~prefect_dispatch.stores.lineage_root.LineageRoot.latest`.

    Args:
        store: the lineage's root.
        choice: which publications may be taken.
        below: the epoch that looks; only lesser ones may be taken.
        identity: what makes the run this run; None to take a save of any.
        refuted: names of manifests that were found not to hold meanwhile, and why.
    """
    look = _look(store, choice, below, refuted)
    for _ in range(MOST_LOOKS):
        if look.publication is not None and not look.passed_over:
            break
        # While we looked, a program may have saved, and rotated away what had been listed. Or the root was away for a
        # moment, and what lies in it with it. So what is not there counts as not there when two looks agree, with the
        # root there in between.
        require_root(store)
        before, look = look, _look(store, choice, below, refuted)
        if look == before:
            break
    if look.publication is not None and look.manifest is not None:
        notes = _compare_identity(look.manifest, below, identity)
        return Resume(look.publication, look.manifest, look.passed_over, notes)
    if look.refuses:
        raise UnusableCheckpoint(_describe(store, look.passed_over))
    return Resume(passed_over=look.passed_over)


@dataclass(frozen=True)
class _Look:
    """What one look at the publications found.

    Args:
        publication: the greatest that is whole, if any.
        manifest: the manifest of it that holds.
        passed_over: what was not taken, the greatest first.
        refuses: whether finding none means that saves are published and unusable, not a start from scratch.
    """

    publication: Optional[Publication]
    manifest: Optional[Manifest]
    passed_over: Tuple[PassedOver, ...]
    refuses: bool


def _look(
    store: Store,
    choice: ResumeChoice,
    below: Optional[Epoch],
    refuted: Optional[Mapping[str, str]],
) -> _Look:
    names = list_names(store)
    judge = Judge(store, below, refuted)
    verdicts: Dict[Publication, Verdict] = {}
    tried: List[Publication] = []

    def is_forged(publication: Publication) -> bool:
        return verdicts[publication].finding is Finding.FORGED

    def in_time() -> Iterator[Publication]:
        for publication in greatest_first(names):
            if judge.is_late(publication):
                verdicts[publication] = judge.judge(publication)
            else:
                yield publication

    for publication in choice.candidates(in_time(), is_forged):
        tried.append(publication)
        if publication in verdicts:
            continue
        verdict = verdicts[publication] = judge.judge(publication)
        if verdict.manifest is not None:
            return _Look(publication, verdict.manifest, _passed_over(verdicts), False)
    # A forged name stands for nothing, but where all may be taken it shows that there was something to take.
    refuses = bool(tried) and not (choice.base == SCRATCH and all(map(is_forged, tried)))
    return _Look(None, None, _passed_over(verdicts), refuses)


def _passed_over(verdicts: Mapping[Publication, Verdict]) -> Tuple[PassedOver, ...]:
    ordered = sorted(verdicts.items(), key=lambda item: item[0].order, reverse=True)
    return tuple(
        PassedOver(publication, verdict.why, verdict.finding is Finding.FORGED)
        for publication, verdict in ordered
        if verdict.manifest is None
    )


def _describe(store: Store, passed_over: Tuple[PassedOver, ...]) -> str:
    named = "; ".join(str(entry) for entry in passed_over[:_NAMED_IN_ERROR])
    more = len(passed_over) - _NAMED_IN_ERROR
    return (
        f"{store.location} has published saves and none is usable: {named}{f'; and {more} more' if more > 0 else ''}; "
        "bring one back, or choose another publication or a start from scratch"
    )


def _compare_identity(
    manifest: Manifest, below: Optional[Epoch], identity: Optional[Mapping[str, str]]
) -> Tuple[str, ...]:
    """Refuse a save of a different run; changed code alone is noted, where a declared schema is unchanged.

    Across generations a change is what somebody decided when they superseded the older one, and is noted.
    """
    if identity is None:
        return ()
    if dict(manifest.identity) == dict(identity):
        return ()
    # A start that finds nothing changed does not pay for this.
    from prefect_dispatch.format.identity import compare_identity

    difference = compare_identity(manifest.identity, identity)
    if difference.tolerated:
        return (f"the code has changed since {manifest.publication.path!r} was saved; its checkpoint_schema has not",)
    epoch = manifest.publication.epoch
    if below is not None and epoch.generation < below.generation:
        changed = ", ".join(difference.fields)
        return (f"{changed} changed since generation {epoch.generation}, which saved {manifest.publication.path!r}",)
    raise IdentityChanged(
        f"save {manifest.publication.path!r} of epoch {manifest.publication.epoch} belongs to a different run: "
        f"{', '.join(difference.fields)} changed; set it back, supersede the job, or give the new run a name of its own"
    )
