"""One simulation, from its seed to its outcome."""

from __future__ import annotations

import traceback
from datetime import timedelta
from random import Random

from prefect_dispatch.model.facts import Opened
from prefect_dispatch.model.plan import plan
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.model.state import Landing
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.memory import MemoryStore
from prefect_dispatch.testing.memory_scheduler import MemoryScheduler
from prefect_dispatch.testing.simulator.chance import seeded
from prefect_dispatch.testing.simulator.clocks import BEGIN, SkewedClock
from prefect_dispatch.testing.simulator.outcome import Outcome
from prefect_dispatch.testing.simulator.referee import Referee
from prefect_dispatch.testing.simulator.setting import draw_setting, draw_supersessions
from prefect_dispatch.testing.simulator.stage import Stage
from prefect_dispatch.testing.simulator.supervisors import LINEAGE, Office
from prefect_dispatch.testing.simulator.truth import Truth
from prefect_dispatch.testing.simulator.world import World

QUIET = 6 * 3600.0
"""Seconds after the last fault within which the lineage must be finished or held."""
LOOK_EVERY = 60.0


def simulate(seed: int, supersedes: bool = True) -> Outcome:
    """Run one simulation. The same seed gives the same steps, in any process.

    Several supervisors advance one lineage through a scheduler while persons decide and everything goes wrong that may.
    One parked call proceeds at a time, and after each step the guarantees are checked. Then faults end, and the lineage
    has to come to its end or to a hold. The first violation ends the simulation. One at a time in a process: while it
    runs, its actors take what is random from its seed.

    Args:
        seed: chooses the setting and every turn.
        supersedes: whether somebody may supersede the job, as happens in about half of all seeds.
    """
    random = Random(seed)
    setting = draw_setting(random)
    if supersedes:
        setting = draw_supersessions(setting, Random(seed + 2))
    stage = Stage(random, setting)
    kernel = stage.kernel
    scheduler = MemoryScheduler(lambda: BEGIN + timedelta(seconds=kernel.now), setting.shape, setting.slots)
    truth = Truth(scheduler, MemoryStore("memory://root"))
    truth.clocks_agree = setting.skew <= scheduler.capabilities.clock_skew.total_seconds()
    referee = Referee(stage, truth)
    office = Office(referee, MemoryStore("memory://record"))
    world = World(referee, office)

    def call_back() -> None:
        """Have supervisors again where a finished lineage was superseded after the last ones had gone."""
        if setting.supersedes and truth.state.finished is None and world.is_deserted:
            for place in range(1, setting.supervisors + 1):
                world.add_supervisor(place, world.clock(), setting.root_visible)

    def goes_on() -> bool:
        """Perhaps supersede a finished lineage."""
        return setting.supersedes > 0.0 and office.supersede_finished("director", world.clock())

    def open_and_watch() -> None:
        _open(stage, truth, office, SkewedClock(kernel))
        for place in range(1, setting.supervisors + 1):
            sees_root = setting.root_visible and random.random() < 0.9
            world.add_supervisor(place, world.clock(), sees_root, random.choice((0.0, 0.0, 30.0)))
        for number in (1, 2):
            name, clock = f"person-{number}", world.clock()
            kernel.spawn(name, lambda name=name, clock=clock: office.look_in(name, clock))  # type: ignore[misc]
        site = world.clock()
        kernel.spawn("signal", lambda: office.signal("signal", site))
        kernel.spawn("cluster", world.turn)
        kernel.spawn("world", world.happen)
        while kernel.now < setting.chaos:
            if truth.state.finished is not None and not goes_on():
                break
            call_back()
            kernel.sleep(LOOK_EVERY / 4)
        world.calm_down()
        stage.note("faults are over")
        calm_since = kernel.now
        while not _settled(truth, kernel.now, calm_since):
            if kernel.now > calm_since + QUIET:
                stage.violate("g12_the_lineage_ends_or_holds", f"it is not settled {QUIET:.0f} s after the last fault")
                return
            call_back()
            kernel.sleep(LOOK_EVERY)
        _check_end(stage, truth)
        kernel.stop()

    with seeded(kernel, Random(seed + 1), setting.snapshot_every):
        kernel.spawn("director", open_and_watch)
        kernel.run()
    if kernel.failure is not None:
        actor, error = kernel.failure
        where = traceback.extract_tb(error.__traceback__)[-1]
        stage.violate("g0_nobody_fails", f"{actor.name}: {error!r} in {where.name}, line {where.lineno}")
        if not isinstance(error, Exception):
            raise error
    return Outcome(seed, tuple(stage.steps), tuple(stage.violations), stage.happened, _describe_end(truth))


def _open(stage: Stage, truth: Truth, office: Office, clock: SkewedClock) -> None:
    """Open the lineage, before anything can go wrong."""
    setting, capabilities = stage.setting, truth.scheduler.capabilities
    job = JobSpec.read({"store": {"root": "/runs"}, **setting.spec}, "the simulated job")
    stage.note(f"{setting}")
    stage.calm = True
    record, _ = office.record("director", clock)
    if setting.root_prepared:
        LineageRoot(truth.root).prepare(record.id(), LINEAGE)
    record.append(
        Opened(
            spec=job,
            plan=plan(job, capabilities, root_visible=setting.root_visible),
            identity=job.identity_digests(),
            owner="director",
            root="/runs",
            record_root="/runs",
            workdir="/",
            scheduler={"type": capabilities.scheduler},
            root_prepared=setting.root_prepared,
        )
    )
    stage.calm = False


def _settled(truth: Truth, now: float, calm_since: float) -> bool:
    """Whether nothing more is to come: finished or held, and every object that lands has landed and is over."""
    state = truth.state
    if state.finished is None and (state.hold is None or _stopping(truth)):
        return False
    if any(at > now - LOOK_EVERY for at in truth.landed.values()) and state.finished is None:
        return False
    if state.finished is not None:
        return True
    if now < calm_since + 3 * LOOK_EVERY:
        return False
    open_ones = [each for each in (*state.obligations, *state.submissions) if each.unsettled]
    # What nobody can account for stays open until a person answers for it.
    return all(truth.ambiguous.get(each.token, -QUIET) > now - 2 * LOOK_EVERY for each in open_ones)


def _stopping(truth: Truth) -> bool:
    """Whether a stop goes on behind an open hold."""
    stop, hold = truth.state.stop, truth.state.hold
    lost = hold is not None and hold.opened.token is not None
    return stop is not None and stop.intent == "abandon" and not lost


def _check_end(stage: Stage, truth: Truth) -> None:
    """What must hold once nothing more is to come."""
    state = truth.state
    for found in truth.scheduler.objects():
        token = found.ref.token
        excused = state.finished is not None and (truth.landed_late(token) or truth.a_person_accounts_for(token))
        if not found.is_over and found.ref not in truth.stopped and not excused:
            stage.violate("g13_nothing_is_left_running", f"{found.ref} is {found.state}, and nobody asked it to stop")
    for submission in (*state.obligations, *state.submissions):
        if submission.landing is Landing.LANDED and submission.live and state.finished is None:
            stage.violate("g5_every_obligation_is_settled", f"the end of submission {submission.n} is not recorded")
    visible = {publication.name for publication in LineageRoot(truth.root).publications()}
    for name in sorted(truth.returned - visible):
        stage.violate("g2_a_returned_publication_stays_visible", f"{name} is gone")


def _describe_end(truth: Truth) -> str:
    state = truth.state
    if state.finished is not None:
        return f"finished: {state.finished.outcome}"
    return f"held: {state.hold.opened.why}" if state.hold is not None else "open"
