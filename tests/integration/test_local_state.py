"""The local scheduler's state folder: away for a while, another one, or with something in it that is not its own."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.format.names import new_token
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.testing.local_laboratory import COUNTED, STUBBORN, LocalLaboratory


@pytest.fixture
async def laboratory(tmp_path: Path) -> AsyncIterator[LocalLaboratory]:
    laboratory = LocalLaboratory(tmp_path)
    yield laboratory
    await laboratory.close()


def away(laboratory: LocalLaboratory) -> Path:
    """Take the state folder away, as an unmount does."""
    return laboratory.state_folder.rename(laboratory.folder / "away")


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "another state folder"])
@pytest.mark.parametrize("fresh", [False, True], ids=["who saw it", "who comes later"])
async def test_a_state_folder_that_is_away_tells_nothing_of_its_objects(
    laboratory: LocalLaboratory, left: str, fresh: bool
) -> None:
    # given a running job
    scheduler = laboratory.scheduler()
    object = await scheduler.submit(laboratory.request(*STUBBORN))
    await laboratory.ready()

    # when the state folder is away, and something else may be in its place
    gone = away(laboratory)
    if left == "an empty folder":
        laboratory.state_folder.mkdir()
    elif left == "another state folder":
        await laboratory.scheduler().submit(laboratory.request("true"))
    asked = laboratory.scheduler() if fresh else scheduler

    # then nobody is told that the object is gone, nor that it was stopped, and nothing is made
    before = sorted(laboratory.folder.glob("state/*"))
    for call in (lambda: asked.observe([object]), lambda: asked.stop(object, None), lambda: asked.preempt(object)):
        with pytest.raises(SchedulerError, match="bring it back") as error:
            await call()
        assert str(laboratory.state_folder) in str(error.value)
    assert sorted(laboratory.folder.glob("state/*")) == before

    # and when it is back, all is as it was
    if laboratory.state_folder.exists():
        laboratory.state_folder.rename(laboratory.folder / "second")
    gone.rename(laboratory.state_folder)
    assert (await laboratory.look(laboratory.scheduler(), object)).state is ObjectState.RUNNING
    assert (await laboratory.look(scheduler, object)).state is ObjectState.RUNNING


async def test_who_saw_the_state_folder_neither_finds_nor_submits_while_it_is_away(laboratory: LocalLaboratory) -> None:
    # given a process that has seen it
    scheduler = laboratory.scheduler()
    object = await scheduler.submit(laboratory.request(*COUNTED))
    await laboratory.until_state(scheduler, object, ObjectState.ENDED)

    # when it is away
    away(laboratory)

    # then a token is not said to be unknown, and no second folder is made
    with pytest.raises(SchedulerError, match="bring it back"):
        await scheduler.find(object.token)
    with pytest.raises(SchedulerError, match="bring it back"):
        await scheduler.submit(laboratory.request(*COUNTED))
    assert not laboratory.state_folder.exists()


async def test_only_a_submit_makes_the_state_folder(laboratory: LocalLaboratory) -> None:
    # given none
    scheduler = laboratory.scheduler()

    # then who only asks makes none
    assert await scheduler.find(new_token()) is None
    assert await scheduler.observe([]) == {}
    assert not laboratory.state_folder.exists()


async def test_a_state_folder_that_is_lost_for_good_can_be_given_up(laboratory: LocalLaboratory) -> None:
    # given an object whose folder is lost
    scheduler = laboratory.scheduler()
    object = await scheduler.submit(laboratory.request(*COUNTED))
    await laboratory.until_state(scheduler, object, ObjectState.ENDED)
    identity = (laboratory.state_folder / "id.json").read_bytes()
    shutil.rmtree(laboratory.state_folder)

    # when a person does what the error says
    laboratory.state_folder.mkdir()
    (laboratory.state_folder / "id.json").write_bytes(identity)

    # then it is not there any more, and the next one runs
    assert await laboratory.scheduler().observe([object]) == {}
    other = await scheduler.submit(laboratory.request(*COUNTED))
    await laboratory.until_state(scheduler, other, ObjectState.ENDED)
    assert object not in await scheduler.observe([object, other])


@pytest.mark.parametrize("name", [".swp", "1-x", "notes.txt", "99999999999999999999-aaaaaaaaaaaaaaaa", "000000000001-"])
async def test_what_is_no_entry_of_the_queue_is_named(laboratory: LocalLaboratory, name: str) -> None:
    # given a job that waits, and a file that no scheduler put into the queue
    scheduler = laboratory.scheduler()
    first = await scheduler.submit(laboratory.request(*COUNTED))
    stranger = laboratory.state_folder / "queue" / name
    stranger.touch()

    # then each call names it and removes nothing
    for call in (
        lambda: scheduler.observe([first]),
        lambda: scheduler.find(first.token),
        lambda: scheduler.submit(laboratory.request(*COUNTED)),
    ):
        with pytest.raises(SchedulerError, match="move it away") as error:
            await call()
        assert str(stranger) in str(error.value)
    assert stranger.exists()

    # and once it is moved away, all goes on
    stranger.unlink()
    await laboratory.until_state(scheduler, first, ObjectState.ENDED)


async def test_a_submit_that_comes_after_it_was_given_up_makes_nothing(laboratory: LocalLaboratory) -> None:
    # given a request whose time is over when the lock is held
    scheduler = laboratory.scheduler()
    request = laboratory.request(*COUNTED)
    late = type(request)(**{**vars(request), "in_time": lambda: False})

    # when it is submitted
    with pytest.raises(SchedulerError, match="given up"):
        await scheduler.submit(late)

    # then there is none
    assert await scheduler.find(request.token) is None
