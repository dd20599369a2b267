"""When a save of the Hugging Face Trainer is whole. The files are made as the Trainer makes them, in its order."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from prefect_dispatch.errors import Unpublishable
from prefect_dispatch.job.trainer_watch import STATE, TrainerWatch
from prefect_dispatch.job.watch import Found
from prefect_dispatch.job.whole_files import is_whole_file


def zipped(content: bytes = b"tensor") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", content)
    return file.getvalue()


def tensors(size: int = 64) -> bytes:
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


FILES = {
    "config.json": b"{}",
    "model.safetensors": tensors(),
    "training_args.bin": zipped(),
    "optimizer.pt": zipped(),
    "scheduler.pt": zipped(),
    "rng_state.pth": zipped(),
}
FIRST = 1_700_000_000 * 10**9


def save(folder: Path, step: int, named: int | None = None, at: int = FIRST, **changes: bytes | None) -> Path:
    """A whole save, but for the changes: files by name, with ``__`` for the dot; None for one that is not there."""
    place = folder / f"checkpoint-{step if named is None else named}"
    place.mkdir(parents=True, exist_ok=True)
    state = json.dumps({"global_step": step, "log_history": []}).encode()
    files = {**FILES, STATE: state, **{name.replace("__", "."): value for name, value in changes.items()}}
    for number, (name, content) in enumerate(sorted(files.items(), key=lambda item: item[0] == STATE)):
        if content is not None:
            (place / name).write_bytes(content)
            os.utime(place / name, ns=(0, at + number))
    return place


def look(folder: Path, **options: bool) -> list[Found]:
    return TrainerWatch(**options).look(str(folder))


def test_case_1_whole_saves_are_found_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for step in (9, 100, 10):
        save(tmp_path, step)
    for name in ("17", "handpicked", "tmp-checkpoint-12", "checkpoint-007", "checkpoint-x", "checkpoint-11"):
        (tmp_path / name).mkdir()

    assert look(tmp_path) == [Found(f"checkpoint-{step}", step, True) for step in (9, 10, 100)]


def test_an_output_dir_below_the_executions_folder_is_found_too(tmp_path: Path) -> None:
    save(tmp_path / "out" / "run", 5)

    assert look(tmp_path) == [Found("out/run/checkpoint-5", 5, True)]


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer_state__json": None},
        {"trainer_state__json": b""},
        {"trainer_state__json": b'{"global_step": 5, "log_hist'},
        {"trainer_state__json": b'{"global_step": 6}'},
        {"trainer_state__json": b'{"global_step": true}'},
        {"trainer_state__json": b"[5]"},
        {"model__safetensors": None},
        {"model__safetensors": tensors()[:-1]},
        {"model__safetensors": tensors()[:4]},
        {"model__safetensors": b""},
        {"model__safetensors": bytes(len(tensors()))},
        {"optimizer__pt": None},
        {"optimizer__pt": zipped()[:-1]},
        {"optimizer__pt": b""},
        {"scheduler__pt": None},
        {"rng_state__pth": None},
        {"training_args__bin": zipped()[:40]},
        {"__tmpAb3dE": tensors()},
    ],
)
def test_a_save_of_which_anything_is_missing_or_cut_off_is_not_whole(
    tmp_path: Path, changes: dict[str, bytes | None]
) -> None:
    save(tmp_path, 5, **changes)

    assert look(tmp_path) == []


def test_a_save_that_is_written_over_an_older_one_is_whole_once_its_state_is(tmp_path: Path) -> None:
    watch = TrainerWatch()
    place = save(tmp_path, 5)
    (found,) = watch.look(str(tmp_path))
    watch.done_with(found)
    assert watch.look(str(tmp_path)) == []
    # the Trainer writes it again: new weights, and the old state still says that all is well
    (place / "model.safetensors").write_bytes(tensors())
    assert watch.look(str(tmp_path)) == []
    assert not watch.still_whole(str(tmp_path), found)
    # and then the state
    save(tmp_path, 5, at=FIRST + 10**10)
    assert watch.look(str(tmp_path)) == [found]


def test_the_random_state_of_another_rank_may_come_last_and_is_looked_at(tmp_path: Path) -> None:
    place = save(tmp_path, 5, rng_state__pth=None, rng_state_0__pth=zipped())
    late = place / "rng_state_3.pth"
    late.write_bytes(zipped()[:-1])
    assert look(tmp_path) == []
    late.write_bytes(zipped())
    assert look(tmp_path) == [Found("checkpoint-5", 5, True)]


def test_weights_in_several_files_are_whole_when_all_of_them_are_there(tmp_path: Path) -> None:
    parts = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = json.dumps({"weight_map": {"a": parts[0], "b": parts[1]}}).encode()
    sharded: dict[str, bytes | None] = {"model__safetensors": None, "model__safetensors__index__json": index}
    save(tmp_path, 5, **sharded, **{parts[0]: tensors()})
    save(tmp_path, 6, **sharded, **{parts[0]: tensors(), parts[1]: tensors()})

    assert [found.step for found in look(tmp_path)] == [6]


def test_saves_without_an_optimiser_are_whole_only_where_that_is_said(tmp_path: Path) -> None:
    save(tmp_path, 5, optimizer__pt=None, scheduler__pt=None, rng_state__pth=None)

    assert look(tmp_path) == []
    assert look(tmp_path, only_model=True) == [Found("checkpoint-5", 5, True)]


def test_a_program_that_ended_well_and_whose_newest_save_is_not_whole_is_told_why(tmp_path: Path) -> None:
    watch = TrainerWatch()
    save(tmp_path, 4)
    save(tmp_path, 5, optimizer__pt=None)
    watch.look(str(tmp_path), ended_well=True)
    with pytest.raises(Unpublishable, match=r"'checkpoint-5'.*no optimizer\.pt; .*only_model"):
        watch.check_nothing_left()
    # an older one that was taken apart, or one that was never ended, is nobody's fault
    save(tmp_path, 6)
    save(tmp_path, 7, trainer_state__json=None)
    watch.look(str(tmp_path), ended_well=True)
    watch.check_nothing_left()


def test_links_are_not_followed(tmp_path: Path) -> None:
    place = save(tmp_path, 5, model__safetensors=None)
    (tmp_path / "elsewhere.safetensors").write_bytes(tensors())
    (place / "model.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    os.utime(place / "model.safetensors", ns=(0, 0), follow_symlinks=False)
    (tmp_path / "checkpoint-6").symlink_to(save(tmp_path / "away", 6))

    assert [found.path for found in look(tmp_path)] == ["away/checkpoint-6"]


def test_what_no_format_tells_of_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"")
    (tmp_path / "header.safetensors").write_bytes((2).to_bytes(8, "little") + b"[]")

    assert is_whole_file(str(tmp_path / "notes.txt"))
    assert not is_whole_file(str(tmp_path / "header.safetensors"))
