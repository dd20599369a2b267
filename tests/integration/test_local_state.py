"""The local scheduler's state folder: away for a while, another one, or with something in it that is not its own."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.errors import SchedulerError
from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.schedulers.local_state import describe_folder_refusal
from prefect_dispatch.testing.local_laboratory import COUNTED, OBEDIENT, STUBBORN, LocalLaboratory


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
    calls = [lambda: asked.stop(object, None), lambda: asked.preempt(object)]
    if left == "another state folder":
        seen = await laboratory.look(asked, object)
        assert seen.state is ObjectState.UNKNOWN and "bring it back" in seen.evidence
    else:
        calls.append(lambda: asked.observe([object]))
    for call in calls:
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


async def test_what_is_in_another_state_folder_hides_nothing_of_the_others(laboratory: LocalLaboratory) -> None:
    # given objects in two state folders, of which one took the place of the other
    first = await laboratory.scheduler().submit(laboratory.request(*STUBBORN))
    await laboratory.ready()
    gone = away(laboratory)
    scheduler = laboratory.scheduler()
    second = await scheduler.submit(laboratory.request(*COUNTED))
    await laboratory.until_state(scheduler, second, ObjectState.ENDED)

    # when both are asked about
    seen = await laboratory.scheduler().observe([first, second])

    # then one is answered for, and the other one is neither gone nor an error, nor advised to be swapped with it
    assert {object: answer.state for object, answer in seen.items()} == {
        first: ObjectState.UNKNOWN,
        second: ObjectState.ENDED,
    }
    assert str(laboratory.state_folder) in seen[first].evidence and "write" not in seen[first].evidence

    # and the other way round
    laboratory.state_folder.rename(laboratory.folder / "second")
    gone.rename(laboratory.state_folder)
    seen = await laboratory.scheduler().observe([first, second])
    assert (seen[first].state, seen[second].state) == (ObjectState.RUNNING, ObjectState.UNKNOWN)


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

    # when a person does what the errors say
    laboratory.state_folder.mkdir()
    (laboratory.state_folder / "id.json").write_bytes(identity)
    for part in ("objects", "queue"):
        with pytest.raises(SchedulerError, match=f"{part} is not there.*make an empty folder there"):
            await laboratory.scheduler().observe([object])
        (laboratory.state_folder / part).mkdir()

    # then it is not there any more, and the next one runs
    assert await laboratory.scheduler().observe([object]) == {}
    other = await scheduler.submit(laboratory.request(*COUNTED))
    await laboratory.until_state(scheduler, other, ObjectState.ENDED)
    assert object not in await scheduler.observe([object, other])


@pytest.mark.parametrize("part", ["objects", "queue"])
@pytest.mark.parametrize("fresh", [False, True], ids=["who saw it", "who comes later"])
async def test_a_part_of_the_state_folder_that_is_away_tells_nothing(
    laboratory: LocalLaboratory, part: str, fresh: bool
) -> None:
    # given a running job
    scheduler = laboratory.scheduler()
    object = await scheduler.submit(laboratory.request(*STUBBORN))
    await laboratory.ready()

    # when the objects or the queue are moved away, and the folder's id stays
    place = laboratory.state_folder / part
    place.rename(laboratory.folder / "away")
    asked = laboratory.scheduler() if fresh else scheduler

    # then nobody is told that it is gone or was stopped, nothing is started beside it, and none is made anew
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: asked.observe([object]),
        lambda: asked.find(object.token),
        lambda: asked.stop(object, None),
        lambda: asked.stop(object, Notice()),
        lambda: asked.submit(laboratory.request(*COUNTED)),
    ]
    for call in calls:
        with pytest.raises(SchedulerError, match="bring it back") as error:
            await call()
        assert str(place) in str(error.value)
    assert not place.exists() and scheduler.processes(object)

    # and when it is back, all is as it was
    (laboratory.folder / "away").rename(place)
    assert (await laboratory.look(asked, object)).state is ObjectState.RUNNING


async def test_an_object_whose_entry_of_the_queue_is_lost_is_started_and_seen_to_end(
    laboratory: LocalLaboratory,
) -> None:
    # given a job that runs and one that waits for its slot
    scheduler = laboratory.scheduler()
    first = await scheduler.submit(laboratory.request(*OBEDIENT))
    second = await scheduler.submit(laboratory.request(*COUNTED))
    await laboratory.ready()

    # when both lose their entries, and the first one ends
    for entry in (laboratory.state_folder / "queue").iterdir():
        entry.unlink()
    os.kill(laboratory.launcher(first), signal.SIGTERM)

    # then that is seen, and the other one runs, once; what may be secret is gone
    await laboratory.until_state(scheduler, first, ObjectState.ENDED)
    await laboratory.until_state(scheduler, second, ObjectState.ENDED)
    assert laboratory.runs() == [f"{second.token}-0"]
    assert not any(laboratory.records(object).environment.exists() for object in (first, second))
    assert not list((laboratory.state_folder / "queue").iterdir())


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


def a_file(folder: Path) -> None:
    folder.touch()


def below_a_file(folder: Path) -> None:
    folder.parent.touch()


def a_link_that_leads_nowhere(folder: Path) -> None:
    folder.symlink_to("nowhere")


def a_part_that_is_a_file(folder: Path) -> None:
    folder.mkdir()
    (folder / "objects").touch()


@pytest.mark.parametrize("put", [a_file, below_a_file, a_link_that_leads_nowhere, a_part_that_is_a_file])
def test_what_is_in_the_way_of_a_state_folder_is_named(tmp_path: Path, put: Callable[[Path], None]) -> None:
    # given
    name = "in-the-way/state" if put is below_a_file else "in-the-way"
    put(tmp_path / name)
    # when
    refusal = describe_folder_refusal(tmp_path / name)
    # then
    assert refusal is not None
    assert refusal.startswith(f"scheduler.state_folder {str(tmp_path / name)!r} cannot be used: {tmp_path}/in-the-way")
    assert "is not a folder; name another one" in refusal


def test_a_state_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    # given a folder of somebody else's
    folder = tmp_path / "state"
    folder.mkdir(mode=0o555)
    user = os.getuid()
    # when asked for another user than root, who may write everywhere: access(2) goes by the real one
    os.setresuid(user or 65534, -1, -1)
    try:
        refusal = describe_folder_refusal(folder / "below")
    finally:
        os.setresuid(user, -1, -1)
    # then
    assert refusal is not None and f"{folder} may not be written" in refusal


@pytest.mark.parametrize("name", ["", "new", "new/below"])
def test_a_folder_that_is_there_or_can_be_made_is_taken(tmp_path: Path, name: str) -> None:
    assert describe_folder_refusal(tmp_path / name) is None
    assert list(tmp_path.iterdir()) == []


async def test_an_end_that_comes_while_it_is_asked_about_leaves_no_entry_and_no_secret(laboratory, monkeypatch):
    # given a job that has exited, and nobody who moved the queue on since
    scheduler = laboratory.scheduler()
    object = await scheduler.submit(laboratory.request("true"))
    records = laboratory.records(object)
    await laboratory.until(records.exit.exists, "it exited")
    monkeypatch.setattr(scheduler, "_advance", lambda children: None)
    # when its end is told, after which nobody may ask again
    await laboratory.until_state(scheduler, object, ObjectState.ENDED)
    # then
    assert list((laboratory.state_folder / "queue").iterdir()) == []
    assert not records.environment.exists()
