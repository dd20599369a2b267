"""The choice of a resume point beside writers: looked for again until what was passed over stays the same."""

from __future__ import annotations

from typing import Mapping, Optional, Union

from prefect_dispatch.errors import IdentityChanged, UnusableCheckpoint
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import ResumeChoice
from prefect_dispatch.stores.port import Store
from prefect_dispatch.stores.resume import Resume, choose

MOST_LOOKS = 20
"""How often one looks at most: a program that rotates its saves faster than they can be looked at has no usable one."""


def choose_settled(
    store: Store,
    choice: ResumeChoice,
    below: Optional[Epoch] = None,
    identity: Optional[Mapping[str, str]] = None,
    excluded: Optional[Mapping[Publication, str]] = None,
) -> Resume:
    """Find the resume point as :func:`~prefect_dispatch.stores.resume.choose` does, also while others write.

    An older execution that is alive may publish a save and then delete the one before, between our listing and our look
    at that one's files. What lies below would be taken, or nothing found usable, although a whole save was there at
    every moment. So where any was passed over one looks again, until two looks see the same.
    """
    before: Optional[Union[Resume, str]] = None
    for _ in range(MOST_LOOKS):
        try:
            resume = choose(store, choice, below, identity, excluded)
        except (UnusableCheckpoint, IdentityChanged) as error:
            if before == str(error):
                raise
            before = str(error)
        else:
            if before == resume or all(entry.forged for entry in resume.passed_over):
                return resume
            before = resume
    return choose(store, choice, below, identity, excluded)
