"""An event loop in virtual time: it parks where another would wait, and its threads run in place."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from prefect_dispatch.testing.simulator.kernel import NEVER, Kernel


class _Selector(selectors.BaseSelector):
    """Knows no files; waiting for them is parking."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Take note of a file."""
        key = selectors.SelectorKey(fileobj, -1, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget a file."""
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """The files."""
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Park until the time is over. No file is ever ready."""
        if timeout is None:
            self._kernel.park(NEVER)
        elif timeout > 0:
            self._kernel.park(self._kernel.now + timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """One actor's event loop.

    Args:
        kernel: whose time it goes by.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(_Selector(kernel))
        self._kernel = kernel

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self._kernel.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in place: what it parks at parks the whole actor, as if its process had been stopped there."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run_virtually(kernel: Kernel, main: Callable[[], Any]) -> None:
    """Run a coroutine function in the current actor until it returns or the actor is killed."""
    loop = VirtualLoop(kernel)
    task = loop.create_task(main())
    try:
        loop.run_until_complete(task)
    finally:
        try:
            if not task.done():
                task.cancel()
                loop.run_until_complete(asyncio.wait([task]))
            if not task.cancelled():
                task.exception()
        finally:
            loop.close()
