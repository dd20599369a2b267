"""What goes wrong for a while during a run: servers that are away or restart, credentials that end, hanging watches."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from prefect_dispatch.format.exit_codes import ExitCode
from support.s3 import faults
from support.s3.messages import Operation, Request
from support.s3.place import TOKEN
from support.s3.runs import NEVER, Runs
from support.s3.server import serve
from support.waiting import until

OLD, NEW = "first-key-of-nobody", "second-key-of-nobody"


def saves_of(runs: Runs) -> list[str]:
    """What the workplaces of this machine hold."""
    return sorted(str(path.name) for path in Path(runs.folder, "scratch").rglob("step-*"))


def test_a_port_that_is_closed_for_a_moment_costs_nothing(runs: Any) -> None:
    # given a run that is in the middle of an upload
    rule = runs.proxy.arm(faults.hold_upload, Operation.PUT, key="step-2/weights")
    process = runs.start()
    rule.wait_held()
    # when nobody listens there for a moment, and connections that were kept are broken
    runs.proxy.refuse()
    rule.end()
    runs.proxy.accept()
    # then it is as if nothing had been
    ended = runs.end(process)
    assert ended.code == 0, ended.told
    assert runs.steps() == [1, 2, 3, 4]
    assert saves_of(runs) == []
    runs.check()


def test_a_port_that_stays_closed_ends_the_run_and_loses_no_save(runs: Any) -> None:
    # given a run that has published a save
    rule = runs.proxy.arm(faults.hold_upload, Operation.PUT, key="step-2/weights")
    process = runs.start(gate=NEVER, variables={"DISPATCH_S3_RETRY": "1s"})
    rule.wait_held()
    # when nobody listens there any more
    runs.proxy.refuse()
    rule.end()
    ended = runs.end(process)
    # then the program was asked to save and exit, the log names the server, and where the saves are that it lacks
    assert ended.code == ExitCode.UNPUBLISHABLE, ended.told
    assert runs.proxy.endpoint in ended.told and "SIGTERM to the program" in ended.told
    assert str(runs.folder / "scratch") in ended.output.splitlines()[-1], ended.told
    assert {"step-2", "step-3", "step-4"} <= set(saves_of(runs))
    # and whoever comes after goes on from what is published
    runs.proxy.accept()
    assert runs.steps() == [1]
    runs.check_carried_on(2, began_at=1)


def test_a_server_that_restarts_is_gone_on_with(runs: Any, tmp_path: Path) -> None:
    # given a server of the test's own, and a run that has published to it
    folder = tmp_path / "server"
    with serve("seaweed", folder) as server:
        at = urlsplit(server.endpoint)
        runs.proxy.turn_to(str(at.hostname), int(at.port or 0))
        process = runs.start(gate=str(tmp_path / "gate"), variables={"DISPATCH_S3_RETRY": "60s"})
        until(lambda: runs.proxy.count(Operation.PUT, key="pub/") >= 1, "something is published")
    # when it ends, and starts again on its data
    with serve("seaweed", folder) as server:
        at = urlsplit(server.endpoint)
        runs.proxy.turn_to(str(at.hostname), int(at.port or 0))
        (tmp_path / "gate").touch()
        ended = runs.end(process)
        # then the run has published everything
        assert ended.code == 0, ended.told
        names = [key for key in keys_of(server, runs) if "/pub/" in key]
        assert len(names) == 4, names


def keys_of(server: Any, runs: Runs) -> list[str]:
    pages = server.client().get_paginator("list_objects_v2").paginate(Bucket=server.bucket, Prefix=runs.direct.prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


def credentials_file(runs: Runs, key: str) -> Path:
    path = runs.folder / "credentials"
    text = f"[default]\naws_access_key_id={key}\naws_secret_access_key=secret-of-{key}\naws_session_token={TOKEN}\n"
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)
    return path


@pytest.fixture
def with_temporary_credentials(denying: Any) -> Runs:
    """A run whose credentials are in a file that somebody renews."""
    found: Runs = denying
    found.environment["AWS_SHARED_CREDENTIALS_FILE"] = str(credentials_file(found, OLD))
    return found


def is_old(request: Request) -> bool:
    return request.access_key == OLD


@pytest.mark.parametrize("denial", [faults.EXPIRED, faults.FORBIDDEN], ids=["ExpiredToken", "AccessDenied"])
def test_credentials_that_are_renewed_in_mid_run_are_taken_up(denial: Any, with_temporary_credentials: Any) -> None:
    runs = with_temporary_credentials
    # given a run with temporary credentials, in the middle of an upload
    rule = runs.proxy.arm(faults.hold_upload, Operation.PUT, key="step-2/weights")
    process = runs.start()
    rule.wait_held()
    # when they are renewed, and the old ones are denied
    credentials_file(runs, NEW)
    denied = runs.proxy.arm(denial, where=is_old, times=None)
    rule.end()
    ended = runs.end(process)
    # then it goes on with the new ones
    assert ended.code == 0, ended.told
    assert denied.struck and any(request.access_key == NEW for request in runs.proxy.seen)
    assert runs.steps() == [1, 2, 3, 4]
    runs.check()
    # and no secret is told, not even where they were denied
    assert_untold(runs, ended.told)


def test_credentials_that_end_for_good_end_the_run(with_temporary_credentials: Any) -> None:
    runs = with_temporary_credentials
    rule = runs.proxy.arm(faults.hold_upload, Operation.PUT, key="step-2/weights")
    process = runs.start(gate=NEVER)
    rule.wait_held()
    # when the credentials are denied, and nobody renews them
    runs.proxy.arm(faults.EXPIRED, where=is_old, times=None)
    rule.end()
    ended = runs.end(process)
    # then that is said, with the place, and what was published stays
    assert ended.code == ExitCode.UNPUBLISHABLE, ended.told
    assert "credentials" in ended.told and runs.proxy.endpoint in ended.told and "ExpiredToken" in ended.told
    assert_untold(runs, ended.told)
    runs.proxy.disarm()
    runs.check_carried_on(2, began_at=1)


def assert_untold(runs: Runs, told: str) -> None:
    """No secret is in the log, in any object, in any file of the helper, or was in a command line."""
    secrets = [f"secret-of-{OLD}", f"secret-of-{NEW}", TOKEN, OLD, NEW]
    kept = runs.direct.keys()
    places = {"the log": told, "a key": "\n".join(kept)}
    places.update({key: runs.direct.get(key).decode("latin-1") for key in kept})
    for path in runs.folder.rglob("*"):
        if path.is_file() and path.name not in ("credentials", "credentials.new"):
            places[str(path)] = path.read_bytes().decode("latin-1")
    for place, text in places.items():
        assert not [secret for secret in secrets if secret in text], place


def test_no_secret_is_in_a_command_line(with_temporary_credentials: Any) -> None:
    runs = with_temporary_credentials
    # given a run that is in the middle of an upload, with its program at work
    rule = runs.proxy.arm(faults.hold_upload, Operation.PUT, key="step-1/weights")
    process = runs.start()
    rule.wait_held()
    # when all command lines of this machine are looked at
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode("latin-1"))
        except OSError:
            continue
    runs.proxy.disarm()
    assert runs.end(process).code == 0
    # then the run's own are among them, and no secret is
    assert any("trainer.py" in line for line in lines) and any(str(runs.folder) in line for line in lines)
    assert not [line for line in lines for secret in (f"secret-of-{OLD}", TOKEN, OLD) if secret in line]


def test_a_watch_ends_in_time_though_nothing_comes(runs: Any) -> None:
    # given a program that has a save and looks for saves itself, while the server takes no object
    rule = runs.proxy.arm(faults.hang, Operation.PUT, key="exec/", times=None)
    program = runs.folder / "program.py"
    program.write_text(WATCHING)
    gate = runs.folder / "watched"
    process = runs.start_program(sys.executable, str(program), str(gate), watch_interval=timedelta(hours=1))
    # when it does, then its watch ends with an error that names the server, in time
    until(gate.exists, "the watch has ended")
    runs.proxy.disarm()
    code, seconds, told = gate.read_text().split("\n", 2)
    assert (int(code), float(seconds) < 60) == (ExitCode.IO_ERROR, True), (code, seconds, told)
    assert runs.proxy.endpoint in told
    assert rule.struck
    # and the save is published by the last look, when the server is itself again
    ended = runs.end(process)
    assert ended.code == 0, ended.told
    assert runs.steps() == [7]


WATCHING = """
import os, subprocess, sys, time
folder = os.path.join(os.environ["DISPATCH_EXEC_DIR"], "step-7")
os.mkdir(folder)
open(os.path.join(folder, "weights"), "w").write("7")
open(os.path.join(folder, ".complete"), "w").write("7")
began = time.monotonic()
watch = [sys.executable, "-m", "prefect_dispatch.job", "watch", "--once", "--timeout", "5s"]
done = subprocess.run(watch, capture_output=True, text=True)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{done.returncode}\\n{time.monotonic() - began}\\n{done.stdout}{done.stderr}")
os.replace(sys.argv[1] + ".new", sys.argv[1])
"""
