"""The simulator finds what is broken of supersessions on purpose, within the seeds that CI runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from prefect_dispatch.model import fold, next_step
from prefect_dispatch.supervisor import superseding
from prefect_dispatch.testing.simulator import supervisors
from support.mutations import SEEDS, first_failure

Patch = pytest.MonkeyPatch


def what_was_superseded_is_forgotten(patch: Patch) -> None:
    """A new generation owes nothing to the older ones."""
    patch.setattr(fold, "_obligations", lambda state: ())


def what_may_run_again_is_left_to_its_scheduler(patch: Patch) -> None:
    """An old object that has ended counts as ended for good."""
    patch.setattr(next_step, "to_retire", lambda state: ())
    patch.setattr(next_step, "owed", lambda state: tuple(each for each in state.obligations if each.unsettled))


def a_supersession_sets_no_floor(patch: Patch) -> None:
    """A person's choice is the base alone."""
    choice = superseding.choice_of

    def choice_without_floor(*given):
        base, _ = choice(*given)
        return base, given[1].floor

    patch.setattr(superseding, "choice_of", choice_without_floor)


def a_supersession_copies_nothing(patch: Patch) -> None:
    """Where nobody chose, the new generation takes the newest save of all, whatever the old one was told."""
    choice = superseding.choice_of
    patch.setattr(superseding, "choice_of", lambda *given: ("latest", 0) if given[5] is None else choice(*given))


def who_loses_a_supersession_supersedes_the_winner(patch: Patch) -> None:
    """Two at once both have their way, one after the other."""
    decide = superseding.decide

    def decide_anyway(record, job, plan, identity_of, root_of, asked):
        return decide(record, job, plan, identity_of, root_of, replace(asked, meant=None))

    patch.setattr(supervisors, "decide", decide_anyway)


def a_superseded_writer_is_nobodys_business(patch: Patch) -> None:
    """A new generation begins at once, though its checkpoint is shared with the old one."""
    patch.setattr(next_step, "asks_first", lambda state, opened: False)


MUTATIONS = (
    what_was_superseded_is_forgotten,
    what_may_run_again_is_left_to_its_scheduler,
    a_supersession_sets_no_floor,
    a_supersession_copies_nothing,
    who_loses_a_supersession_supersedes_the_winner,
    a_superseded_writer_is_nobodys_business,
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_mutation_is_found(mutation: Callable[[Patch], None], monkeypatch, record_property):
    # given a product that is broken in one place
    mutation(monkeypatch)
    # when it is simulated
    found = first_failure(range(SEEDS))
    # then a check sees it
    assert found is not None, f"{SEEDS} seeds pass with {mutation.__name__}"
    record_property("seed and check", found)
