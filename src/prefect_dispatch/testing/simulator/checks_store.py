"""Checks of each effect on the checkpoint root, and of each execution that begins or decides."""

from __future__ import annotations

from dataclasses import dataclass

from prefect_dispatch.errors import DispatchError, MalformedName
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.model.facts import Submitting
from prefect_dispatch.stores.layout import CLAIMS, EXEC, META, PUBLICATIONS, owner_of
from prefect_dispatch.stores.verdict import Finding, Judge
from prefect_dispatch.testing.simulator.oracle import wrong_resume
from prefect_dispatch.testing.simulator.truth import Ran, Truth


@dataclass(frozen=True)
class Touched:
    """A path of the root that was created, written or deleted.

    Attributes:
        truth: what really happened until then, without it.
        path: the path.
        attempt: whose execution did it; None for a supervisor.
        epoch: that execution's epoch.
    """

    truth: Truth
    path: str
    attempt: str | None
    epoch: Epoch | None


def g3_nobody_writes_into_anothers_folder(touched: Touched) -> str | None:
    """An execution changes its own folders, its own claim and its own publications, and nothing else."""
    folder, _, rest = touched.path.partition("/")
    owner: str | None = None
    if folder in (EXEC, META):
        owner = rest.partition("/")[0]
    elif folder == PUBLICATIONS:
        owner = owner_of(Publication.parse(rest).path)
    elif folder == CLAIMS:
        return None if touched.epoch is not None and rest == touched.epoch.digits else f"{touched.path} is not its own"
    else:
        return None
    return None if owner == touched.attempt else f"{touched.path} is {owner}'s, and {touched.attempt} changed it"


def g3_what_is_pinned_stays(touched: Touched) -> str | None:
    """Once it is decided, nothing that an execution resumes from is written or deleted."""
    for execution in touched.truth.executions.values():
        pinned = execution.pin.path if execution.pin is not None else None
        if pinned is not None and (touched.path == pinned or touched.path.startswith(f"{pinned}/")):
            return f"{touched.path}, which {execution.epoch} resumes from, was changed"
    return None


def g5_one_execution_claims_an_epoch(touched: Touched) -> str | None:
    """A claim is made once, and its epoch is its maker's."""
    folder, _, rest = touched.path.partition("/")
    if folder != CLAIMS:
        return None
    held = touched.truth.claims.get(Epoch.parse(rest))
    return None if held is None else f"epoch {rest} is claimed by {held} and was claimed again"


def g2_a_publication_is_whole_when_it_gets_its_name(touched: Touched) -> str | None:
    """A name in pub/ stands for a manifest that is there already."""
    folder, _, rest = touched.path.partition("/")
    if folder != PUBLICATIONS:
        return None
    publication = Publication.parse(rest)
    try:
        verdict = Judge(touched.truth.root).judge(publication)
    except DispatchError as error:
        return f"{publication.path} cannot be judged: {error}"
    if verdict.finding in (Finding.UNPROVEN, Finding.FORGED):
        return f"{publication.path} was published and is {verdict.finding.value}: {verdict.why}"
    return None


ON_TOUCH = (
    g3_nobody_writes_into_anothers_folder,
    g3_what_is_pinned_stays,
    g5_one_execution_claims_an_epoch,
    g2_a_publication_is_whole_when_it_gets_its_name,
)


def g1_it_resumes_from_the_greatest_whole_save(truth: Truth, execution: Ran, moment: int) -> str | None:
    """The pin is what the oracle allows, by the choice that the record has for its submission."""
    assert execution.pin is not None and execution.pin_began is not None
    fact = _intent_of(truth, execution)
    if fact is None:
        return f"{execution.epoch} runs without an intent in the record"
    chosen = execution.pin.publication
    return wrong_resume(
        truth.published.values(),
        execution.epoch.number,
        fact.base,
        fact.floor,
        chosen.name if chosen is not None else None,
        execution.pin_began,
        moment,
    )


def g1_what_is_imported_is_what_was_published(truth: Truth, execution: Ran, moment: int) -> str | None:
    """The imported files are byte for byte those of the publication."""
    pin = execution.pin
    if pin is None or pin.publication is None or pin.path is None:
        return None
    published = truth.published.get(pin.publication.name)
    imported = read_save(truth, pin.path)
    if published is None or imported == published.content:
        return None
    return f"{execution.epoch} imported {sorted(imported)} with other content than {pin.publication.path} was published"


ON_PIN = (g1_it_resumes_from_the_greatest_whole_save, g1_what_is_imported_is_what_was_published)


def g5_no_older_object_begins_to_run(truth: Truth, execution: Ran) -> str | None:
    """Once N+1 is decided, no object of N that was known then runs again."""
    number, generation = execution.document.submission, execution.epoch.generation
    # What was superseded is not waited for: it may begin until its stop reaches it.
    own = ((each.seq, each.fact) for each in truth.entries if each.generation == generation)
    later = ((seq, fact.n) for seq, fact in own if isinstance(fact, Submitting) and fact.n > number)
    decided, newer = next(later, (0, 0))
    if not decided:
        return None
    known = truth.states[decided].submission(execution.epoch.generation, number)
    if known is None or known.object is None or execution.began <= truth.written_at[decided]:
        return None
    return f"{execution.epoch} begins although submission {newer} was decided with its object {known.object} known"


ON_RUN = (g5_no_older_object_begins_to_run,)


def _intent_of(truth: Truth, execution: Ran) -> Submitting | None:
    for entry in truth.entries:
        if isinstance(entry.fact, Submitting) and entry.fact.token == execution.document.token:
            return entry.fact
    return None


def read_save(truth: Truth, path: str) -> dict[str, bytes]:
    """The files of a save as they are now, by their path in it."""
    try:
        files = truth.root.files(path)
    except DispatchError:
        return {}
    content: dict[str, bytes] = {}
    for file in files:
        whole = f"{path}/{file.path}" if file.path else path
        folder, _, name = whole.rpartition("/")
        try:
            content[file.path] = truth.root.ledger(folder).read(name)
        except (DispatchError, MalformedName):
            continue
    return content
