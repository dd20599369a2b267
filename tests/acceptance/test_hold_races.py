"""Those who answer a hold, or wake its run, at the same time; and answers that the world has changed behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.facts import CarriedBy, Cessation, HoldLifted, LiftedBy, Resolution
from prefect_dispatch.supervisor import choices
from support.deployed import WAITS, patiently, poll


def test_a_persons_stop_in_the_form_beats_a_signal_and_any_number_may_wake_a_run(another):
    # given a job with a shared checkpoint that is held after a preemption, and one that has failed
    shared, sharing = another("shared")
    woken, waking = another("woken")
    first, second = sharing.start(WAITS, shared_checkpoint=True), waking.start()
    patiently((shared.folder / "begun-1").exists, "the program to begin")
    shared.preempt(shared.state().newest)
    sharing.held(first)
    waking.held(second)
    hold = shared.state().hold.opened
    assert hold.signal_may_lift and hold.cause is Cause.PREEMPTED
    # when a person stops the first in the form, and the site's word comes before anybody has read it
    assert sharing.resume(first, {"choice": "stop the job", "name": "ada"})[0] == "ACCEPT"
    record = shared.record()
    record.refresh()
    record.append(Cessation(hold=hold.hold, object=hold.object, answer="ceased"))
    record.append(HoldLifted(hold=hold.hold, lifted_by=LiftedBy.SIGNAL, resolution=Resolution.RUN_AGAIN))
    # and the second is answered twice in the form, on the command line, and by who wakes what was answered, at once
    woken.release()
    answer = {"choice": "run again", "name": "ada"}
    with ThreadPoolExecutor(4) as people:
        answered = [people.submit(waking.resume, second, answer) for _ in range(2)]
        commanded = people.submit(woken.run, "resume", "woken", "--run-again")
        polled = people.submit(poll, woken)
    # then the stop counts
    assert sharing.reaches(first, "Stopped", "Completed", "Suspended", "Failed").state.name == "Stopped"
    assert shared.state().finished.outcome == "stopped"
    assert [each.n for each in shared.state().submissions] == [1]
    lifts = [(each.lifted_by, each.resolution, each.who) for each in shared.facts("hold_lifted")]
    assert lifts == [("signal", "run_again", ""), ("person", "stop", "ada, in the Prefect UI")]
    # and each of those who were at it at once was told something true, and the job ran once more
    assert waking.reaches(second, "Completed", "Failed", "Suspended").state.name == "Completed"
    words = sorted(each.result()[0].replace("CONFLICT", "ABORT") for each in answered)
    assert words in (["ABORT", "ACCEPT"], ["ABORT", "ABORT"], ["ABORT", "REJECT"], ["REJECT", "REJECT"]), words
    assert commanded.result().returncode in (0, 1), commanded.result().stderr
    assert polled.result().returncode == 0, polled.result().stderr
    assert len(woken.facts("hold_lifted")) == 1
    assert [each.n for each in woken.state().submissions] == [1, 2]


def test_an_answer_whose_save_is_gone_is_asked_again_and_a_run_that_carries_nothing_any_more_is_retired(another):
    # given two held jobs
    gone, going = another("gone")
    stale, stalled = another("stale")
    first, second = going.start(), stalled.start()
    going.held(first)
    stalled.held(second)
    # when a save is chosen that has been taken away since the form was made
    (save,) = (gone.runs / "gone" / "pub").glob("*-00000000000000000001-*")
    save.unlink()
    assert going.resume(first, {"choice": "continue from g0n1r0 step 1"})[0] == "ACCEPT"
    # and the other job is carried by another run by now
    record = stale.record()
    record.refresh()
    record.append(CarriedBy(flow_run="another"))
    polled = poll(stale)
    # then the first is asked once more, and told why, and nothing was decided
    hold = gone.state().hold.opened.hold
    patiently(lambda: going.run(first).state.state_details.pause_key == f"hold-{hold}-2", "the second question")
    going.held(first)
    assert "that save is not published any more" in going.log(first)
    assert gone.facts("hold_lifted") == []
    assert going.read_input(first, "schema")["properties"]["choice"]["enum"][1:-2] == ["continue from g0n1r0 step 2"]
    # and the run of the second says that it was handed over; who answers on the command line is not hindered
    assert f"flow run {second} waits no more" in polled.stdout, polled.stdout + polled.stderr
    assert stalled.run(second).state.name == "HandedOver"
    assert stale.state().hold is not None
    # when they are answered
    choices.stop(stale.record(), who="ada")
    assert going.resume(first, {"choice": "stop the job"})[0] == "ACCEPT"
    assert going.reaches(first, "Stopped", "Suspended").state.name == "Stopped"
