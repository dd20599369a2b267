"""A job's start brings in what it needs and nothing else: what is imported decides how long it takes."""

from __future__ import annotations

import subprocess
import sys

NEVER = {
    "argparse",
    "ast",
    "asyncio",
    "base64",
    "dataclasses",
    "email",
    "hashlib",
    "importlib.metadata",
    "inspect",
    "logging",
    "multiprocessing",
    "pathlib",
    "prefect",
    "pydantic",
    "random",
    "secrets",
    "shutil",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "traceback",
    "typing",
    "unittest",
    "urllib",
}
OTHER_COMMANDS = {
    "prefect_dispatch.job.commands",
    "prefect_dispatch.job.command_line",
    "prefect_dispatch.stores.check",
    "prefect_dispatch.stores.memory",
}
SAY = "\nprint('modules', *sorted(sys.modules), file=sys.stderr)"


def modules_of(job, program: str, *arguments: str) -> set[str]:
    """What a Python has imported at the end of a program."""
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}{SAY}", *arguments],
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(ran.stderr.splitlines()[-1].split()[1:])


def test_a_run_imports_nothing_that_it_does_not_need(job) -> None:
    # given what this environment's own Python imports before any program
    before = modules_of(job, "")
    # when a wrapper runs a program from its claim to its exit
    program = "from prefect_dispatch.job.__main__ import main\nassert main() == 0"
    after = modules_of(job, program, "run", "--submission", str(job.document()), "--", "true")
    # then it has run, and nothing came along that costs time
    assert job.exit_note().exit_code == 0
    brought = after - before
    assert "prefect_dispatch.job.run" in brought
    assert brought & (NEVER | OTHER_COMMANDS) == set()


def test_the_whole_command_line_is_read_where_the_short_way_does_not_do(job) -> None:
    # given a run whose option is written in another way
    document = f"--submission={job.document()}"
    # when it is started
    ran = job.command("run", document, "--", "true", DISPATCH_RESTART="0")
    # then it runs all the same, and what is wrong is still told in one line
    assert ran.returncode == 0, ran.stderr
    assert job.command("run", "--submision", "x", "--", "true").stderr.count("\n") == 1
