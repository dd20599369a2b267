"""The kinds of faults that are tried at every request, and at which requests each means anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from support.s3 import faults
from support.s3.messages import Operation, Request
from support.s3.proxy import Fault

_WITH_BODY = (Operation.GET, Operation.LIST)
_WRITES = (Operation.PUT, Operation.COMPLETE)
_UPLOADS = (Operation.PUT, Operation.PART)


@dataclass(frozen=True)
class Kind:
    """One kind of fault.

    Args:
        name: for people.
        make: a fresh fault.
        operations: what a request must ask for; empty for anything.
        lasting: whether every request from the struck one on has it.
        where: what else must hold of a request.
        overcome: whether an act succeeds in spite of it, as a client that tries again does.
    """

    name: str
    make: Callable[[], Fault]
    operations: tuple[Operation, ...] = ()
    lasting: bool = False
    where: Callable[[Request], bool] = lambda request: True
    overcome: bool = False

    def applies_to(self, request: Request) -> bool:
        return (not self.operations or request.operation in self.operations) and self.where(request)

    def __str__(self) -> str:
        return self.name


def _always(fault: Fault) -> Callable[[], Fault]:
    return lambda: fault


def _is_conditional(request: Request) -> bool:
    return request.header("if-none-match") is not None


def _carries_its_digest(request: Request) -> bool:
    """Of other bodies the signature has the digest, and the test's server keeps what it refuses for that."""
    return request.header("content-md5") is not None


PASSING = (
    Kind("reply lost", _always(faults.lose_reply), overcome=True),
    Kind("request lost", _always(faults.lose_request), overcome=True),
    Kind("500 before", _always(faults.INTERNAL_ERROR), overcome=True),
    Kind("500 after", _always(faults.INTERNAL_ERROR_SERVED), overcome=True),
    Kind("503 before", _always(faults.SLOW_DOWN), overcome=True),
    Kind("503 after", _always(faults.SLOW_DOWN_SERVED), overcome=True),
    Kind("409", _always(faults.CONFLICT), _WRITES, where=_is_conditional, overcome=True),
    Kind("hang before", _always(faults.hang)),
    Kind("hang after", _always(faults.hang_served)),
    Kind("hang in body", _always(faults.HangInBody(1)), _WITH_BODY),
    Kind("body cut", _always(faults.Cut(-1)), _WITH_BODY),
    Kind("body shortened", _always(faults.Shorten(1)), _WITH_BODY),
    Kind("body corrupted", _always(faults.corrupt), (Operation.GET,)),
    Kind("upload broken", _always(faults.BreakUpload(1)), _UPLOADS),
    Kind("upload corrupted", _always(faults.corrupt_upload), _UPLOADS, where=_carries_its_digest, overcome=True),
    Kind("error in 200", _always(faults.ERROR_IN_200), (Operation.COMPLETE,)),
    Kind("error in 200 after", _always(faults.ERROR_IN_200_SERVED), (Operation.COMPLETE,)),
    Kind("login page", _always(faults.LOGIN_PAGE), (Operation.BEGIN, *_UPLOADS, Operation.COMPLETE), overcome=True),
    Kind("listing is an error", _always(faults.ERROR_IN_200), (Operation.LIST,), overcome=True),
    Kind("listing is a login page", _always(faults.LOGIN_PAGE), (Operation.LIST,), overcome=True),
    Kind("403", _always(faults.FORBIDDEN)),
    Kind("expired", _always(faults.EXPIRED)),
    Kind("skewed", _always(faults.SKEWED)),
    Kind("no bucket", _always(faults.NO_BUCKET)),
)
LASTING = (
    Kind("500 for good", _always(faults.INTERNAL_ERROR), lasting=True),
    Kind("503 for good", _always(faults.SLOW_DOWN), lasting=True),
    Kind("409 for good", _always(faults.CONFLICT), _WRITES, lasting=True, where=_is_conditional),
    Kind("replies lost for good", _always(faults.lose_reply), lasting=True),
    Kind("hang for good", _always(faults.hang), lasting=True),
    Kind("drip for good", _always(faults.Drip(1, 0.2)), _WITH_BODY, lasting=True),
    Kind("403 for good", _always(faults.FORBIDDEN), lasting=True),
    Kind("expired for good", _always(faults.EXPIRED), lasting=True),
    Kind("skewed for good", _always(faults.SKEWED), lasting=True),
    Kind("no bucket for good", _always(faults.NO_BUCKET), lasting=True),
    Kind("listings are errors", _always(faults.ERROR_IN_200), (Operation.LIST,), lasting=True),
    Kind("listings are login pages", _always(faults.LOGIN_PAGE), (Operation.LIST,), lasting=True),
    Kind("pages repeat", faults.RepeatPage, (Operation.LIST,), lasting=True),
)
KINDS = (*PASSING, *LASTING)
