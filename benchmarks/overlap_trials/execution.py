"""One execution: it begins, loads what its design gives it, and saves; and says in the log what it was told."""

from __future__ import annotations

from collections.abc import Callable

from overlap_trials.design import Design, Replaced, Setting, Unresumable
from overlap_trials.log import Log
from overlap_trials.moments import Moments
from overlap_trials.saves import Gone, Mark, Torn, read_files, write_files
from prefect_dispatch.format.names import new_nonce

SAVE_STEPS = 10
"""Steps from one save to the next."""


def execute(make: Callable[[Setting], Design], setting: Setting, saves: int, moments: Moments, log: Log) -> None:
    """Run one execution to its end.

    Args:
        make: makes the design.
        setting: what the execution is told.
        saves: how many saves it makes; 0 to do no more than to resume.
        moments: where it is stopped.
        log: what the judge reads.
    """
    epoch = setting.epoch.number
    design = make(setting)
    moments.watch()
    moments.enter(0)
    step = _resume(design, epoch, moments, log)
    if step is None:
        return
    for number in range(1, saves + 1):
        moments.enter(number)
        step += SAVE_STEPS
        if not _save(design, Mark(epoch, step, new_nonce()), moments, log):
            return
    log.say("ended", epoch=epoch, counts=moments.counts)


def _resume(design: Design, epoch: int, moments: Moments, log: Log) -> int | None:
    """Load what the design gives; returns the step to go on from, None where it cannot go on."""
    log.say("resuming", epoch=epoch)
    try:
        given = design.begin()
        mark = None if given is None else read_files(given[0], moments.pass_one)
    except Replaced as error:
        log.say("replaced", epoch=epoch, why=str(error))
        return None
    except Unresumable as error:
        log.say("unresumable", epoch=epoch, why=str(error))
        return None
    except (Torn, OSError) as error:
        log.say("torn", epoch=epoch, gone=isinstance(error, Gone), why=str(error))
        return None
    log.say("resumed", epoch=epoch, mark=None if mark is None else vars(mark))
    return 0 if given is None else given[1]


def _save(design: Design, mark: Mark, moments: Moments, log: Log) -> bool:
    """Write a save and have it committed; returns whether the program survived that."""
    place = design.place(mark.step)
    log.say("saving", mark=vars(mark))
    try:
        write_files(place, mark, moments.pass_one)
        design.commit(mark.step, lambda: log.say("committed", mark=vars(mark), place=str(place)))
    except OSError as error:
        log.say("save_failed", mark=vars(mark), why=f"{type(error).__name__}: {error}")
        return False
    return True
