"""The blocks: Prefect's own test suite, registration through the entry point, and loading by name in a spec."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any

import pytest
from prefect.plugins import load_prefect_collections
from prefect.testing.standard_test_suites.blocks import BlockStandardTestSuite
from prefect_aws.credentials import MinIOCredentials

from prefect_dispatch.blocks import CheckpointStore, CommandSignal, LocalScheduler, SlurmScheduler
from prefect_dispatch.errors import SpecError, UsageError
from prefect_dispatch.supervisor.clock import SystemClock
from prefect_dispatch.supervisor.places import open_record
from support.s3.access import new_url


class TestCheckpointStore(BlockStandardTestSuite):
    @pytest.fixture
    def block(self) -> type[CheckpointStore]:
        return CheckpointStore


class TestCommandSignal(BlockStandardTestSuite):
    @pytest.fixture
    def block(self) -> type[CommandSignal]:
        return CommandSignal


def test_a_command_signal_opens_as_it_is_written_and_refuses_what_no_command_is():
    signal = CommandSignal(command=["ssh", "{node}", "gone", "{attempt}"], time_limit=timedelta(seconds=5)).open()
    assert signal.command == ("ssh", "{node}", "gone", "{attempt}") and signal.time_limit == timedelta(seconds=5)
    for wrong in ({"command": []}, {"command": ["{host}"]}, {"command": ["x", "{node}"], "each": "object"}):
        with pytest.raises(ValueError):
            CommandSignal(**wrong)


class TestLocalScheduler(BlockStandardTestSuite):
    @pytest.fixture
    def block(self) -> type[LocalScheduler]:
        return LocalScheduler


class TestSlurmScheduler(BlockStandardTestSuite):
    @pytest.fixture
    def block(self) -> type[SlurmScheduler]:
        return SlurmScheduler


def test_a_slurm_scheduler_opens_as_it_is_written_and_refuses_what_it_cannot_do():
    block = SlurmScheduler(partition="low", warning_signal="SIGUSR1", poll_interval=timedelta(seconds=5))
    assert block.settings()["warning_signal"] == "USR1" and block.settings()["partition"] == "low"
    assert block.open().capabilities.poll_interval == timedelta(seconds=5)
    wrong: list[dict[str, Any]] = [
        {"warning_signal": "KILL"},
        {"options": {"requeue": ""}},
        {"cessation_command": ["{host}"]},
        {"history": timedelta(hours=1)},
    ]
    for each in wrong:
        with pytest.raises(ValueError):
            SlurmScheduler(**each)


def test_prefect_finds_the_blocks_by_the_entry_point():
    # given
    (point,) = entry_points(group="prefect.collections", name="prefect_dispatch")
    # when
    collections = load_prefect_collections()
    # then
    assert "prefect_dispatch" in collections
    assert {block.__name__ for block in vars(point.load()).values() if isinstance(block, type)} == {
        "CheckpointStore",
        "CommandSignal",
        "LocalScheduler",
        "SlurmScheduler",
    }


def test_a_spec_names_its_blocks_and_the_record_does_not_need_them_any_more(operator):
    # given
    async def save() -> None:
        await CheckpointStore(root=operator.root).asave("bench-store", overwrite=True)
        settings: dict[str, Any] = {"state_folder": str(operator.folder / "state"), "slots": 1}
        await LocalScheduler(**settings).asave("bench-slots", overwrite=True)

    operator.ask(save)
    operator.write_job("print('hello')", store="checkpoint-store/bench-store", scheduler="local-scheduler/bench-slots")
    # when
    done = operator.submit()
    # then
    assert done.returncode == 0, done.stderr
    (opened,) = operator.facts("opened")
    assert opened.root == operator.root
    assert opened.scheduler["type"] == "local"
    assert operator.run("logs", "digits").stdout.splitlines()[1] == "hello"


def test_a_block_that_is_not_there_is_named(operator):
    # given
    operator.write_job("pass", store="checkpoint-store/nowhere")
    # when
    done = operator.submit()
    # then
    assert done.returncode == 2
    assert "checkpoint-store/nowhere" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_store_shows_its_publications_and_files(tmp_path):
    # given
    store = CheckpointStore(root=str(tmp_path))
    root = store.open("digits")
    root.prepare("", "digits")
    # when / then
    assert store.publications("digits") == []
    assert (store.checkpoint_root, store.records) == (str(tmp_path), str(tmp_path))
    assert "digits" in {entry.rsplit("/", 1)[-1] for entry in store.filesystem().ls("", detail=False)}
    assert asyncio.run(LocalScheduler(state_folder=str(tmp_path / "state")).open().observe([])) == {}


def test_a_store_that_there_is_not_is_refused_by_name():
    store = CheckpointStore(root="gs://bucket/runs")
    with pytest.raises(UsageError, match="gs://bucket/runs"):
        store.open("digits")
    with pytest.raises(UsageError, match="s3://B/records"):
        _ = CheckpointStore(root="/runs", record_root="s3://B/records").records


def test_a_bucket_is_opened_by_the_credentials_of_a_block_and_so_is_its_job(operator, s3_server):
    # given a block with a server's credentials, and an environment that has others
    root = new_url(s3_server, "blocks")
    parameters = {"endpoint_url": s3_server.endpoint}
    credentials = MinIOCredentials(
        minio_root_user=s3_server.key, minio_root_password=s3_server.secret, aws_client_parameters=parameters
    )
    store = CheckpointStore(root=root, credentials=credentials)
    operator.ask(lambda: store.asave("bench-bucket", overwrite=True))
    wrong = {"AWS_ACCESS_KEY_ID": "other", "AWS_SECRET_ACCESS_KEY": "other", "AWS_SESSION_TOKEN": "other"}
    operator.write_job(
        "import os; open(os.environ['DISPATCH_EXEC_DIR'] + '/s', 'w').write('x')\n"
        "open(os.environ['DISPATCH_EXEC_DIR'] + '/s.complete', 'w').write('7')",
        store="checkpoint-store/bench-bucket",
    )
    # when
    done = operator.submit(**wrong, AWS_ENDPOINT_URL="http://127.0.0.1:1", DISPATCH_STORE="")
    # then
    assert done.returncode == 0, done.stderr
    assert [publication.step for publication in store.publications("digits")] == [7]
    record = open_record(root, "digits", SystemClock())
    written = "".join(entry.model_dump_json() for entry in record.entries()) + done.stdout + done.stderr
    written += "".join(path.read_text() for path in (operator.folder / "state").rglob("*") if path.is_file())
    assert s3_server.secret not in written
    assert {"digits"} == {entry.rsplit("/", 1)[-1] for entry in store.filesystem().ls("", detail=False)} - {".dispatch"}


def test_a_setting_that_cannot_be_is_refused_in_one_line():
    with pytest.raises(SpecError, match=r"scheduler\.linger"):
        LocalScheduler(linger=timedelta(seconds=-5)).open()
