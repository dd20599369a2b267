"""How long a job is waited for that was asked to end, and the accounting that lacks an end, by an injected clock."""

from __future__ import annotations

from datetime import timedelta

from prefect_dispatch.format.names import new_token
from prefect_dispatch.format.submission import Notice
from prefect_dispatch.model.observation import ObjectRef, ObjectState
from support.fake_slurm import accounted, queued

TOKEN = new_token()
JOB = ObjectRef(scheduler="slurm", id="7", token=TOKEN)
ASK, END = "--batch --signal=TERM 7", "7"
NOTICE = Notice(period=timedelta(minutes=5))


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_job_is_asked_once_and_cancelled_when_its_time_is_over(fake):
    # given a job that does not end when it is asked to
    clock = Clock()
    scheduler = fake.scheduler(clock=clock)
    fake.says("squeue", queued(7, TOKEN))
    # when it is stopped again and again, then it has its time, and no more
    for later, calls in ((0, [ASK]), (329, [ASK]), (2, [ASK, END])):
        clock.now += later
        await scheduler.stop(JOB, NOTICE)
        assert fake.calls("scancel") == calls


async def test_a_job_that_ended_and_was_run_again_is_asked_anew(fake):
    # given a job that ended when it was asked to
    clock = Clock()
    scheduler = fake.scheduler(clock=clock)
    fake.says("squeue", queued(7, TOKEN))
    await scheduler.stop(JOB, NOTICE)
    fake.says("squeue", queued(7, TOKEN, "FAILED"))
    assert (await scheduler.observe([JOB]))[JOB].state is ObjectState.ENDED
    # when somebody has it run again, and it is stopped much later
    clock.now += 10_000
    fake.says("squeue", queued(7, TOKEN, "RUNNING", restart=1))
    await scheduler.stop(JOB, NOTICE)
    # then
    assert fake.calls("scancel") == [ASK, ASK]


async def test_each_run_whose_end_the_accounting_lacks_is_waited_for_for_as_long(fake):
    # given a job that runs again, of whose run before the accounting never has the end
    clock = Clock()
    scheduler = fake.scheduler(clock=clock, lag=timedelta(minutes=2))
    fake.says("sacct", accounted(7, TOKEN, "RUNNING"))

    async def state() -> ObjectState:
        return (await scheduler.observe([JOB]))[JOB].state

    # when / then
    for restart in (1, 2):
        fake.says("squeue", queued(7, TOKEN, "RUNNING", restart=restart))
        for later, seen in ((0, ObjectState.ENDING), (119, ObjectState.ENDING), (2, ObjectState.RUNNING)):
            clock.now += later
            assert await state() is seen
