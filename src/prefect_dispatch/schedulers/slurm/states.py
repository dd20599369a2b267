"""Slurm's words for the state of a job, and what each means here.

The words are those of Slurm 22.05 to 25.11: squeue(1), sacct(1), and the page "Job State Codes" of its documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from prefect_dispatch.model.causes import Cause
from prefect_dispatch.model.observation import ObjectState

_CANCELLED_BY = re.compile(r"CANCELLED by (\d+)\Z")


@dataclass(frozen=True)
class Meaning:
    """What a word means.

    Attributes:
        state: the state of the object, or for an accounted run, of that run.
        cause: why it ended; None where the exit tells, or where it has not ended.
        why: the reason for this reading, for people.
    """

    state: ObjectState
    why: str
    cause: Cause | None = None


_QUEUED, _RUNNING, _ENDING = ObjectState.QUEUED, ObjectState.RUNNING, ObjectState.ENDING
_ENDED, _UNKNOWN = ObjectState.ENDED, ObjectState.UNKNOWN

MEANINGS: Mapping[str, Meaning] = {
    "PENDING": Meaning(_QUEUED, "it waits for its turn"),
    "CONFIGURING": Meaning(_QUEUED, "its nodes are booting; nothing of it runs yet"),
    "POWER_UP_NODE": Meaning(_QUEUED, "its nodes are being switched on; nothing of it runs yet"),
    "EXPEDITING": Meaning(_QUEUED, "it is to run again before all others"),
    "REQUEUE_HOLD": Meaning(_QUEUED, "it is to run again once somebody releases it"),
    "SPECIAL_EXIT": Meaning(_QUEUED, "it is to run again once somebody releases it"),
    "RESV_DEL_HOLD": Meaning(_QUEUED, "its reservation was deleted, and it waits to be released"),
    "REQUEUE_FED": Meaning(_QUEUED, "another cluster of the federation hands it back"),
    "RUNNING": Meaning(_RUNNING, "it runs"),
    "SUSPENDED": Meaning(_RUNNING, "its processes stand still and are there"),
    "STOPPED": Meaning(_RUNNING, "its processes stand still and keep their CPUs"),
    "SIGNALING": Meaning(_RUNNING, "a signal is on its way to it"),
    "RESIZING": Meaning(_RUNNING, "its size changes while it runs"),
    "COMPLETING": Meaning(_ENDING, "it is being ended, and its processes may live; its count may be the next run's"),
    "STAGE_OUT": Meaning(_ENDING, "its files are being taken off a burst buffer"),
    "UPDATE_DB": Meaning(_ENDING, "its end is being written down"),
    "COMPLETED": Meaning(_ENDED, "the batch script exited 0; whether the program was done, its exit and the root tell"),
    "FAILED": Meaning(_ENDED, "the exit tells"),
    "CANCELLED": Meaning(_ENDED, "a person, an admin or Slurm itself stopped it", Cause.STOPPED),
    "TIMEOUT": Meaning(_ENDED, "its time limit passed", Cause.TIMED_OUT),
    "DEADLINE": Meaning(_ENDED, "it cannot end before the time of its option deadline", Cause.DEADLINE),
    "NODE_FAIL": Meaning(_ENDED, "a node failed or was cut off", Cause.NODE_LOST),
    "PREEMPTED": Meaning(_ENDED, "another job took its place", Cause.PREEMPTED),
    "REQUEUED": Meaning(_ENDED, "this run was ended so that it runs again", Cause.PREEMPTED),
    "OUT_OF_MEMORY": Meaning(_ENDED, "it used more memory than it may", Cause.OUT_OF_MEMORY),
    "BOOT_FAIL": Meaning(_ENDED, "its nodes did not boot", Cause.LAUNCH_FAILED),
    "LAUNCH_FAILED": Meaning(_ENDED, "it could not be started on its nodes", Cause.LAUNCH_FAILED),
    "RECONFIG_FAIL": Meaning(_ENDED, "its nodes could not be set up", Cause.LAUNCH_FAILED),
    "REVOKED": Meaning(_UNKNOWN, "another cluster of the federation runs it, and cannot be asked here"),
}
"""By word. REQUEUED is said of a run that is over; what comes next has a word of its own."""


def word_of(text: str) -> str:
    """The word in what Slurm prints as a state: without ``by UID``, and a word that was cut off made whole.

    Returns:
        The word; the text itself where no word, or more than one, begins like that.
    """
    text = text.strip()
    if _CANCELLED_BY.match(text):
        return "CANCELLED"
    if text.endswith("+"):
        begun = text[:-1].rstrip()
        whole = [word for word in MEANINGS if word == begun] or [word for word in MEANINGS if word.startswith(begun)]
        return whole[0] if len(whole) == 1 else text
    return text


def meaning_of(text: str) -> Meaning:
    """What Slurm's text for a state means; a word that nobody knows is unknown."""
    return MEANINGS.get(word_of(text), Meaning(_UNKNOWN, "this version does not know the word"))


def canceller_of(text: str) -> int | None:
    """The user who cancelled it, by number, where Slurm tells: 0 is root, or Slurm itself."""
    found = _CANCELLED_BY.match(text.strip())
    return int(found.group(1)) if found else None
