"""The blocks: Prefect's own test suite, registration through the entry point, and loading by name in a spec."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any

import pytest
from prefect.plugins import load_prefect_collections
from prefect.testing.standard_test_suites.blocks import BlockStandardTestSuite

from prefect_dispatch.blocks import CheckpointStore, CommandSignal, LocalScheduler
from prefect_dispatch.errors import SpecError, UsageError


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
    }


def test_a_spec_names_its_blocks_and_the_record_does_not_need_them_any_more(operator):
    # given
    async def save() -> None:
        await CheckpointStore(root=str(operator.runs)).asave("bench-store", overwrite=True)
        settings: dict[str, Any] = {"state_folder": str(operator.folder / "state"), "slots": 1}
        await LocalScheduler(**settings).asave("bench-slots", overwrite=True)

    operator.ask(save)
    operator.write_job("print('hello')", store="checkpoint-store/bench-store", scheduler="local-scheduler/bench-slots")
    # when
    done = operator.submit()
    # then
    assert done.returncode == 0, done.stderr
    (opened,) = operator.facts("opened")
    assert opened.root == str(operator.runs)
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


def test_an_object_store_is_refused_by_name():
    store = CheckpointStore(root="s3://bucket/runs")
    with pytest.raises(UsageError, match="s3://bucket/runs"):
        store.open("digits")
    with pytest.raises(UsageError, match="s3://bucket/records"):
        _ = CheckpointStore(root="/runs", record_root="s3://bucket/records").records


def test_a_setting_that_cannot_be_is_refused_in_one_line():
    with pytest.raises(SpecError, match=r"scheduler\.linger"):
        LocalScheduler(linger=timedelta(seconds=-5)).open()
