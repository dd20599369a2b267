"""A real execution whose root is in a bucket: its saves go there, and the next one's comes from there."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prefect_dispatch.blocks.resolve import resolve
from prefect_dispatch.errors import StoreUnreachable
from prefect_dispatch.model.facts import Outcome
from prefect_dispatch.model.spec import JobSpec
from prefect_dispatch.stores.reports import read_report
from prefect_dispatch.stores.s3_accesses import use_access
from prefect_dispatch.stores.s3_place import S3Place
from prefect_dispatch.supervisor.assemble import plan_of, supervisor_of
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.opening import open_lineage
from prefect_dispatch.supervisor.places import known_lineages, open_record
from prefect_dispatch.supervisor.reports_view import ReportsView
from support.s3.access import access_to, new_url, store_at
from support.waiting import until

HELPER = f"{sys.executable} -m prefect_dispatch.job"
BEGIN = "import os, sys, time, json\nfolder = os.environ['DISPATCH_EXEC_DIR']\nenv = os.environ\n"
SAVE = (
    "def save(name, step, content):\n"
    "    os.makedirs(f'{folder}/{name}/deep/er')\n"
    "    open(f'{folder}/{name}/model.bin', 'wb').write(content)\n"
    "    open(f'{folder}/{name}/deep/er/.état [1]', 'w').write('deep')\n"
    "    os.symlink('model.bin', f'{folder}/{name}/latest')\n"
    "    open(f'{folder}/{name}/.complete', 'w').write(str(step))\n"
)
RESUMED = (
    "source = env['DISPATCH_RESUME_FROM']\n"
    "walk = {os.path.relpath(os.path.join(at, name), source): os.path.join(at, name)"
    " for at, _, names in os.walk(source) for name in names}\n"
    "found = {name: os.readlink(path) if os.path.islink(path) else open(path, 'rb').read().decode('latin-1')"
    " for name, path in walk.items()}\n"
    "print('RESUMED', json.dumps([env['DISPATCH_RESUME_STEP'], found]))\n"
)
MARKER = {"kind": "marker", "marker": ".complete"}


def test_a_save_goes_to_the_bucket_and_the_next_execution_resumes_from_it_elsewhere(bucket_job: Any) -> None:
    # given an execution that saves once
    first = bucket_job.python(BEGIN + SAVE + "save('step-7', 7, b'weights')\n", saves=MARKER)
    assert first.returncode == 0, first.stdout
    assert bucket_job.steps() == [7]
    # when the next one starts on another machine, whose workplaces are elsewhere
    elsewhere = bucket_job.folder / "else where"
    again = bucket_job.python(BEGIN + RESUMED, number=2, saves=MARKER, variables={"DISPATCH_WORKPLACE": str(elsewhere)})
    # then it has the same files, links included
    assert again.returncode == 0, again.stdout
    assert b'"model.bin": "weights"' in again.stdout
    assert b'"latest": "model.bin"' in again.stdout
    assert b"tat [1]" in again.stdout and b'"deep"' in again.stdout
    assert b'RESUMED ["7"' in again.stdout
    # and nothing is left on either machine, and the root is sound
    assert os.listdir(bucket_job.workplaces) == [] and os.listdir(elsewhere) == []
    assert b"all that was in it is published" in first.stdout
    assert bucket_job.lineage_root.check() == []


def test_every_file_of_a_manifest_carries_the_digest_of_what_was_sent(bucket_job: Any) -> None:
    bucket_job.python(BEGIN + SAVE + "save('step-7', 7, b'w' * 100_000)\n", saves=MARKER)
    store = bucket_job.store
    ledger = store.ledger(f"meta/{bucket_job.attempt()}/saves")
    (name,) = ledger.names()
    assert ledger.read(name).count(b'"sha256":') == 3


def test_the_workplace_is_private_and_what_was_not_published_stays_in_it_and_is_told(bucket_job: Any) -> None:
    program = (
        BEGIN
        + SAVE
        + (
            "save('step-7', 7, b'weights'); open(folder + '/notes', 'w').write('mine')\n"
            "print('MODE', oct(os.stat(os.path.join(folder, '..', '..')).st_mode & 0o777))\n"
        )
    )
    ended = bucket_job.python(program, saves=MARKER)
    assert b"MODE 0o700" in ended.stdout
    assert (bucket_job.exec_folder() / "notes").read_text() == "mine"
    assert os.listdir(bucket_job.exec_folder()) == ["notes"]
    (line,) = [line for line in ended.stdout.splitlines() if b"were not published" in line]
    assert str(bucket_job.exec_folder()).encode() in line and b"1 files with 4 bytes" in line


def test_a_program_that_never_starts_leaves_nothing_that_was_restored_for_it(bucket_job: Any) -> None:
    # given a save, and an execution whose program cannot be executed
    assert bucket_job.python(BEGIN + SAVE + "save('step-7', 7, b'weights')\n", saves=MARKER).returncode == 0
    (bucket_job.folder / "broken").write_bytes(b"\x7fELF")
    (bucket_job.folder / "broken").chmod(0o755)
    # when
    ended = bucket_job.run("./broken", number=2, saves=MARKER)
    # then it was to resume, and its workplace is gone
    assert ended.returncode == 2 and b"resume" in ended.stdout, ended.stderr
    assert os.listdir(bucket_job.workplaces) == []


def test_a_program_publishes_by_itself(bucket_job: Any) -> None:
    # given a program that publishes one save twice, written over in between, and then looks for the latest
    program = BEGIN + (
        "import subprocess\n"
        "def run(*words): return subprocess.run([sys.executable, '-m', 'prefect_dispatch.job', *words],"
        " capture_output=True, text=True)\n"
        "for step in (1, 2):\n"
        "    open(folder + '/last.pt', 'w').write(f'weights {step}')\n"
        "    done = run('publish', folder + '/last.pt', '--step', str(step))\n"
        "    assert done.returncode == 0, done.stderr\n"
        "print('LATEST', run('latest', '--json').stdout)\n"
    )
    ended = bucket_job.python(program, saves={"kind": "explicit"})
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    assert bucket_job.steps() == [1, 2]
    assert b'"step": 2' in ended.stdout
    # then the next execution has the second
    again = bucket_job.python(
        BEGIN + "print('GOT', open(env['DISPATCH_RESUME_FROM']).read())\n", number=2, saves={"kind": "explicit"}
    )
    assert b"GOT weights 2" in again.stdout, again.stdout


def test_saves_by_message_with_and_without_a_file(bucket_job: Any, end: Any) -> None:
    # given a program that says its second save only when the first one is published
    gate = bucket_job.folder / "gate"
    program = BEGIN + (
        "open(folder + '/s', 'w').write('one')\n"
        "print('openjd_checkpoint_save: ' + json.dumps({'state': 'first', 'file': folder + '/s'}), flush=True)\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "print('openjd_checkpoint_save: ' + json.dumps({'state': 'second'}), flush=True)\n"
    )
    process = bucket_job.start(sys.executable, "-c", program, saves={"kind": "messages"})
    root = bucket_job.lineage_root
    until(lambda: root.publications(), "the first is published")
    gate.touch()
    # when it has ended, then both are there, and the next execution has the second
    ended = end(process)
    assert ended.returncode == 0, ended.stdout
    assert bucket_job.steps() == [1, 2]
    again = bucket_job.python(
        BEGIN + "print('STATE', env['DISPATCH_RESUME_STATE'])\n", number=2, saves={"kind": "messages"}
    )
    assert b"STATE second" in again.stdout, again.stdout
    assert bucket_job.lineage_root.check() == []


def test_a_short_or_changed_object_is_never_resumed_from(bucket_job: Any) -> None:
    # given two saves, of which the newer's object was cut, and then replaced by other bytes of its size
    program = BEGIN + SAVE + "save('step-1', 1, b'old weights')\nsave('step-2', 2, b'new weights')\n"
    bucket_job.python(program, saves=MARKER)
    client, place = bucket_job.server.client(), S3Place.parse(f"{bucket_job.url}/{bucket_job.lineage}")
    key = place.key(f"exec/{bucket_job.attempt()}/step-2/model.bin")
    for number, content in ((2, b"new"), (3, b"XXX weights")):
        client.put_object(Bucket=place.bucket, Key=key, Body=content)
        # when an execution starts
        again = bucket_job.python(BEGIN + RESUMED, number=number, saves=MARKER)
        # then it resumes from the older one and says why
        assert b'RESUMED ["1"' in again.stdout, again.stdout
        assert b"passed over" in again.stdout


def test_of_several_manifests_the_one_that_the_bucket_keeps_to_is_resumed_from(bucket_job: Any) -> None:
    # given a save whose object was replaced by other bytes of its size, and manifests of both
    bucket_job.python(BEGIN + SAVE + "save('step-2', 2, b'a' * 100)\n", saves=MARKER)
    client, place = bucket_job.server.client(), S3Place.parse(f"{bucket_job.url}/{bucket_job.lineage}")
    content = b"b" * 100
    key = place.key(f"exec/{bucket_job.attempt()}/step-2/model.bin")
    client.put_object(Bucket=place.bucket, Key=key, Body=content)
    ledger = bucket_job.store.ledger(f"meta/{bucket_job.attempt()}/saves")
    (name,) = ledger.names()
    document = json.loads(ledger.read(name))
    (entry,) = (file for file in document["files"] if file["path"] == "model.bin")
    entry["sha256"], document["nonce"] = hashlib.sha256(content).hexdigest(), "f" * 16
    ledger.create(f"{name[:-21]}{'f' * 16}.json", json.dumps(document).encode())
    # when an execution starts
    again = bucket_job.python(BEGIN + RESUMED, number=2, saves=MARKER)
    # then it resumes from what is there, and was published too
    assert b'RESUMED ["2"' in again.stdout, again.stdout
    assert content in again.stdout


def test_nothing_of_the_credentials_is_in_the_bucket_the_log_or_a_command_line(bucket_job: Any) -> None:
    program = (
        BEGIN
        + SAVE
        + (
            "save('step-7', 7, b'weights')\n"
            "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
            "    try: line = open(f'/proc/{pid}/cmdline').read()\n"
            "    except OSError: continue\n"
            "    if 'tests-secret' in line and int(pid) != os.getpid(): print('SEEN')\n"
        )
    )
    ended = bucket_job.python(program.replace("'tests-secret'", "'tests-' + 'secret'"), saves=MARKER)
    assert ended.returncode == 0
    secret = bucket_job.server.secret.encode()
    assert secret not in ended.stdout + ended.stderr and b"SEEN" not in ended.stdout
    client = bucket_job.server.client()
    prefix = bucket_job.url.split("/", 3)[3]
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket_job.server.bucket, Prefix=prefix):
        for entry in page["Contents"]:
            content = client.get_object(Bucket=bucket_job.server.bucket, Key=entry["Key"])["Body"].read()
            assert secret not in content and bucket_job.server.key.encode() not in content


def test_a_root_whose_bucket_is_not_there_ends_in_one_line_that_names_it(bucket_job: Any) -> None:
    ended = bucket_job.python("pass", root="s3://no-such-bucket/x", variables={"AWS_ACCESS_KEY_ID": "wrong"})
    assert ended.returncode == 69
    assert ended.stderr.count(b"\n") == 1
    assert bucket_job.server.endpoint.encode() in ended.stderr and b"credentials" in ended.stderr


def test_a_helper_of_a_folder_imports_nothing_of_s3() -> None:
    program = (
        "import sys\nfrom prefect_dispatch.job.execution import lineage_root_at\nimport prefect_dispatch.job.run\n"
        "lineage_root_at('/nowhere')\nprint(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    brought = {name.split(".")[-1] for name in ran.stdout.split()}
    assert not brought & {
        "obstore",
        "s3fs",
        "fsspec",
        "botocore",
        "s3",
        "s3_access",
        "s3_mover",
        "s3_bucket",
        "workplace",
    }


def test_the_last_word_lies_beside_the_record_for_who_cannot_see_the_root(job: Any, s3_server: Any) -> None:
    # given a root on a file system of the job's own, and a record in a bucket
    record_root = new_url(s3_server, "records")
    record = store_at(s3_server, f"{record_root}/{job.lineage}")
    at = {"record_root": record_root, "saves": MARKER, "variables": s3_server.environment()}
    # when one execution saves and says that it has failed, another one cannot start, and a third is killed
    job.python(BEGIN + SAVE + "save('step-7', 7, b'weights')\nprint('openjd_fail: no more data')\n", **at)
    assert job.run("true", number=2, identity={"seed": "8"}, **at).returncode == 192
    killed = job.start("sleep", "60", number=3, **at)
    until(lambda: job.root.joinpath("exec", job.attempt(3)).exists())
    killed.kill()
    # then a supervisor that has the record alone knows how the first two ended, and of the third nothing
    reports = ReportsView(record)
    first, second, third = (reports.last_word(job.attempt(number)) for number in (1, 2, 3))
    assert first is not None and second is not None
    assert (first.claimed, first.program_started) == (True, True) and "no more data" in first.detail
    assert second.program_started is False and "seed" in second.detail
    assert third is None
    report = read_report(record, job.attempt(1))
    assert report is not None and report.published == 1


def test_a_lineage_is_opened_whose_root_is_out_of_reach_here(s3_server: Any, tmp_path: Path) -> None:
    # given a root on a file system where nothing can be made here, and a record in a bucket
    record_root = new_url(s3_server, "records")
    use_access(record_root, access_to(s3_server))
    fields = {"lineage": "digits", "command": ["true"], "scheduler": {"type": "local", "state_folder": str(tmp_path)}}
    store = {"root": "/proc/nowhere/root", "record_root": record_root}
    resolved = asyncio.run(resolve(JobSpec.read({**fields, "store": store}, "job"), tmp_path))
    record = open_record(record_root, "digits", SystemClock())
    # when it is opened
    state = open_lineage(record, resolved, plan_of(resolved))
    # then it is the job that makes the root, and the submission tells it where the record is
    assert state.opened is not None and not state.opened.root_prepared
    supervisor = supervisor_of(record, state, SystemClock())
    assert supervisor.root is None or supervisor.root.publications() is None
    assert known_lineages(record_root) == ["digits"]
    # but without a record root of its own it is refused
    only = JobSpec.read({**fields, "lineage": "other", "store": {"root": store["root"]}}, "job")
    refused = asyncio.run(resolve(only, tmp_path))
    with pytest.raises(StoreUnreachable):
        open_lineage(open_record(record_root, "other", SystemClock()), refused, plan_of(refused))


def test_a_job_runs_to_its_end_whose_record_alone_is_in_a_bucket(s3_server: Any, tmp_path: Path) -> None:
    # given a job whose checkpoints are in a folder, and whose record is in a bucket
    record_root = new_url(s3_server, "records")
    use_access(record_root, access_to(s3_server))
    fields = {
        "lineage": "digits",
        "command": [sys.executable, "-c", BEGIN + SAVE + "save('step-7', 7, b'weights')\n"],
        "scheduler": {"type": "local", "state_folder": str(tmp_path / "state")},
        "store": {"root": str(tmp_path / "saves"), "record_root": record_root},
        "saves": MARKER,
    }
    resolved = asyncio.run(resolve(JobSpec.read(fields, "job"), tmp_path))
    record = open_record(record_root, "digits", SystemClock())
    supervisor = supervisor_of(record, open_lineage(record, resolved, plan_of(resolved)), SystemClock())
    # when it is supervised
    state = until(lambda: (now := asyncio.run(supervisor.advance()).state).finished and now, "it is finished")
    # then it ends well, whoever reads the record anew finds the same, and nothing of it is in the folder
    assert state.finished.outcome is Outcome.SUCCEEDED
    assert open_record(record_root, "digits", SystemClock()).refresh().finished == state.finished
    assert known_lineages(record_root) == ["digits"]
    assert len(list((tmp_path / "saves" / "digits" / "pub").iterdir())) == 1
    assert not list((tmp_path / "saves").rglob("record*"))
