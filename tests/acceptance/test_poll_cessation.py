"""Flow ``poll_cessation`` by itself: what it says, what it notes, and what becomes of its own runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.objects import FlowRun

from prefect_dispatch.blocks.command_signal import CommandSignal
from prefect_dispatch.flows.poll_cessation import NAME
from prefect_dispatch.supervisor.polls import POLL_CESSATION, last_poll
from prefect_dispatch.tasks.held_runs import HeldRuns, delete_old_polls
from support.deployed import WAITS, patiently, poll


async def polls() -> list[FlowRun]:
    async with get_client() as client:
        return await client.read_flow_runs(flow_filter=FlowFilter(name=FlowFilterName(any_=[NAME])))


async def delete(before: datetime) -> int:
    async with get_client() as client:
        return await delete_old_polls(client, NAME, before)


def test_a_store_that_cannot_be_used_is_told_and_old_runs_that_went_well_are_deleted(operator):
    # given
    operator.runs.mkdir(exist_ok=True)
    # when
    bad = poll(operator, "nowhere", "checkpoint-store/nobody", operator.root)
    noted_of_bad = last_poll(operator.root, POLL_CESSATION)
    good = poll(operator)
    young = operator.ask(lambda: delete(datetime.now(UTC) - timedelta(days=1)))
    old = operator.ask(lambda: delete(datetime.now(UTC) + timedelta(minutes=1)))
    # then
    assert "not done: store 'nowhere' is neither a block" in bad.stdout, bad.stderr
    assert "'checkpoint-store/nobody': Prefect has no block of that name" in bad.stdout
    assert noted_of_bad is None
    assert good.stdout.startswith("0 holds in 1 stores"), good.stderr
    assert last_poll(operator.root, POLL_CESSATION) is not None
    assert young == 0
    assert old >= 1
    left = operator.ask(polls)
    # One that a deployment of another test has scheduled may be there too.
    assert {run.state.name for run in left if run.state.is_final()} == {"Failed"}


def test_the_sites_word_lifts_a_hold_and_its_run_goes_on_and_no_other_word_does(operator, deployed):
    # given a job with a shared checkpoint that is held after a preemption, and the plan that said so beforehand
    run = deployed.start(WAITS, shared_checkpoint=True)
    patiently((operator.folder / "begun-1").exists, "the program to begin")
    operator.preempt(operator.state().newest)
    deployed.held(run)
    hold = operator.state().hold.opened
    assert abs(hold.until - operator.state().hold.at - timedelta(hours=24)) < timedelta(minutes=1)
    # when the site's own command says that it runs, or nothing plain
    for name, word in (("busy", "running"), ("vague", "maybe")):
        operator.ask(lambda name=name, word=word: save_signal(name, word))
        polled = poll(operator, ask=f"command-signal/{name}")
        assert polled.stdout.strip() == "1 holds in 1 stores", polled.stdout + polled.stderr
    # then that is in the record, and the hold stays
    assert [each.answer for each in operator.facts("cessation")] == ["running", "unknown"]
    assert operator.state().hold.opened.hold == hold.hold
    # when the local signal finds nothing of it
    operator.release()
    patiently(lambda: "is lifted by signal" in poll(operator).stdout, "the lift")
    # then the run goes on without anybody's answer
    ended = deployed.reaches(run, "Completed", "Failed", "Stopped")
    assert ended.state.name == "Completed", ended.state.message
    (lift,) = operator.facts("hold_lifted")
    assert (lift.hold, lift.lifted_by, lift.resolution) == (hold.hold, "signal", "run_again")
    assert [each.n for each in operator.state().submissions] == [1, 2]


async def save_signal(name: str, word: str) -> None:
    await CommandSignal(command=["echo", word]).save(name, overwrite=True)


def test_a_run_that_was_killed_before_it_had_a_form_is_woken_and_asks_again(operator, deployed):
    # given a suspended run whose process and worker were killed between the pause and the form, a while ago
    run = deployed.start()
    held = deployed.held(run)
    deployed.ask("DELETE", f"/flow_runs/{run}/input/{held.state.state_details.run_input_keyset['schema']}")
    assert deployed.resume(run, {"choice": "stop the job"}) == ("REJECT", "Run input schema not found.")
    state = held.state.model_copy(update={"timestamp": held.state.timestamp - timedelta(minutes=1)})
    waiting = HeldRuns((held.model_copy(update={"state": state}),), ())
    troubles: list[str] = []

    async def settle() -> list[str]:
        async with get_client() as client:
            return await waiting.settle(client, lambda lineage: [operator.record()], troubles)

    # when
    told = operator.ask(settle)
    # then
    assert told == ["digits is resumed: its form was missing; it asks again"]
    assert troubles == []
    hold = operator.state().hold.opened.hold
    patiently(lambda: deployed.run(run).state.state_details.pause_key == f"hold-{hold}-2", "the second question")
    deployed.held(run)
    assert deployed.resume(run, {"choice": "stop the job"})[0] == "ACCEPT"
    assert deployed.reaches(run, "Stopped", "Failed").state.name == "Stopped"
    assert len(operator.facts("hold_opened")) == 1
