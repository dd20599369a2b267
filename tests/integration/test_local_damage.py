"""Records of the local scheduler that a person or a broken disk has damaged: each is named, and nothing hangs on it."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.observation import Exit, ObjectState
from prefect_dispatch.schedulers.local_records import create_once, stamp
from prefect_dispatch.testing.local_laboratory import COUNTED, OBEDIENT, STUBBORN, LocalLaboratory

DAMAGES = ["", "{", "[]"]


@pytest.fixture
async def laboratory(tmp_path: Path) -> AsyncIterator[LocalLaboratory]:
    laboratory = LocalLaboratory(tmp_path)
    yield laboratory
    await laboratory.close()


@pytest.mark.parametrize("damage", [*DAMAGES, None])
async def test_an_end_does_not_depend_on_the_launch_record(laboratory: LocalLaboratory, damage: str | None) -> None:
    # given a running job whose launch record is damaged or gone
    scheduler = laboratory.scheduler()
    object = await scheduler.submit(laboratory.request(*OBEDIENT))
    await laboratory.ready()
    launch = laboratory.records(object).launch
    launch.unlink() if damage is None else launch.write_text(damage)

    # when it ends, then that is seen
    assert (await laboratory.look(scheduler, object)).state is ObjectState.RUNNING
    os.kill(laboratory.launcher(object), signal.SIGTERM)
    end = (await laboratory.until_state(scheduler, object, ObjectState.ENDED)).ended[0]
    assert end.exit == Exit(code=0)


@pytest.mark.parametrize("damage", [*DAMAGES, '{"at": 1}'])
async def test_an_end_that_cannot_be_read_is_unknown_and_not_running(laboratory: LocalLaboratory, damage: str) -> None:
    # given a job whose launcher is gone, and whose record of its exit is damaged
    scheduler = laboratory.scheduler()
    object = await scheduler.submit(laboratory.request("true"))
    records = laboratory.records(object)
    await laboratory.until(records.exit.exists, "it exited")
    records.exit.write_text(damage)

    # then it is unknown, with the name, and not said to run for ever
    observation = await laboratory.look(scheduler, object)
    assert observation.state is ObjectState.UNKNOWN
    assert str(records.path) in observation.evidence and "put back what it held" in observation.evidence


@pytest.mark.parametrize("damage", [*DAMAGES, '{"at": 1}'])
async def test_a_start_of_which_cannot_be_told_when_it_began_is_unknown(
    laboratory: LocalLaboratory, damage: str
) -> None:
    # given a job that waits, and a launch record of it that is damaged
    scheduler = laboratory.scheduler()
    await scheduler.submit(laboratory.request(*STUBBORN))
    object = await scheduler.submit(laboratory.request(*COUNTED))
    records = laboratory.records(object)
    create_once(records.launch, stamp())
    records.launch.write_text(damage)

    # then it is not said to be started for ever
    observation = await laboratory.look(laboratory.scheduler(launch_bound=timedelta(0)), object)
    assert observation.state is ObjectState.UNKNOWN and str(records.path) in observation.evidence


@pytest.mark.parametrize("damage", [*DAMAGES, '{"pid": 1}', '{"pid": 1, "boot": 1}'])
async def test_a_launcher_that_cannot_be_told_is_an_error_that_names_it(
    laboratory: LocalLaboratory, damage: str
) -> None:
    # given a running job whose record of its launcher is damaged
    scheduler = laboratory.scheduler()
    object = await scheduler.submit(laboratory.request(*OBEDIENT))
    await laboratory.ready()
    laboratory.records(object).process.write_text(damage)

    # when it is asked to save and exit, then whoever asks is told why it cannot be
    with pytest.raises(SchedulerError, match="put back what it held") as error:
        await scheduler.stop(object, Notice())
    assert str(laboratory.records(object).path) in str(error.value)
    assert not laboratory.records(object).ended.exists()


@pytest.mark.parametrize("damage", [*DAMAGES, "{}", '{"id": 5}'])
async def test_an_id_that_cannot_be_read_is_an_error_that_names_it(laboratory: LocalLaboratory, damage: str) -> None:
    # given a state folder whose id is damaged
    scheduler = laboratory.scheduler()
    object = await scheduler.submit(laboratory.request("true"))
    await laboratory.until_state(scheduler, object, ObjectState.ENDED)
    identity = laboratory.state_folder / "id.json"
    identity.write_text(damage)

    # then nobody is told anything of what is in it, nor is anything submitted
    for asked in (scheduler, laboratory.scheduler()):
        for call in (asked.observe([object]), asked.find(object.token), asked.submit(laboratory.request(*COUNTED))):
            with pytest.raises(SchedulerError, match="put back what it held") as error:
                await call
            assert str(identity) in str(error.value)
