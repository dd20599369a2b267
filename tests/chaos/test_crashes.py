"""Crashes: a real process is killed right before each durable step; nothing is lost, and the job ends all the same."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from prefect_dispatch.failpoint import Failpoint
from prefect_dispatch.model.facts import HoldLifted, LiftedBy, Opened
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_record
from support.crash.child import LINEAGE
from support.crash.choice import Reached
from support.crash.crashes import Crashes
from support.crash.kill import SUPERVISOR, Kill

IN_FOLDERS = [point for point in Failpoint if not point.value.startswith(("s3.", "prefect."))]
"""Those of a root in a bucket are in test_bucket_crashes, those in Prefect in tests/acceptance/test_prefect_crashes."""


@pytest.mark.parametrize("point", IN_FOLDERS, ids=lambda point: point.value)
def test_a_process_that_is_killed_at_a_durable_step_takes_nothing_along(
    point: Failpoint, crashes: Crashes, planned: dict[Failpoint, list[tuple[Kill, ...]]]
):
    # given a job on the local scheduler that is preempted once, and who comes to this failpoint, how often
    kills = planned[point]
    assert kills, f"no scenario comes to {point.value}: add one"
    # when each of them is killed there, and a new activation goes on
    for each in kills:
        # then all that Scene.check and Scene.check_end ask for holds
        crashes.end_of(*each)


def test_who_answers_for_a_shared_checkpoint_may_be_killed_before_every_fact(crashes: Crashes, census: Reached):
    # given a job with a shared checkpoint, whose hold the local signal lifts once the old processes are gone
    scene = crashes.scene("shared")
    assert scene.activate() == 0
    entries = open_record(str(scene.folder / "record"), LINEAGE, SystemClock()).entries()
    lifts = [entry.fact.lifted_by for entry in entries if isinstance(entry.fact, HoldLifted)]
    assert lifts == [LiftedBy.SIGNAL]
    times = census["shared", SUPERVISOR]["fact"]
    assert times >= len(entries) - 2
    kills = [Kill("shared", SUPERVISOR, "fact", time) for time in range(1, times + 1)]
    for kill in kills:
        crashes.begin(kill)
    # when whoever supervises and polls is killed before each of its facts, the site's answer and the lift among them
    for kill in kills:
        # then the next one finishes what it began
        crashes.end_of(kill)


def test_who_supersedes_and_who_looks_after_both_may_be_killed_before_every_fact(crashes: Crashes, census: Reached):
    # given a job that is superseded when it has saved, and that nobody disturbs
    scene = crashes.scene("superseded")
    assert scene.activate() == 0
    scene.check_end()
    record = open_record(str(scene.folder / "record"), LINEAGE, SystemClock())
    assert [entry.generation for entry in record.entries() if isinstance(entry.fact, Opened)] == [0, 1]
    times = census["superseded", SUPERVISOR]["fact"]
    kills = [Kill("superseded", SUPERVISOR, "fact", time) for time in range(1, times + 1)]
    for kill in kills:
        crashes.begin(kill)
    # when it is killed before each fact, the supersession among them
    for kill in kills:
        # then the next one finds the old generation or the new one, and nothing in between
        crashes.end_of(kill)


TWICE = [
    (SUPERVISOR, "fact", 3),
    (SUPERVISOR, "submit", 1),
    (SUPERVISOR, "submitted", 1),
    (SUPERVISOR, "local.place-object", 1),
    (SUPERVISOR, "local.spawn", 1),
    (SUPERVISOR, "local.end", 1),
    ("both jobs", "claim", 1),
    ("both jobs", "publication", 2),
    ("both jobs", "guardian", 1),
]


@pytest.fixture(scope="module")
def twice(crashes: Crashes) -> dict[tuple[str, str, int], Future[None]]:
    """All of them at once, side by side."""
    return {case: crashes.beside(kill_twice, crashes, *case) for case in TWICE}


def kill_twice(crashes: Crashes, who: str, point: str, time: int) -> None:
    # given a job
    scene = crashes.scene("folder")
    # when two in a row are killed at one step: supervisors, or the jobs of two submissions of one supervisor
    kills = scene.kills(who, point, time)
    scene.activate(*kills)
    scene.check()
    scene.activate(*kills)
    # then the next activation ends the job
    assert scene.was_killed(kills[0])
    assert scene.activate() == 0
    scene.check_end()


@pytest.mark.parametrize("case", TWICE, ids=lambda case: " at ".join(case[:2]))
def test_who_comes_after_may_be_killed_at_the_same_step(
    case: tuple[str, str, int], twice: dict[tuple[str, str, int], Future[None]]
):
    twice[case].result()
