"""The adapter that docs/adapter.md shows keeps the contract, by the very text of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from prefect_dispatch.model.observation import ObjectState
from prefect_dispatch.testing.plain_request import plain_request

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adapter.md"
ADAPTER, SHAPE = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def run(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, str(PAGE), "exec"), names)
    return names


TestToy = run(ADAPTER)["TestToy"]
"""Collected by pytest from here, as it would be from a file of the reader's."""


async def test_the_shape_of_ones_own_scheduler_forgets_as_it_says(tmp_path: Path) -> None:
    # given the page's scheduler and a job that has ended
    names = run(SHAPE)
    scheduler, clock, shape = names["scheduler"], names["clock"], names["FORGETFUL"]
    object = await scheduler.submit(plain_request(tmp_path, "train"))
    scheduler.exit(object)
    assert (await scheduler.observe([object]))[object].state is ObjectState.ENDED

    # when its time is over
    clock.turn(shape.purge_after)

    # then it is gone
    assert await scheduler.observe([object]) == {}
