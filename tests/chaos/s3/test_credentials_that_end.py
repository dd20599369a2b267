"""Credentials that end in mid-run: that costs a wait or another execution, and there is a way without either."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from prefect_dispatch.format.exit_codes import ExitCode
from support.s3 import faults
from support.s3.messages import Operation, Request
from support.s3.place import TOKEN
from support.s3.runs import NEVER

OLD, NEW = "key-that-ends", "key-of-the-next-hour"


def is_old(request: Request) -> bool:
    return request.access_key == OLD


def by_value(key: str) -> dict[str, str]:
    """The variables by which a job gets the keys of a block: those of the moment."""
    return {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": f"secret-of-{key}",
        "AWS_SESSION_TOKEN": TOKEN,
    }


def test_keys_that_a_job_has_by_value_end_with_what_is_published_and_the_rest_is_named(denying: Any) -> None:
    runs = denying
    # given a run that has the keys of a block by value, and has published one save
    rule = runs.proxy.arm(faults.hold_upload, Operation.PUT, key="step-2/weights")
    process = runs.start(gate=NEVER, variables=by_value(OLD))
    rule.wait_held()
    # when they expire
    denied = runs.proxy.arm(faults.EXPIRED, where=is_old, times=None)
    rule.end()
    ended = runs.end(process)
    # then the program got its notice, and it is said why, and where on this machine the saves are that the bucket lacks
    assert ended.code == ExitCode.UNPUBLISHABLE, ended.told
    assert denied.struck
    assert "ExpiredToken" in ended.told and "SIGTERM to the program" in ended.told
    place = Path(runs.folder, "scratch")
    assert {"step-2", "step-3"} <= {path.name for path in place.rglob("step-*")}
    assert str(place) in ended.output.splitlines()[-1]
    assert not [secret for secret in (TOKEN, f"secret-of-{OLD}") if secret in ended.told]
    # and who looks with keys that open it finds what was published, whole; nothing else is taken for a save
    assert runs.steps() == [1]
    runs.check()
    # and the next execution, which has the new keys, goes on from there
    again = runs.run(2, variables=by_value(NEW))
    assert (again.code, again.began_at) == (0, 1), again.told
    assert runs.steps() == [1, 2, 3, 4]
    runs.check()


def test_an_execution_that_is_handed_keys_that_have_ended_does_not_begin(denying: Any) -> None:
    runs = denying
    runs.seed(1)
    # given keys that have ended
    runs.proxy.arm(faults.EXPIRED, where=is_old, times=None)
    # when an execution begins with them
    ended = runs.run(2, variables=by_value(OLD))
    # then its program never runs, and surely not from scratch
    assert ended.code in (ExitCode.STORE_UNREACHABLE, ExitCode.IO_ERROR), ended.told
    assert ended.began_at is None
    assert "ExpiredToken" in ended.told
    # and one with others goes on from the save
    again = runs.run(3, variables=by_value(NEW))
    assert (again.code, again.began_at) == (0, 1), again.told


def test_a_credential_process_gives_the_next_keys_in_mid_run(denying: Any) -> None:
    runs = denying
    # given a run whose keys come from a program of the site
    given = runs.folder / "given.json"
    runs.environment["AWS_CONFIG_FILE"] = str(runs.folder / "config")
    program = runs.folder / "credentials.py"
    program.write_text(f"print(open({str(given)!r}).read())")
    command = f"{sys.executable} -S -E {program}"
    (runs.folder / "config").write_text(f"[default]\ncredential_process = {command}\n")

    def give(key: str) -> None:
        keys = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": f"secret-of-{key}", "SessionToken": TOKEN}
        given.with_suffix(".new").write_text(json.dumps({**keys, "Expiration": "2999-01-01T00:00:00Z"}))
        given.with_suffix(".new").replace(given)

    give(OLD)
    rule = runs.proxy.arm(faults.hold_upload, Operation.PUT, key="step-2/weights")
    process = runs.start()
    rule.wait_held()
    # when those that it gave are denied, long before they said they would end
    give(NEW)
    denied = runs.proxy.arm(faults.EXPIRED, where=is_old, times=None)
    rule.end()
    ended = runs.end(process)
    # then the program is asked again, and the run knows nothing of it
    assert ended.code == 0, ended.told
    assert denied.struck and any(request.access_key == NEW for request in runs.proxy.seen)
    assert runs.steps() == [1, 2, 3, 4]
    runs.check()
