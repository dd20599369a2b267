"""Every kind of fault at a request of ``dispatch-job run``: it resumes from the newest save or not at all, in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.format.exit_codes import ExitCode
from prefect_dispatch.format.names import new_nonce
from support.full_form import FULL
from support.s3.kinds import KINDS
from support.s3.runs import Ended, Runs
from support.s3.strikes import Act

SAMPLE = (
    *("reply lost", "500 after", "503 before", "409", "hang after", "hang in body", "body cut", "body shortened"),
    *("body corrupted", "upload broken", "403", "no bucket", "503 for good", "hang for good", "expired for good"),
)
RUN_KINDS = [kind for kind in KINDS if FULL or kind.name in SAMPLE]
WORDS_FOR_A_FAULT = (ExitCode.STORE_UNREACHABLE, ExitCode.IO_ERROR, ExitCode.UNPUBLISHABLE)


def resume_and_go_on(runs: Runs) -> Ended:
    return runs.run(2)


def check_run(runs: Runs, ended: Any, error: object) -> None:
    # It went on from the newest save, or its program was not begun: never from an older one, never from scratch.
    assert ended.began_at in (2, None), ended.told
    assert runs.steps(1) == [1, 2]
    if ended.code == 0:
        assert ended.began_at == 2 and runs.steps(2) == [3, 4], ended.told
    else:
        assert ended.code in WORDS_FOR_A_FAULT, ended.told
        assert runs.proxy.endpoint in ended.told and runs.direct.bucket in ended.told, ended.told
        assert runs.steps(2) in ([], [3], [3, 4]), ended.told
    for secret in (runs.place.places.server.secret, runs.place.places.server.key):
        assert secret not in ended.told
    runs.check()
    # Whoever comes after would resume from the newest.
    assert runs.root.latest().publication == runs.root.publications()[-1]


RUN = Act("run", resume_and_go_on, check_run, lambda runs: runs.seed(1, 2), seconds=90)


@pytest.fixture
def wrappers(places: Any, sweep: Any, tmp_path: Path, compiled: Path) -> Any:
    """The sweep, over lineages whose wrappers are processes."""
    return sweep.over(lambda patience: Runs.at(places.new(patience), tmp_path / new_nonce(), compiled))


def test_a_run_resumes_from_the_newest_save_or_not_at_all(wrappers: Any) -> None:
    # given two saves, and the requests of a run that resumes and goes on to its end
    # when each kind of fault strikes at one of them (in the full form: at each)
    strikes = wrappers.try_all(RUN, RUN_KINDS, side_by_side=4)
    # then all that is asked for above held, and faults did strike
    assert len(strikes) >= len(SAMPLE) - 1
