"""A job that looks its identity up, from the command line and on a real Prefect server."""

from __future__ import annotations

import os
import subprocess

from support.environment import environment_without

# Saves once, then waits for the test's word before it ends.
PROGRAM = """
import os, pathlib, time
n = int(os.environ["DISPATCH_EPOCH"]) // 10**6 % 10**6
save = pathlib.Path(os.environ["DISPATCH_EXEC_DIR"]) / f"step-{n}"
save.mkdir()
(save / ".complete").write_text(str(n))
print("from", os.environ["DISPATCH_RESUME_STEP"], flush=True)
pathlib.Path(f"begun-{n}").touch()
while not os.path.exists("go"):
    time.sleep(0.1)
"""
IDENTITY = {"config": "file:cfg.yaml", "code": "git:code", "user": "env:WHO", "seed": 7, "checkpoint_schema": "1"}


def git(place, *words: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *words],
        cwd=place,
        env={**environment_without("GIT_"), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_a_job_whose_config_changes_is_held_by_name_and_goes_on_when_it_is_set_back(operator, json_of, wait_until):
    # given a job with a file, a repository and a variable, whose plan shows them
    config, code = operator.folder / "cfg.yaml", operator.folder / "code"
    config.write_text("lr: 1")
    code.mkdir()
    (code / "net.py").write_text("one")
    git(code, "init", "--quiet")
    git(code, "add", "--all")
    git(code, "commit", "--quiet", "-m", "x")
    commit = git(code, "rev-parse", "HEAD")
    operator.write_job(PROGRAM, identity=IDENTITY, environment={"WHO": "a secret value"})
    planned = operator.run("plan", "job.yaml").stdout
    assert f"git:code       git:{commit[:12]}" in planned
    assert "file:cfg.yaml" in planned and "a secret value" not in planned
    assert json_of(operator.run("plan", "job.yaml", "--json").stdout)["identity"]["code"] == f"git:{commit}"
    # when it is preempted, and its config and code are changed meanwhile
    submit = operator.start("submit", "job.yaml", "--wait")
    first = operator.running(1)
    config.write_text("lr: 2")
    (code / "net.py").write_text("two")
    operator.preempt(first)
    held = operator.finish(submit)
    # then it is held, and the fields are named
    assert held.returncode == 75
    assert "code, config changed since the job began: code (git:code) was git:" in held.stderr
    [fact] = operator.facts("hold_opened")
    assert fact.cause == "identity_changed"
    # and run again without setting it back, it is held again
    assert operator.submit("--run-again").returncode == 75
    # when the config is set back, and the code is not
    config.write_text("lr: 1")
    again = operator.start("submit", "job.yaml", "--wait", "--run-again", "--note", "set back")
    wait_until(lambda: (operator.folder / "begun-4").exists() or again.poll() is not None)
    operator.release()
    done = operator.finish(again)
    # then it goes on from the save of the first, as its schema of checkpoints is the same
    assert done.returncode == 0, done.stderr
    status = json_of(operator.run("status", "digits", "--json").stdout)
    assert [row["cause"] for row in status["executions"]] == [
        *("preempted", "identity_changed", "identity_changed", "completed")
    ]
    assert status["executions"][3]["resumed_from"] == "g0n1r0 step 1"
    [note] = status["executions"][3]["notes"]
    assert note.startswith("the code has changed since the job began, its checkpoint_schema has not: code (git:code)")
    assert note in operator.facts("ended")[-1].detail
    assert {row["identity"]: row["held against"] for row in status["identity"]} == {
        **dict.fromkeys(("config", "code", "user"), "the opening"),
        **dict.fromkeys(("seed", "checkpoint_schema"), "the spec"),
    }
    assert "git:code" in operator.run("status", "digits").stdout
    # and Prefect shows the identity beside the plan
    artifacts = operator.artifacts(operator.carriers()[-1])
    assert "file:cfg.yaml" in str(artifacts["identity-digits"][0].data)
    # and no value of a variable is in the record's facts beside the spec, which names it
    assert "a secret value" not in operator.run("record", "digits", "--json").stdout
