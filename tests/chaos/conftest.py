"""The kills of crash tests, planned once and carried out side by side; and disks of a test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from prefect_dispatch.failpoint import Failpoint
from support.crash.choice import Reached, choose
from support.crash.crashes import Crashes
from support.crash.kill import Kill
from support.crash.supervisors import Supervisors
from support.disks import Disks, why_no_namespace


@pytest.fixture(scope="session")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashes]:
    found = Crashes(tmp_path_factory.mktemp("crashes"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def census(crashes: Crashes) -> Reached:
    return crashes.census()


@pytest.fixture(scope="session")
def planned(
    request: pytest.FixtureRequest, crashes: Crashes, census: Reached
) -> dict[Failpoint, list[tuple[Kill, ...]]]:
    """The kills at each failpoint, each with those that have to come before it.

    Those of all the tests that will run are begun at once, to run side by side.
    """
    chosen = {point: choose(point.value, census) for point in Failpoint if not point.value.startswith("s3.")}
    wanted = [item.callspec.params.get("point") for item in request.session.items if hasattr(item, "callspec")]
    for point in wanted:
        for kills in chosen.get(point, []):
            crashes.begin(*kills)
    return chosen


@pytest.fixture
def disks() -> Iterator[Disks]:
    why = why_no_namespace()
    if why is not None:
        pytest.skip(why)
    supervisors = Supervisors(1, ["unshare", "-m", "--propagation", "private"])
    yield Disks(supervisors)
    supervisors.close()
