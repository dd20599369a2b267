"""The schedule of one trial: who runs when and is stopped where. Drawn from a seed, the same for every design."""

from __future__ import annotations

import random
from dataclasses import dataclass

from prefect_dispatch.format.epoch import Epoch

WRITERS = 3
"""Old, new and newer: a replacement of the replacement."""


@dataclass(frozen=True)
class Stop:
    """Where one writer is stopped.

    Args:
        phase: 0 while it starts and loads, then the number of the save, from 1.
        fraction: how far into the phase, of the operations on the file system that such a phase has in this design.
    """

    phase: int
    fraction: float


@dataclass(frozen=True)
class Plan:
    """What one execution is going to do.

    Args:
        epoch: its place in the order of executions.
        saves: how many saves it makes.
        stops: where it is stopped, at most once in a phase, in order.
    """

    epoch: Epoch
    saves: int
    stops: tuple[Stop, ...] = ()


@dataclass(frozen=True)
class Turn:
    """A stretch of the trial: these writers run, side by side, each until its next stop or its end.

    Args:
        writers: their numbers, 0 for the old one. One that is not there yet is started, one that has ended left out.
        victim: who of them is stopped from outside as well, wherever it is by then; None for nobody.
        delay: after how many seconds that is.
    """

    writers: tuple[int, ...]
    victim: int | None = None
    delay: float = 0.0


@dataclass(frozen=True)
class Schedule:
    """One trial.

    Args:
        seed: what it was drawn from.
        keep: how many saves the framework's rotation keeps.
        plans: the writers, each newer than the one before.
        closing: the epoch of the execution that starts when all of them have ended, and only reads.
        turns: what happens, in order.
        ending: the order in which those who have not ended by then go on to their end; together in one group where
            they do so side by side.
        killed: who is killed instead of going on.
    """

    seed: int
    keep: int
    plans: tuple[Plan, ...]
    closing: Epoch
    turns: tuple[Turn, ...]
    ending: tuple[tuple[int, ...], ...]
    killed: frozenset[int]


def draw(seed: int) -> Schedule:
    """Draw a trial from a seed."""
    dice = random.Random(seed)
    epochs = [Epoch(0, 1, 0)]
    while len(epochs) <= WRITERS:
        epochs.append(_successor(epochs[-1], dice))
    plans = tuple(_plan(number, epochs[number], dice) for number in range(WRITERS))
    turns = [_turn(dice, [0]), _turn(dice, [1])]
    turns += [_turn(dice, [0, 1]) for _ in range(dice.randint(0, 3))]
    turns.append(_turn(dice, [2]))
    turns += [_turn(dice, [0, 1, 2]) for _ in range(dice.randint(0, 4))]
    order = dice.sample(range(WRITERS), WRITERS)
    together = dice.random() < 0.4
    killed = frozenset(number for number in range(WRITERS) if dice.random() < 0.15)
    ending = (tuple(order),) if together else tuple((number,) for number in order)
    return Schedule(seed, dice.choice([2, 2, 3]), plans, epochs[-1], tuple(turns), ending, killed)


def undisturbed(saves: int, keep: int) -> Schedule:
    """One writer after another and nobody stopped: what a phase consists of is counted by it."""
    epochs = [Epoch(0, number, 0) for number in range(1, 4)]
    plans = tuple(Plan(epoch, saves) for epoch in epochs[:2])
    return Schedule(0, keep, plans, epochs[2], (Turn((0,)), Turn((1,))), (), frozenset())


def _successor(epoch: Epoch, dice: random.Random) -> Epoch:
    """The next execution's epoch: a requeue, a resubmission or a supersession."""
    way = dice.choice(["requeue", "resubmit", "resubmit", "supersede"])
    if way == "requeue":
        return Epoch(epoch.generation, epoch.submission, epoch.restart + 1)
    if way == "resubmit":
        return Epoch(epoch.generation, epoch.submission + 1, 0)
    return Epoch(epoch.generation + 1, 1, 0)


def _plan(number: int, epoch: Epoch, dice: random.Random) -> Plan:
    saves = dice.randint(2, 6)
    phases = range(1, saves + 1)
    chosen = sorted(dice.sample(phases, min(len(phases), dice.randint(1, 3))))
    # The others may be stopped while they load; the old one has something to lose before it is stopped.
    if number > 0 and dice.random() < 0.5:
        chosen[0] = 0
    return Plan(epoch, saves, tuple(Stop(phase, dice.random()) for phase in chosen))


def _turn(dice: random.Random, among: list[int]) -> Turn:
    writers = tuple(dice.sample(among, min(len(among), dice.choice([1, 1, 2]))))
    if dice.random() < 0.3:
        return Turn(writers, dice.choice(writers), dice.uniform(0.0, 0.02))
    return Turn(writers)
