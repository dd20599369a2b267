"""Failpoints: none is forgotten, none is named twice, and one kills just the process that it is armed in."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import prefect_dispatch
from prefect_dispatch.failpoint import Failpoint
from prefect_dispatch.failpoints import LOG, ONCE, POINT, STOPS
from support.environment import environment_without

PACKAGE = Path(prefect_dispatch.__file__).parent
WHERE = ("stores/*.py", "supervisor/*.py", "schedulers/local*.py", "job/*.py")
DURABLE = re.compile(
    r"os\.(link|symlink|rename|replace|mkdir|makedirs|fsync|fdatasync|fork|posix_spawn|execv\w*|truncate|mkfifo)|"
    r"subprocess\.\w+|shutil\.(copy\w*|move)|(.*\.)?(mkdir|touch|write_text|write_bytes|hardlink_to|symlink_to|unlink)|"
    r"create_once|write_new|.*\.create|self\._access\.scheduler\.(submit|stop|requeue|set_restarts)"
)
"""What changes something that another process may find after this one's death."""
NEEDS_NONE = {
    ("stores/posix.py", "_try_exclusive_creation", "os.unlink"): "clears a probe away, in tmp/",
    ("stores/posix_ledger.py", "_create_whole", "os.unlink"): "clears a temporary file away, in tmp/",
    ("stores/s3_managed.py", "_fetch", "os.mkdir"): "builds a copy, in tmp/",
    ("stores/s3_managed.py", "_fetch", "os.makedirs"): "builds a copy, in tmp/",
    ("stores/s3_managed.py", "_fetch", "os.symlink"): "builds a copy, in tmp/",
    ("stores/workplace.py", "clear_workplace", "os.unlink"): "clears away what the bucket has",
    ("stores/workplace.py", "_remove_unchanged", "os.unlink"): "clears away what the bucket has",
    ("stores/removal.py", "_empty", "os.rename"): "moves what is cleared away, in tmp/",
    ("stores/removal.py", "_remove_one", "os.unlink"): "clears away, in tmp/",
    ("job/asking.py", "_make_file", "os.replace"): "asks the program that runs; nothing follows from it afterwards",
    ("schedulers/local_records.py", "create_once", "temporary.unlink"): "clears a temporary file away",
    ("schedulers/local_records.py", "create_once", "write_new"): "has its failpoints inside",
    ("stores/documents.py", "create_once", "ledger.create"): "has its failpoints inside",
    ("stores/git_state.py", "_ask", "subprocess.run"): "asks, and changes nothing",
    ("schedulers/local_launcher.py", "_start", "subprocess.DEVNULL"): "starts nothing",
    ("supervisor/beats.py", "beat", "ledger.create"): "tells that a process lives; it is missed by nobody for long",
    ("supervisor/beats.py", "beat", "ledger.remove"): "clears the sign before it away",
    ("supervisor/beats.py", "vouch", "ledger.create"): "tells that a run waits; it is missed by nobody for long",
    ("supervisor/beats.py", "vouch", "ledger.remove"): "clears the sign before it away",
    ("supervisor/polls.py", "note_poll", "ledger.create"): "tells people that a poll is over; nothing follows from it",
    ("supervisor/polls.py", "note_poll", "ledger.remove"): "clears an older note away",
}


def calls_of(function: ast.AST) -> list[tuple[int, str]]:
    """The durable calls and failpoints of a function, in the order of their lines."""
    inner = {
        id(node)
        for child in ast.walk(function)
        if child is not function and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(child)
    }
    found = []
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and id(node) not in inner:
            name = ast.unparse(node.func)
            text = ast.unparse(node)
            if name == "reach" or DURABLE.fullmatch(name) or (name == "os.open" and may_create(text)):
                found.append((node.lineno, name))
    return sorted(found)


def may_create(text: str) -> bool:
    """Whether a call of os.open may make a file: its flags say so, or stand elsewhere under such a name."""
    return re.search(r"O_CREAT|O_WRONLY|O_RDWR|_CREATE|\bflags\b", text) is not None and "devnull" not in text


def unguarded(source: str, file: str) -> list[str]:
    """The durable calls without a failpoint of their own before them, in the same function."""
    wrong = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        ready = False
        for line, name in calls_of(function):
            if (file, function.name, name) in NEEDS_NONE:
                continue
            if name != "reach" and not ready:
                wrong.append(f"{file}:{line}: {name} in {function.name}")
            ready = name == "reach"
    return wrong


def test_each_durable_call_has_a_failpoint_of_its_own_before_it() -> None:
    # given the modules that leave something behind
    files = sorted({file for pattern in WHERE for file in PACKAGE.glob(pattern)} - {PACKAGE / "stores" / "memory.py"})
    # when their durable calls are looked at
    wrong = [line for file in files for line in unguarded(file.read_text(), str(file.relative_to(PACKAGE)))]
    # then each one is right behind a failpoint
    assert wrong == []
    assert len(files) > 40


def test_every_failpoint_stands_in_the_code_once() -> None:
    # given every use of a failpoint in the package
    files = [file for file in PACKAGE.rglob("*.py") if file.name != "failpoints.py"]
    uses = [name for file in files for name in re.findall(r"\breach\((.*)\)$", file.read_text(), re.MULTILINE)]
    # then each member has one
    assert sorted(uses) == sorted(f'"{point.value}"' for point in Failpoint)


def test_a_failpoint_is_named_as_its_member_is() -> None:
    assert [point.value for point in Failpoint] == [
        re.sub(r"^(STORE|S3|LOCAL|PREFECT)_", r"\1.", point.name).replace("_", "-").lower() for point in Failpoint
    ]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    os.mkdir(p)",
        'def f():\n    reach("fact")\n    os.fsync(d)\n    os.link(a, b)',
        'def f():\n    os.open(p, os.O_CREAT | os.O_EXCL)\n    reach("fact")',
        'def f():\n    def g():\n        reach("fact")\n    ledger.create(name)',
    ],
)
def test_a_durable_call_without_its_failpoint_is_seen(source: str) -> None:
    assert len(unguarded(source, "stores/x.py")) == 1


PROGRAM = """
import os, sys
from prefect_dispatch.failpoints import reach
reach("claim")
print("first", flush=True)
if os.fork() == 0:
    reach("claim")
    print("child", flush=True)
    os._exit(0)
os.wait()
reach("pin")
reach("claim")
print("second", flush=True)
"""


def run(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment_without("DISPATCH_"), **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_an_unarmed_process_passes_every_failpoint() -> None:
    ended = run()
    assert (ended.returncode, ended.stdout.split()) == (0, ["first", "child", "second"])


def test_an_armed_process_dies_at_its_failpoint_the_first_time() -> None:
    ended = run(**{POINT: "claim"})
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "")


def test_times_are_counted_in_each_process_alone(tmp_path: Path) -> None:
    # given a process whose child comes to the failpoint once, and which itself comes to it twice
    log = tmp_path / "log"
    # when it is to die there at the second time
    ended = run(**{POINT: "claim:2", LOG: str(log)})
    # then the child lives
    assert (ended.returncode, ended.stdout.split()) == (-signal.SIGKILL, ["first", "child"])
    assert [line.split()[1:] for line in log.read_text().splitlines()] == [
        ["claim", "1"],
        ["claim", "1"],
        ["pin", "1"],
        ["claim", "2"],
    ]


def test_only_the_first_process_is_ended_where_that_is_asked_for(tmp_path: Path) -> None:
    first, second = (run(**{POINT: "pin", ONCE: str(tmp_path / "once")}) for _ in range(2))
    assert (first.returncode, second.returncode) == (-signal.SIGKILL, 0)


def test_one_that_is_to_stop_there_goes_on_when_it_is_told_to() -> None:
    # given a process that is to be stopped where it would be killed
    variables = {**environment_without("DISPATCH_"), POINT: "pin", STOPS: "1"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=variables, stdout=subprocess.PIPE, text=True) as process:
        # when it is
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=60)
    # then it has lost nothing
    assert (process.returncode, output.split()) == (0, ["first", "child", "second"])


@pytest.mark.parametrize("asked", ["clam", "claim:x", "Claim", "claim:1:2"])
def test_what_names_no_failpoint_is_refused_and_never_ignored(asked: str) -> None:
    ended = run(**{POINT: asked})
    assert f"{POINT} {asked!r} is not a failpoint" in ended.stderr
    assert (ended.returncode, ended.stdout) == (1, "")
