"""``dispatch-job run`` with providers: asked anew by each execution, before anything of the program starts."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.stores.content_digest import digest_of_path
from prefect_dispatch.stores.git_state import state_of_repository
from prefect_dispatch.stores.identity_reference import read_reference
from support.environment import environment_without

SAVE = """
import os
folder = os.path.join(os.environ["DISPATCH_EXEC_DIR"], "step-1")
os.mkdir(folder)
open(os.path.join(folder, ".complete"), "w").write("1")
"""
TOUCH = ("sh", "-c", "touch ran; echo step=$DISPATCH_RESUME_STEP")


def sha256(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def started(job: Any, number: int = 1) -> dict[str, Any]:
    found = json.loads((job.root / "meta" / job.attempt(number) / "started.json").read_text())
    assert isinstance(found, dict)
    return found


def test_a_run_notes_what_it_is_and_publishes_as_that(job: Any) -> None:
    # given a file and a variable, of which the supervisor knew the file
    config = job.folder / "cfg é\n.yaml"
    config.write_text("lr: 1")
    providers = {"config": f"file:{config.name}", "user": "env:WHO", "shell": "env:NOT_SET"}
    identity = {"seed": "sha256:7", "config": sha256("lr: 1")}
    # when
    ended = job.python(SAVE, identity=identity, identity_from=providers, variables={"WHO": "it is a secret"})
    # then
    assert ended.returncode == 0, ended.stderr
    found = {**identity, "user": sha256("it is a secret"), "shell": "unset"}
    assert started(job)["identity"] == found
    [manifest] = (job.root / "meta" / job.attempt() / "saves").iterdir()
    assert json.loads(manifest.read_text())["identity"] == found
    # and what nobody knew before is noted for the generation
    assert read_reference(job.lineage_root.store, 0) == {name: found[name] for name in ("user", "shell")}
    assert job.command("check", str(job.root)).returncode == 0
    # and the value of a variable is nowhere
    every = b"".join(path.read_bytes() for path in job.root.rglob("*") if path.is_file())
    assert b"it is a secret" not in every + ended.stdout + ended.stderr


def test_a_start_notes_its_surroundings_without_any_value(job: Any) -> None:
    job.run("true", variables={"API_KEY": "it is a secret"})
    noted = started(job)
    assert noted["host"] == os.uname().nodename
    assert {"system", "python", "cpus", "variables"} == set(noted["environment"])
    assert "API_KEY" in noted["environment"]["variables"]
    assert "it is a secret" not in json.dumps(noted)
    assert "commit" not in noted


def test_a_file_that_changed_between_two_executions_ends_the_second_before_its_program(job: Any) -> None:
    # given an execution that has saved
    config = job.folder / "cfg.yaml"
    config.write_text("lr: 1")
    given: dict[str, Any] = {"identity": {}, "identity_from": {"config": "file:cfg.yaml"}}
    assert job.python(SAVE, **given).returncode == 0
    # when the file is another one in the second execution
    config.write_text("lr: 2")
    ended = job.run(*TOUCH, number=2, **given)
    # then it exits before the program, names the field, and leaves its word
    assert ended.returncode == 192
    assert ended.stderr.count(b"\n") == 1
    assert b"config changed since the job began: config (file:cfg.yaml) was sha256:" in ended.stderr
    assert not (job.folder / "ran").exists()
    assert (job.exit_note(2).program_started, job.exit_note(2).own_exit_code) == (False, 192)
    assert "config changed since" in job.journal("fault", 2)[0]["text"]
    # and restored, a third one goes on from the first one's save
    config.write_text("lr: 1")
    ended = job.run(*TOUCH, number=3, **given)
    assert (ended.returncode, b"step=1\n" in ended.stdout) == (0, True)


def test_the_first_execution_is_held_against_what_the_supervisor_saw(job: Any) -> None:
    (job.folder / "cfg.yaml").write_text("lr: 2")
    ended = job.run(*TOUCH, identity={"config": sha256("lr: 1")}, identity_from={"config": "file:cfg.yaml"})
    assert ended.returncode == 192
    assert not (job.folder / "ran").exists()
    assert started(job)["identity"] == {"config": sha256("lr: 2")}
    assert os.listdir(job.root / "identity") == []


@pytest.mark.parametrize(("first", "second"), [(None, ""), ("", None), ("1", "2")])
def test_a_variable_that_is_not_set_is_not_one_that_is_empty(job: Any, first: str | None, second: str | None) -> None:
    given: dict[str, Any] = {"identity_from": {"user": "env:WHO"}}
    assert job.run("true", variables={"WHO": first}, **given).returncode == 0
    assert job.run("true", variables={"WHO": first}, number=2, **given).returncode == 0
    ended = job.run(*TOUCH, variables={"WHO": second}, number=3, **given)
    assert (ended.returncode, b"user (env:WHO) was " in ended.stderr) == (192, True)


def test_a_provider_that_cannot_answer_is_named_with_every_other(job: Any) -> None:
    # given three that cannot, and one that can
    os.mkfifo(job.folder / "fifo")
    (job.folder / "a").touch()
    providers = {"config": "file:nothing", "code": "git:.", "data": "file:fifo", "a": "file:a"}
    # when
    ended = job.run(*TOUCH, identity_from=providers)
    # then
    assert ended.returncode == 192
    assert b"identity field code, config, data cannot be told: " in ended.stderr
    for said in (b"git:.: git rev-parse", b"file:nothing: ", b"file:fifo: "):
        assert said in ended.stderr
    assert not (job.folder / "ran").exists()
    assert set(started(job)["identity"]) == {"a"}
    # and nothing is taken for what the first execution found
    assert os.listdir(job.root / "identity") == []


def git(place: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *words],
        cwd=place,
        env={**environment_without("GIT_"), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        check=True,
    )


@pytest.fixture
def code(job: Any) -> Path:
    """A repository in the job's folder."""
    place = Path(job.folder) / "code"
    place.mkdir()
    (place / "train.py").write_text("one")
    git(place, "init", "--quiet")
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "-m", "x")
    return place


def test_changed_code_goes_on_where_the_schema_of_checkpoints_is_declared_and_stays(job: Any, code: Path) -> None:
    # given an execution with a declared schema that has saved
    schema = {"checkpoint_schema": "sha256:3", "code": state_of_repository(str(code))[0]}
    given: dict[str, Any] = {"identity": schema, "identity_from": {"code": "git:code"}}
    assert job.python(SAVE, **given).returncode == 0
    assert started(job)["commit"] == {"code": schema["code"].removeprefix("git:")}
    assert started(job)["notes"] == []
    # when the code changes
    (code / "train.py").write_text("two")
    ended = job.run(*TOUCH, number=2, **given)
    # then it goes on from the save, and both differences are told
    assert (ended.returncode, b"step=1\n" in ended.stdout) == (0, True)
    [note, of_save] = [entry["text"] for entry in job.journal("note", 2)]
    assert note.startswith("the code has changed since the job began, its checkpoint_schema has not: code (git:code)")
    assert of_save.startswith("the code has changed since 'exec/")
    assert started(job, 2)["notes"] == [note]
    assert note.encode() in ended.stdout
    # and it is what it is now
    assert started(job, 2)["identity"]["code"].startswith(f"{schema['code']}+")


def test_changed_code_without_a_schema_ends_the_execution(job: Any, code: Path) -> None:
    given: dict[str, Any] = {"identity_from": {"code": "git:code/train.py"}}
    assert job.run("true", **given).returncode == 0
    git(code, "commit", "--quiet", "--allow-empty", "-m", "y")
    ended = job.run(*TOUCH, number=2, **given)
    assert (ended.returncode, b"code (git:code/train.py) was git:" in ended.stderr) == (192, True)


def test_a_folder_of_data_is_looked_at_in_depth(job: Any) -> None:
    (job.folder / "data" / "d").mkdir(parents=True)
    (job.folder / "data" / "d" / "x").write_text("1")
    given: dict[str, Any] = {
        "identity": {"data": digest_of_path(str(job.folder / "data"))},
        "identity_from": {"data": "file:data"},
    }
    assert job.run("true", **given).returncode == 0
    (job.folder / "data" / "d" / "y").touch()
    assert job.run("true", number=2, **given).returncode == 192


def test_generations_have_a_reference_each_and_the_first_one_stays(job: Any) -> None:
    given: dict[str, Any] = {"identity_from": {"user": "env:WHO"}}
    for number, generation, who, code in [(1, 0, "a", 0), (2, 0, "b", 192), (3, 1, "b", 0), (4, 1, "a", 192)]:
        ended = job.run("true", number=number, generation=generation, variables={"WHO": who}, **given)
        assert ended.returncode == code, ended.stderr
    store = job.lineage_root.store
    assert [read_reference(store, generation)["user"] for generation in (0, 1)] == [sha256("a"), sha256("b")]


def test_a_reference_that_is_none_is_an_error_and_a_fault_of_the_root(job: Any) -> None:
    # given
    given: dict[str, Any] = {"identity_from": {"user": "env:WHO"}}
    assert job.run("true", **given).returncode == 0
    folder = job.root / "identity"
    [reference] = folder.iterdir()
    reference.write_text("{}")
    (folder / "none.json").write_text("{}")
    # when
    ended = job.run(*TOUCH, number=2, **given)
    checked = job.command("check", str(job.root))
    # then
    assert (ended.returncode, (job.folder / "ran").exists()) == (65, False)
    assert checked.returncode == 65
    assert f"identity/{reference.name}" in checked.stdout and "identity/none.json is no generation's" in checked.stdout


def test_a_notice_while_providers_are_asked_ends_the_execution_and_what_it_asked(
    job: Any, code: Path, wait_until: Any, alive: Any, end: Any
) -> None:
    # given a git that takes its time
    tools = job.folder / "tools"
    tools.mkdir()
    (tools / "git").write_text(f"#!/bin/sh\necho $$ > {job.folder}/asked\nexec sleep 600\n")
    (tools / "git").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    process = job.start(*TOUCH, identity_from={"code": "git:code"}, variables={"PATH": path})
    pid = job.pid("asked")
    # when the wrapper is told to end
    process.terminate()
    ended = end(process)
    # then it does, and git with it
    assert ended.returncode == 143
    assert not alive(pid)
    assert not (job.folder / "ran").exists()


def test_what_is_no_provider_in_a_document_is_a_usage_error(job: Any) -> None:
    ended = job.run(*TOUCH, identity_from={"user": "WHO"})
    assert ended.returncode == 2
    assert b"identity_from.user 'WHO' is no provider; use file:PATH, git:PATH or env:NAME" in ended.stderr
    assert not job.root.exists()
