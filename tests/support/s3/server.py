"""Real S3 servers on the loopback, each on ports of its own: ready when it keeps an object, stopped by its pid."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.environment import environment_without
from support.tied import tied

KEY = "tests-key"
SECRET = "tests-secret-of-nobody"
BUCKET = "saves"
START_WITHIN = 60.0
STOP_WITHIN = 1.0
"""What it kept is thrown away, and SeaweedFS takes half a minute to close its files."""
_BIN = Path(sys.executable).parent
_GRPC = 10_000
"""SeaweedFS listens for its own parts on each port plus this."""


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        kind: which program it is.
        endpoint: its URL.
        pid: its process, which leads a group of its own.
        log: where it writes.
    """

    kind: str
    endpoint: str
    pid: int
    log: Path
    bucket: str = BUCKET
    key: str = KEY
    secret: str = SECRET

    def environment(self, **changes: str) -> dict[str, str]:
        """The variables by which a job finds it."""
        own = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        return {**own, **changes}

    def client(self) -> Any:
        """A boto3 client, which is nothing of ours."""
        return client_of(self.endpoint, self.key, self.secret)


@functools.cache
def client_of(endpoint: str, key: str = KEY, secret: str = SECRET, tries: int = 1) -> Any:
    """A boto3 client for any endpoint."""
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"total_max_attempts": tries, "mode": "standard"},
        max_pool_connections=64,
        s3={"addressing_style": "path"},
        connect_timeout=5,
        read_timeout=30,
    )
    session = boto3.session.Session(aws_access_key_id=key, aws_secret_access_key=secret, region_name="us-east-1")
    return session.client("s3", endpoint_url=endpoint, config=config)


@contextlib.contextmanager
def serve(
    kind: str, folder: Path, bucket: str = BUCKET, policies: Mapping[str, object] | None = None
) -> Iterator[Server]:
    """Run a server while the block runs.

    Args:
        kind: ``seaweed``, which keeps what S3 promises; ``nanio``, which ignores ``If-None-Match``.
        folder: for its data and log.
        bucket: a bucket that is there when it is ready.
        policies: what others than its owner may do, by the key that they have; their secret is the same. For
            ``seaweed`` alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    arguments, variables = _COMMANDS[kind](port, folder, policies or {})
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            tied(*arguments),
            cwd=folder,
            env={**environment_without("AWS_", "DISPATCH_"), **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    server = Server(kind, f"http://127.0.0.1:{port}", process.pid, log, bucket)
    try:
        _wait_until_ready(server, process)
        yield server
    finally:
        _stop(process)


def free_port() -> int:
    """A port that is free together with those that SeaweedFS derives from it."""
    choice = random.Random()
    for _ in range(200):
        port = choice.randrange(20_000, 32_000 - 3_000)
        if all(_is_free(port + part + extra) for part in (0, 1000, 1001, 1002) for extra in (0, _GRPC)):
            return port
    raise AssertionError("no free ports on the loopback")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _seaweed(port: int, folder: Path, policies: Mapping[str, object]) -> tuple[list[str], dict[str, str]]:
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": actions,
    }
    configuration = folder / "s3.json"
    others = [
        {"name": key, "credentials": [{"accessKey": key, "secretKey": SECRET}], "policyNames": [key]}
        for key in policies
    ]
    documents = [{"name": key, "content": json.dumps(policy)} for key, policy in policies.items()]
    configuration.write_text(json.dumps({"identities": [identity, *others], "policies": documents}))
    data = folder / "data"
    data.mkdir(exist_ok=True)
    # Every port is written out, everything stays on the loopback, and nothing is reported to anybody.
    return [
        str(_BIN / "weed"),
        "-logtostderr=true",
        "-v=0",
        "server",
        f"-dir={data}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={port + 1000}",
        f"-volume.port={port + 1001}",
        f"-filer.port={port + 1002}",
        "-filer",
        "-s3",
        f"-s3.port={port}",
        f"-s3.config={configuration}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.volumeSizeLimitMB=1024",
        "-volume.max=40",
        "-volume.minFreeSpace=1GiB",
        "-volume.preStopSeconds=0",
        "-master.electionTimeout=1s",
        "-master.telemetry=false",
    ], {}


def _nanio(port: int, folder: Path, policies: Mapping[str, object]) -> tuple[list[str], dict[str, str]]:
    data = folder / "data"
    data.mkdir(exist_ok=True)
    arguments = [
        *(str(_BIN / "nanio"), "serve", "--host", "127.0.0.1", "--port", str(port)),
        *("--data-dir", str(data), "--no-access-log"),
    ]
    return arguments, {"NANIO_ACCESS_KEY": KEY, "NANIO_SECRET_KEY": SECRET}


_COMMANDS: dict[str, Callable[[int, Path, Mapping[str, object]], tuple[list[str], dict[str, str]]]] = {
    "seaweed": _seaweed,
    "nanio": _nanio,
}


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes]) -> None:
    """Ready is who has a bucket and keeps an object: SeaweedFS makes buckets before it can take anything into them."""
    client = server.client()
    until = time.monotonic() + START_WITHIN
    while True:
        try:
            try:
                client.create_bucket(Bucket=server.bucket)
            except Exception as error:
                if "BucketAlready" not in str(error):
                    raise
            client.put_object(Bucket=server.bucket, Key="ready", Body=b"ready")
            assert client.get_object(Bucket=server.bucket, Key="ready")["Body"].read() == b"ready"
            client.delete_object(Bucket=server.bucket, Key="ready")
        except Exception:
            tail = server.log.read_text(errors="replace")[-3000:]
            assert process.poll() is None, f"{server.kind} ended with {process.returncode}: {tail}"
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
