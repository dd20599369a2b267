"""Identity of an execution: its providers are asked anew, and what they say is held against what the run is."""

from __future__ import annotations

import os

from prefect_dispatch.errors import IdentityChanged, IdentityUnknown
from prefect_dispatch.format.dataclass import dataclass
from prefect_dispatch.format.identity import CODE, SCHEMA, compare_identity, short_digest
from prefect_dispatch.format.printable import printable
from prefect_dispatch.format.submission import Submission
from prefect_dispatch.stores.identity_reference import agree_on_reference
from prefect_dispatch.stores.identity_values import find_values
from prefect_dispatch.stores.lineage_root import LineageRoot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

_MOST_WHY = 500
"""Characters of why a provider cannot answer: a path that it names may be of any length."""


@dataclass(frozen=True)
class EstablishedIdentity:
    """What an execution is, as far as that can be told.

    Args:
        values: digests, by field; without the fields that cannot be told.
        commits: the commit, for each field that names a git working tree.
        notes: what does not stop it and should be told.
        fault: why it must not run; None where it may.
    """

    values: Mapping[str, str]
    commits: Mapping[str, str]
    notes: Tuple[str, ...] = ()
    fault: Optional[IdentityChanged] = None

    def details(self) -> Dict[str, Any]:
        """What its start notes of it."""
        return {"commit": dict(self.commits), "notes": list(self.notes)}


def establish_identity(
    submission: Submission, attempt: str, root: LineageRoot, environment: Mapping[str, str]
) -> EstablishedIdentity:
    """Ask the providers, in the working folder, and compare what they say with what the run is.

    Args:
        submission: the providers, and the values that are known.
        attempt: this execution, which has claimed.
        root: where the first execution of a generation notes what nobody knew before.
        environment: what the program will inherit.

    Raises:
        MalformedDocument: what the first execution noted is not readable.
        StoreError: the store failed.
    """
    providers = submission.identity_from or {}
    found = find_values(providers, os.getcwd(), environment)
    fixed = {name: value for name, value in submission.identity.items() if name not in providers}
    values = {**fixed, **found.values}
    expected = dict(submission.identity)
    if not found.unknown:
        unseen = {name: value for name, value in found.values.items() if name not in expected}
        if unseen:
            expected.update(agree_on_reference(root.store, submission.generation, attempt, unseen))
    difference = compare_identity(expected, values)
    if found.unknown:
        changed = [name for name in difference.fields if name in expected and name in values]
        fault: IdentityChanged = IdentityUnknown(_describe_unknown(found.unknown, changed))
        return EstablishedIdentity(values, found.commits, (), fault)
    told = [_tell(name, providers, expected, values) for name in difference.fields]
    if not told:
        return EstablishedIdentity(values, found.commits)
    if difference.tolerated:
        note = f"the {CODE} has changed since the job began, its {SCHEMA} has not: {told[0]}"
        return EstablishedIdentity(values, found.commits, (note,))
    fault = IdentityChanged(
        f"{', '.join(map(printable, difference.fields))} changed since the job began: {'; '.join(told)}; "
        "set it back and run the job again, or give the new run a lineage name of its own"
    )
    return EstablishedIdentity(values, found.commits, (), fault)


def _tell(name: str, providers: Mapping[str, str], expected: Mapping[str, str], values: Mapping[str, str]) -> str:
    before, now = (short_digest(each.get(name, "missing")) for each in (expected, values))
    source = f" ({printable(providers[name], _MOST_WHY)})" if name in providers else ""
    return f"{printable(name)}{source} was {before} and is {now}"


def _describe_unknown(unknown: Mapping[str, str], changed: List[str]) -> str:
    names = ", ".join(map(printable, unknown))
    others = f"; {', '.join(map(printable, changed))} changed" if changed else ""
    why = "; ".join(printable(text, _MOST_WHY) for text in unknown.values())
    return f"identity field {names} cannot be told{others}: {why}; mend it and run the job again"
