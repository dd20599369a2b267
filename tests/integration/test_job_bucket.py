"""A real execution whose root is in a bucket: its saves go there, and the next one's comes from there."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from prefect_dispatch.stores.s3_place import S3Place

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


def test_saves_by_message_with_and_without_a_file(bucket_job: Any) -> None:
    program = BEGIN + (
        "open(folder + '/s', 'w').write('one')\n"
        "print('openjd_checkpoint_save: ' + json.dumps({'state': 'first', 'file': folder + '/s'}), flush=True)\n"
        "time.sleep(1.5)\n"
        "print('openjd_checkpoint_save: ' + json.dumps({'state': 'second'}), flush=True)\n"
    )
    ended = bucket_job.python(program, saves={"kind": "messages"})
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
    assert not brought & {"obstore", "s3fs", "fsspec", "botocore", "s3", "s3_access", "s3_mover", "workplace"}
