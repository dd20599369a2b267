"""Which kills are tried at a failpoint."""

from __future__ import annotations

from collections import Counter

from support.crash.kill import SUPERVISOR, Kill
from support.full_form import FULL

CHAINS = {
    "local.never-started": ("local.spawn",),
    "local.drop-entry": ("local.place-object",),
}
"""Failpoints that are reached only after another kill."""
MOST_TIMES = 40
"""How many times one failpoint is tried in one role; a poll comes by for as long as a job lasts."""
Reached = dict[tuple[str, str], Counter[str]]
"""How often each role of each scenario comes to each failpoint."""


def choose(point: str, census: Reached) -> list[tuple[Kill, ...]]:
    """The kills at one failpoint: the first, second and last time, in turn with the roles that come there.

    In the full form it is every time, in every scenario and role.
    """
    if point in CHAINS:
        return [tuple(Kill("folder", SUPERVISOR, each) for each in (*CHAINS[point], point))]
    places = [(scenario, role) for (scenario, role), times in census.items() if times[point]]
    if FULL:
        return [
            (Kill(scenario, role, point, time),)
            for scenario, role in places
            for time in range(1, min(census[scenario, role][point], MOST_TIMES) + 1)
        ]
    if not places:
        return []
    first = [place for place in places if place[0] == places[0][0]]
    kills = []
    for place, (scenario, role) in zip(range(3), first * 3, strict=False):
        last = census[scenario, role][point]
        time = (1, min(2, last), last)[place]
        kills.append(Kill(scenario, role, point, time))
    return [(kill,) for kill in dict.fromkeys(kills[:1] + [kill for kill in kills[1:] if kill.time > 1])]
