"""Every kind of fault at every request of an act, on a place of its own each, and what must hold afterwards."""

from __future__ import annotations

import itertools
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from prefect_dispatch.errors import DispatchError, StoreError, StoreUnreachable
from prefect_dispatch.stores.s3_patience import S3Patience
from support.full_form import FULL
from support.s3.kinds import KINDS, Kind
from support.s3.messages import Request
from support.s3.place import CALM, HASTE
from support.s3.proxy import FaultProxy

SIDE_BY_SIDE = 16
"""Most faults make somebody wait."""


class HasProxy(Protocol):
    """What an act is done on: a place of its own, behind a proxy that nobody else uses meanwhile."""

    proxy: FaultProxy

    def close(self) -> None:
        """Give the proxy back."""
        ...


P = TypeVar("P", bound=HasProxy)
Q = TypeVar("Q", bound=HasProxy)


@dataclass(frozen=True)
class Act(Generic[P]):
    """Something that is done with a store, and what must hold whatever goes wrong.

    Args:
        name: for people.
        do: does it, through the proxy; returns what the check gets.
        check: looks past the proxy at what has become of it. It gets the place, what ``do`` returned, and the error
            that ended it, or None; and fails where something is lost, half done, or not as it was returned.
        prepare: done past the proxy before it.
        seconds: how long it may take at most, whatever hangs.
        forbidden: errors by which it must never end, though the tree has them below those that are allowed.
    """

    name: str
    do: Callable[[P], object]
    check: Callable[[P, object, DispatchError | None], None]
    prepare: Callable[[P], None] = lambda place: None
    seconds: float = 60.0
    forbidden: tuple[type[Exception], ...] = ()
    allowed: tuple[type[Exception], ...] = (StoreError, StoreUnreachable)


@dataclass(frozen=True)
class Strike:
    """One fault at one request of an act.

    Args:
        kind: which.
        number: the request, from 0.
    """

    kind: Kind
    number: int

    def __str__(self) -> str:
        return f"{self.kind} at request {self.number}"


def choose(requests: Sequence[Request], kinds: Sequence[Kind] = KINDS) -> list[Strike]:
    """The strikes that are tried: each kind at one request that it applies to, in turn with the kinds.

    In the full form it is each of them.
    """
    strikes = []
    for turn, kind in enumerate(kinds):
        places = [number for number, request in enumerate(requests) if kind.applies_to(request)]
        if places:
            chosen = places if FULL else [places[turn % len(places)]]
            strikes += [Strike(kind, number) for number in chosen]
    return strikes


class Sweep(Generic[P]):
    """Tries faults at an act.

    Args:
        place: makes a fresh place for a client with this patience.
        secrets: what must never be told.
        told: what an error of this place must name.
    """

    def __init__(
        self,
        place: Callable[[S3Patience], P],
        secrets: Sequence[str],
        told: Callable[[P], Sequence[str]] = lambda place: (),
    ) -> None:
        self._place = place
        self._secrets = secrets
        self._told = told

    def over(self, place: Callable[[S3Patience], Q]) -> Sweep[Q]:
        """The same sweep over other places."""
        return Sweep(place, self._secrets, self._told)  # type: ignore[arg-type]

    def census(self, act: Act[P]) -> list[Request]:
        """The requests of an act that nobody disturbs, and which holds then."""
        place = self._place(CALM)
        with closing(place):
            act.prepare(place)
            before = len(place.proxy.seen)
            returned = act.do(place)
            act.check(place, returned, None)
            return place.proxy.seen[before:]

    def try_all(self, act: Act[P], kinds: Sequence[Kind] = KINDS, side_by_side: int = SIDE_BY_SIDE) -> list[Strike]:
        """Try the chosen strikes side by side.

        Raises:
            AssertionError: something did not hold; all that did not is named.
        """
        strikes = choose(self.census(act), kinds)
        self.try_these(act, strikes, side_by_side)
        return strikes

    def try_these(self, act: Act[P], strikes: Sequence[Strike], side_by_side: int = SIDE_BY_SIDE) -> None:
        """Try these strikes side by side.

        Raises:
            AssertionError: something did not hold; all that did not is named.
        """
        with ThreadPoolExecutor(side_by_side) as pool:
            failures = [found for found in pool.map(lambda strike: self._failure(act, strike), strikes) if found]
        assert not failures, f"{len(failures)} of {len(strikes)} strikes at {act.name!r}:\n" + "\n".join(failures)

    def _failure(self, act: Act[P], strike: Strike) -> str:
        try:
            self._try(act, strike)
        except Exception:
            return f"--- {strike}\n{''.join(traceback.format_exc(limit=-6))}"
        return ""

    def _try(self, act: Act[P], strike: Strike) -> None:
        kind = strike.kind
        place = self._place(CALM if kind.overcome else HASTE)
        with closing(place):
            act.prepare(place)
            counter = itertools.count()
            rule = place.proxy.arm(
                kind.make(),
                where=lambda request: next(counter) >= strike.number and kind.applies_to(request),
                times=None if kind.lasting else 1,
            )
            returned, error = None, None
            began = time.monotonic()
            try:
                returned = act.do(place)
            except DispatchError as found:
                error = found
            took = time.monotonic() - began
            place.proxy.disarm()
            # Requests that go side by side come in another order now and then; what did not strike proves nothing.
            if rule.struck and not kind.overcome:
                assert took < act.seconds, f"it took {took:.1f} s"
            if error is not None:
                self._check_error(place, act, error)
                assert not kind.overcome, f"a client that tries again gets over it: {error}"
            act.check(place, returned, error)

    def _check_error(self, place: P, act: Act[P], error: DispatchError) -> None:
        text = str(error)
        assert isinstance(error, act.allowed), f"{type(error).__name__} is no word for a fault: {error}"
        assert not isinstance(error, act.forbidden), f"{type(error).__name__} says more than is known: {error}"
        for secret in self._secrets:
            assert secret not in text, "an error tells a secret"
        for name in self._told(place):
            assert name in text, f"an error does not name {name}: {error}"
