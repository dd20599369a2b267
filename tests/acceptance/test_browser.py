"""The Prefect UI in a real browser: a job is started from its form, a held one answered, one suspended and cancelled.

With ``DISPATCH_TESTS_PICTURES=docs/pictures`` the pictures of the documentation are made anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prefect.client.orchestration import get_client

from prefect_dispatch.blocks import CheckpointStore, LocalScheduler
from support.browser import Person, field_of, opened, why_not
from support.deployed import DEPLOYMENT, POOL, WORKING, patiently

pytestmark = pytest.mark.timeout(1200)
MODAL = "//*[contains(concat(' ', @class, ' '), ' p-modal ')]"

# Saves a step each time; its first execution works until it is taken away, the next one ends.
TRAINING = """
import os, pathlib, time
source, folder = os.environ["DISPATCH_RESUME_FROM"], pathlib.Path(os.environ["DISPATCH_EXEC_DIR"])
step = int(pathlib.Path(source, ".complete").read_text()) if source else 0
pathlib.Path("resumed" if source else "begun").touch()
last = step + 5
while step < last or not source:
    time.sleep(0.3)
    step += 1
    save = folder / f"step-{step}"
    save.mkdir()
    (save / ".complete").write_text(str(step))
    print(f"step {step}: loss {1 / step:.3f}", flush=True)
print("trained")
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with opened(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def person(driver: Any, prefect_api: str) -> Person:
    return Person(driver, prefect_api)


@pytest.fixture
def default_blocks(operator) -> Iterator[None]:
    """The blocks that a job means which names none, as ``up`` makes them."""
    blocks: list[Any] = [
        CheckpointStore(root=operator.root),
        LocalScheduler(state_folder=str(operator.folder / "state")),
    ]

    async def make() -> None:
        for block in blocks:
            await block.asave("default", overwrite=True)

    async def delete() -> None:
        async with get_client() as client:
            for block in blocks:
                document = await client.read_block_document_by_name("default", block.get_block_type_slug())
                await client.delete_block_document(document.id)

    operator.ask(make)
    yield
    operator.ask(delete)


def test_a_job_is_started_from_the_form_and_its_history_is_seen(operator, deployed, person, default_blocks):
    # given a person who knows nothing but the program
    (operator.folder / "program.py").write_text(TRAINING)
    deployment = deployed.ask("GET", f"/deployments/name/supervise/{DEPLOYMENT}")["id"]
    person.open(f"/deployments/deployment/{deployment}/run")
    person.fill("Lineage", operator.lineage)
    for number, word in enumerate(("python", "program.py"), start=1):
        person.press("Add item", within=field_of("Command"))
        person.type_into(f"({field_of('Command')}//textarea)[{number}]", word)
    person.picture("start-form")
    person.fill("Workdir", str(operator.folder))
    person.press("marker", within=field_of("Saves"))
    # when they start it, and the machine is taken away from it once
    person.leave_by("Submit")
    patiently(lambda: (operator.folder / "begun").exists(), "the program that was started from the form")
    (running,) = operator.state().submissions
    patiently(lambda: len(operator.publications()) >= 3, "its saves")
    operator.preempt(running)
    (run,) = operator.carriers()
    deployed.reaches(run, "Completed", "Failed", "Suspended")
    # then its run shows what was planned, each try, and when each of them wrote what
    assert deployed.run(run).state.name == "Completed", deployed.run(run).state.message
    person.open(f"/runs/flow-run/{run}")
    person.see(f"supervise-{operator.lineage}", "Completed", f"lineage:{operator.lineage}")
    # Prefect draws what is in the window, and only that.
    person.resize(height=2000)
    person.press("Artifacts")
    person.see(f"plan-{operator.lineage}", f"execution-{operator.lineage}", f"timeline-{operator.lineage}")
    (plan,) = operator.artifacts(run)[f"plan-{operator.lineage}"]
    person.open(f"/artifacts/artifact/{plan.id}")
    person.see("preempted", "requeue")
    first, second = operator.artifacts(run)[f"execution-{operator.lineage}"][-2:]
    person.open(f"/artifacts/artifact/{first.id}")
    person.see("g0n1r0", "preempted", "step 3: loss 0.333")
    person.open(f"/artifacts/artifact/{second.id}")
    person.see("g0n2r0", "completed", "loss 0.", "trained")
    timeline = operator.artifacts(run)[f"timeline-{operator.lineage}"][-1]
    person.open(f"/artifacts/artifact/{timeline.id}")
    person.resize(width=1600)
    picture = person.find("//img[starts-with(@src, 'data:image/svg+xml')]")
    assert picture.size["width"] > 300
    person.picture("timeline", of="//img[starts-with(@src, 'data:image/svg+xml')]")


def test_a_held_run_is_found_read_and_resumed_with_its_form(operator, deployed, person):
    # given a job that is held among other runs
    run = deployed.start()
    deployed.held(run)
    operator.release()
    # when a person looks for what waits, by the tag alone
    person.open("/runs?tag=held")
    person.see("digits: held, failed", "lineage:digits", "Suspended", POOL)
    person.find("//*[normalize-space()='supervise']")
    person.picture("held-list")
    person.press("digits: held, failed")
    person.resize(height=1400)
    person.see("Resume", "Suspended")
    person.press("Resume")
    # then the form says why
    person.see("is held: failed: exit 7", "g0n1r0 as failed: exit 7", "asks a person after failed")
    person.picture("held-form", of=f"{MODAL}//*[contains(@class, 'p-modal__card')]")
    assert operator.facts("hold_lifted") == []
    # and what is chosen is what happens
    person.choose("What is to happen", "run again", within=MODAL)
    person.fill("Note for the record", "the disk is back", within=MODAL)
    person.fill("Your name, for the record", "ada", within=MODAL)
    person.send("Submit", MODAL)
    assert deployed.reaches(run, "Completed", "Failed").state.name == "Completed"
    (lifted,) = operator.facts("hold_lifted")
    assert (lifted.resolution, lifted.note, lifted.who) == ("run_again", "the disk is back", "ada, in the Prefect UI")
    person.see("supervise-digits", "Completed")


def test_a_run_is_suspended_resumed_and_cancelled_by_its_buttons(operator, deployed, person):
    # given a job that works
    run = deployed.start(WORKING)
    patiently(lambda: (operator.folder / "begun-0").exists(), "the program")
    person.open(f"/runs/flow-run/{run}")
    person.see("Running")
    # when its run is suspended
    person.press("Suspend")
    person.send("Submit", MODAL)
    # then the job saves, exits and is held
    patiently(lambda: operator.state().hold is not None, "the hold that a suspension leads to")
    assert [each.step for each in operator.publications()] == [7]
    patiently(lambda: "held" in deployed.run(run).tags, "the tag of held runs")
    # when it is resumed, it goes on from that save
    person.press("Resume")
    person.send("Submit", MODAL)
    patiently(lambda: (operator.folder / "begun-7").exists(), "the program, from its save")
    # and cancelled, it is stopped
    person.open(f"/runs/flow-run/{run}")
    person.see("Running")
    person.press("Cancel")
    person.send("Confirm", MODAL)
    assert deployed.reaches(run, "Cancelled", "Stopped").state.type == "CANCELLED"
    patiently(lambda: operator.state().finished is not None, "the end of the job")
    assert operator.state().finished.outcome == "stopped"
