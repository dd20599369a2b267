"""A job's start brings in what it needs and nothing else: what is imported decides how long it takes."""

from __future__ import annotations

import subprocess
import sys

from prefect_dispatch.schedulers.local import WRAPPER

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
PUBLISHING = {
    "prefect_dispatch.format.completion",
    "prefect_dispatch.stores.completions",
    "prefect_dispatch.stores.posix_copy",
    "prefect_dispatch.stores.posix_saves",
    "prefect_dispatch.stores.publisher",
    "prefect_dispatch.stores.snapshots",
}
"""What a program without saves never needs."""
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


PROVIDERS = {
    "prefect_dispatch.format.identity",
    "prefect_dispatch.job.identity",
    "prefect_dispatch.stores.content_digest",
    "prefect_dispatch.stores.git_state",
    "prefect_dispatch.stores.identity_reference",
    "prefect_dispatch.stores.identity_values",
}


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
    assert brought & (NEVER | OTHER_COMMANDS | PROVIDERS | PUBLISHING) == set()


def test_a_run_compiles_no_expression_of_our_own_and_collects_garbage_once_its_program_runs(job) -> None:
    # given a wrapper that tells what is compiled, and whether garbage is collected when the program has ended
    program = (
        "import gc, re, types\n"
        "from prefect_dispatch.format import pattern\n"
        "def compile(text, flags=0):\n    print(text, file=sys.stderr)\n    return re.compile(text, flags)\n"
        "pattern.re = types.SimpleNamespace(compile=compile)\n"
        "from prefect_dispatch.job import program, run\n"
        "ending = run._Run._tell_end\n"
        "def tell(*given):\n    assert gc.isenabled() and gc.get_freeze_count()\n    return ending(*given)\n"
        "run._Run._tell_end = tell\n"
        "from prefect_dispatch.job.__main__ import main\n"
    )
    # when it runs a program without saves
    ran = subprocess.run(
        [
            *(sys.executable, "-c", f"import sys\n{program}sys.exit(main())"),
            *("run", "--submission", str(job.document()), "--", "true"),
        ],
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    # then nothing is
    assert (ran.returncode, ran.stderr) == (0, "")


def test_providers_bring_in_what_they_need_and_git_alone_starts_processes(job) -> None:
    before = modules_of(job, "")
    program = "from prefect_dispatch.job.__main__ import main\nassert main() == 0"
    (job.folder / "a").touch()
    document = job.document(identity_from={"config": "file:a", "user": "env:USER"})
    after = modules_of(
        job, f"import os\nos.chdir({str(job.folder)!r})\n{program}", "run", "--submission", str(document), "--", "true"
    )
    brought = after - before
    assert PROVIDERS - brought == {"prefect_dispatch.stores.git_state"}
    assert brought & (NEVER | OTHER_COMMANDS) == {"hashlib"}


def test_the_libraries_of_a_bucket_are_found_where_python_did_not_look_for_them() -> None:
    # given the helper as the local scheduler starts it, which sees the standard library and its own package alone
    python, *options, _, line = WRAPPER
    assert options == ["-I", "-S"]
    place = line.partition("; from ")[0]
    program = "try:\n    import obstore\nexcept ImportError:\n    print('not yet')\n"
    program += "from prefect_dispatch.stores.opening import open_store\n"
    program += "print(open_store('s3://bucket/prefix').location)\nimport obstore, s3fs"
    # when a bucket is opened
    ran = subprocess.run([python, *options, "-c", f"{place}\n{program}"], capture_output=True, text=True, timeout=60)
    # then they are there
    assert (ran.returncode, ran.stdout) == (0, "not yet\ns3://bucket/prefix\n"), ran.stderr


def test_the_whole_command_line_is_read_where_the_short_way_does_not_do(job) -> None:
    # given a run whose option is written in another way
    document = f"--submission={job.document()}"
    # when it is started
    ran = job.command("run", document, "--", "true", DISPATCH_RESTART="0")
    # then it runs all the same, and what is wrong is still told in one line
    assert ran.returncode == 0, ran.stderr
    assert job.command("run", "--submision", "x", "--", "true").stderr.count("\n") == 1
