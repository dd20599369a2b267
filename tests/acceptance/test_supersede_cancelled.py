"""Flow runs that superseded a job, and are cancelled or killed: they carry its new generation."""

from __future__ import annotations

from support.deployed import WORKING, patiently, processes_of, reconcile
from support.marked_processes import kill_each

# Tells of which generation it is, before anything else.
TELLS = (
    "import os, pathlib\npathlib.Path(f\"generation-{int(os.environ['DISPATCH_EPOCH']) // 10**12}\").touch()\n"
    + WORKING
)


def superseded(operator, deployed) -> tuple[str, str]:
    """A job that runs in its second generation. Returns the runs that carried the first, and carry the second."""
    old = deployed.start(TELLS)
    patiently((operator.folder / "generation-0").exists, "the program to begin")
    new = deployed.supersede("latest", TELLS)
    deployed.reaches(old, "Superseded")
    patiently((operator.folder / "generation-1").exists, "the program of the second generation")
    assert (operator.state().newest.generation, operator.state().carried_by) == (1, new)
    return old, new


def alive_of(run: str) -> list[int]:
    """The processes of a run, of which there are some."""
    processes = list(processes_of(run))
    assert processes, f"no process of flow run {run}"
    return processes


def test_a_run_that_superseded_is_stopped_or_taken_over_like_any_other(another, worker):
    # given two jobs in their second generation, each carried by the run that superseded the first
    stopped, stopping = another("stopped")
    taken, taking = another("taken")
    old, first = superseded(stopped, stopping)
    _, second = superseded(taken, taking)
    # when the process of one is killed, and Prefect is told by its worker
    kill_each(alive_of(second))
    taking.reaches(second, "Crashed")
    # and of the other nobody is left, when the run is cancelled, and the one before it too
    worker.kill()
    kill_each(alive_of(first))
    patiently(lambda: not processes_of(first), "no process of the run")
    stopping.cancel(first)
    looked = reconcile(stopped, str(stopped.runs), str(taken.runs))
    # then the one job is stopped in its second generation
    assert stopped.state().finished.outcome == "stopped", looked.stdout + looked.stderr
    assert stopped.state().generation == 1
    assert stopping.run(old).state.name == "Superseded"
    # and the other has a run of flow supervise that carries on what the superseding run had opened
    assert "takes taken over" in looked.stdout, looked.stdout + looked.stderr
    worker.start()
    taken.release()
    patiently(lambda: taken.state().finished, "the end of the job that was taken over")
    state = taken.state()
    assert (state.generation, state.finished.outcome, len(state.submissions)) == (1, "succeeded", 1)
    adopter = taking.reaches(state.carried_by, "Completed")
    assert (adopter.parameters.keys(), "generation:1" in adopter.tags) == ({"job"}, True)
    assert [fact.parent for fact in taken.facts("opened")] == [None, 0]
