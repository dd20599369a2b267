"""Which save an execution resumes from, on every store."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from prefect_dispatch.errors import (
    Absent,
    DuplicateExecution,
    IdentityChanged,
    MalformedDocument,
    MalformedName,
    StoreError,
    UnusableCheckpoint,
)
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.format.resume_choice import SCRATCH, ResumeChoice
from prefect_dispatch.stores.posix import PosixStore
from prefect_dispatch.stores.s3 import S3Store


def publish_by_hand(bench, publication: Publication) -> Publication:
    """Put a name into ``pub/`` as somebody does who has no business there."""
    bench.write(f"pub/{publication.name}", b"")
    return publication


def write_again(bench, path: str, content: bytes) -> None:
    """Write over a file as a program does some seconds later."""
    bench.write(path, content)
    if isinstance(bench.store, PosixStore):
        place = Path(bench.store.location, path)
        os.utime(place, (place.stat().st_mtime + 5,) * 2)


def needs_times(bench) -> None:
    if isinstance(bench.store, S3Store):
        pytest.skip("objects have no times; a resume from them compares digests, see test_job_bucket")


class TestLatest:
    def test_nothing_published_is_a_start_from_scratch(self, root):
        resume = root.latest()
        assert (resume.publication, resume.manifest, resume.passed_over) == (None, None, ())

    def test_steps_are_numbers_and_the_greatest_wins_whenever_it_was_written(self, root, begin):
        execution = begin()
        for step in (100, 9, 10):
            execution.save(f"checkpoint-{step}", step)
        assert root.latest().publication.step == 100

    def test_the_newer_execution_wins_over_an_old_one_that_goes_on_saving(self, root, begin):
        old, new = begin(0, 1), begin(0, 2)
        saved = new.save("checkpoint-100", 100)
        old.save("checkpoint-9000", 9000)
        assert root.latest().publication == saved

    def test_executions_without_a_save_are_looked_past(self, root, begin):
        saved = begin(0, 1).save("checkpoint-1", 1)
        begin(0, 2), begin(0, 3)
        assert root.latest(below=Epoch(0, 4, 0)).publication == saved

    @pytest.mark.parametrize("damage", ["emptied", "deleted", "folder deleted"])
    def test_a_save_that_is_whole_no_more_is_passed_over_and_named(self, root, bench, begin, damage):
        execution = begin()
        whole, broken = execution.save("checkpoint-1", 1), execution.save("checkpoint-2", 2)
        if damage == "emptied":
            bench.write(f"{broken.path}/model.bin", b"")
        else:
            bench.delete(broken.path if damage == "folder deleted" else f"{broken.path}/model.bin")
        resume = root.latest()
        assert resume.publication == whole
        (passed,) = resume.passed_over
        assert (passed.publication, passed.forged) == (broken, False)
        assert "model.bin" in passed.why

    def test_a_save_of_which_some_files_were_written_again_is_passed_over(self, root, bench, begin):
        needs_times(bench)
        execution = begin()
        whole = execution.save("checkpoint-1", 1)
        bench.write(f"{execution.folder}/checkpoint-2/.complete", b"2")
        torn = execution.save("checkpoint-2", 2, b"weights" * 10)
        write_again(bench, f"{torn.path}/model.bin", b"wei2222" * 10)
        resume = root.latest()
        assert resume.publication == whole
        assert [(entry.publication, entry.why.split()[0]) for entry in resume.passed_over] == [(torn, "model.bin")]
        assert "written again" in resume.passed_over[0].why

    def test_a_root_that_was_copied_without_its_times_can_be_resumed_from(self, root, bench, begin):
        execution = begin()
        bench.write(f"{execution.folder}/checkpoint-2/.complete", b"2")
        saved = execution.save("checkpoint-2", 2)
        for name in (".complete", "model.bin"):
            write_again(bench, f"{saved.path}/{name}", bench.read(f"{saved.path}/{name}"))
        assert root.latest().publication == saved

    def test_saves_that_are_all_broken_are_an_error_that_names_each(self, root, bench, begin):
        execution = begin()
        for step in (1, 2):
            bench.delete(execution.save(f"checkpoint-{step}", step).path)
        with pytest.raises(UnusableCheckpoint, match=r"checkpoint-2.*gone.*checkpoint-1.*gone"):
            root.latest()

    def test_of_several_manifests_of_one_step_any_that_holds_will_do(self, root, bench, begin):
        execution = begin()
        saved = execution.save("checkpoint-5", 5, b"failed half way")
        bench.write(f"{saved.path}/model.bin", b"good")
        execution.publish(saved.path, 5, state="the good one")
        assert root.latest().manifest.state == "the good one"
        bench.write(f"{saved.path}/model.bin", b"failed half way")
        assert root.latest().manifest.state == ""

    @pytest.mark.parametrize("content", [b"", b"{", b'{"format":1}', b"[" * 100_000])
    def test_a_cut_off_manifest_does_not_hold(self, root, bench, begin, content):
        execution = begin()
        whole, broken = execution.save("checkpoint-1", 1), execution.save("checkpoint-2", 2)
        folder = f"meta/{execution.attempt}/saves"
        name = bench.store.ledger(folder).names()[-1]
        bench.write(f"{folder}/{name}", content)
        resume = root.latest()
        assert resume.publication == whole
        assert [entry.publication for entry in resume.passed_over] == [broken]

    @pytest.mark.parametrize(("field", "value"), [("epoch", 10**6 + 1), ("step", 3), ("path", "exec/x/y")])
    def test_a_manifest_must_match_in_every_field(self, root, bench, begin, field, value):
        execution = begin()
        execution.save("checkpoint-2", 2)
        folder = f"meta/{execution.attempt}/saves"
        (name,) = bench.store.ledger(folder).names()
        bench.write(
            f"{folder}/{name}", json.dumps({**json.loads(bench.read(f"{folder}/{name}")), field: value}).encode()
        )
        with pytest.raises(UnusableCheckpoint, match="manifest"):
            root.latest()

    def test_a_manifest_without_files_proves_nothing(self, root, bench, begin):
        execution = begin()
        execution.save("checkpoint-2", 2)
        folder = f"meta/{execution.attempt}/saves"
        (name,) = bench.store.ledger(folder).names()
        bench.write(
            f"{folder}/{name}", json.dumps({**json.loads(bench.read(f"{folder}/{name}")), "files": []}).encode()
        )
        with pytest.raises(UnusableCheckpoint, match="no file"):
            root.latest()

    def test_a_malformed_manifest_name_is_named(self, root, bench, begin):
        execution = begin()
        execution.save("checkpoint-2", 2)
        bench.write(f"meta/{execution.attempt}/saves/notes.txt")
        with pytest.raises(MalformedName, match=r"notes\.txt"):
            root.latest()

    def test_a_pruned_save_is_passed_over(self, root, bench, begin):
        execution = begin()
        kept, pruned = execution.save("checkpoint-1", 1), execution.save("checkpoint-2", 2)
        bench.store.ledger("pruned").create(pruned.name)
        resume = root.latest()
        assert resume.publication == kept
        assert [entry.why for entry in resume.passed_over] == ["it was pruned"]

    @pytest.mark.parametrize("name", ["garbage", f"{10**6:020d}-{1:020d}-ME7"])
    def test_a_malformed_pruned_name_is_named(self, root, bench, begin, name):
        begin().save("checkpoint-1", 1)
        bench.write(f"pruned/{name}", b"")
        with pytest.raises(MalformedName, match=re.escape(f"pruned/{name}")):
            root.latest()

    def test_a_store_that_cannot_tell_is_an_error_and_nothing_is_passed_over(self, root, bench, begin, monkeypatch):
        execution = begin()
        execution.save("checkpoint-1", 1), execution.save("checkpoint-2", 2)

        def refuse(path, files):
            raise StoreError("Input/output error")

        monkeypatch.setattr(bench.store, "difference", refuse)
        with pytest.raises(StoreError, match="Input/output"):
            root.latest()


class TestSavesThatMoveOnUnderTheLook:
    """A program saves and rotates while another looks: what was listed is gone when it is judged; newer is there."""

    @pytest.fixture
    def move_on(self, bench, monkeypatch):
        """Let something happen once, just before the first save is compared with its manifest."""

        def arrange(happen) -> None:
            real = bench.store.difference

            def difference(path, files):
                monkeypatch.setattr(bench.store, "difference", real)
                happen()
                return real(path, files)

            monkeypatch.setattr(bench.store, "difference", difference)

        return arrange

    def test_all_that_was_listed_is_gone_and_the_newest_is_taken(self, root, bench, begin, move_on):
        # given a program that saves and rotates between the listing and the look
        execution = begin()
        old = [execution.save("checkpoint-1", 1), execution.save("checkpoint-2", 2)]
        newest = []

        def go_on() -> None:
            newest.extend(execution.save(f"checkpoint-{step}", step) for step in (3, 4))
            for save in old:
                bench.delete(save.path)

        move_on(go_on)
        # when somebody looks for the resume point
        resume = root.latest()
        # then it is neither a refusal nor a loss
        assert resume.publication == newest[-1]

    def test_an_older_executions_save_does_not_win_over_newer_ones_that_came_meanwhile(
        self, root, bench, begin, move_on
    ):
        # given two executions, the newer of which rotates what was listed of it away
        begin(0, 1).save("checkpoint-9000", 9000)
        execution = begin(0, 2)
        old = execution.save("checkpoint-1", 1)
        newest = []

        def go_on() -> None:
            newest.append(execution.save("checkpoint-2", 2))
            bench.delete(old.path)

        move_on(go_on)
        # when a third starts
        third = begin(0, 3)
        pin = root.pin(third.epoch, third.attempt, ResumeChoice())
        # then it goes on from the second
        assert [pin.publication] == newest

    def test_a_save_that_was_pruned_meanwhile_gives_way_to_the_newer_one(self, root, bench, begin, monkeypatch):
        execution = begin()
        old = execution.save("checkpoint-1", 1)
        bench.write(f"pruned/{old.name}", b"")
        real, newest = root.store.ledger, []

        def ledger(folder):
            if folder == "pruned" and not newest:
                newest.append(execution.save("checkpoint-2", 2))
            return real(folder)

        monkeypatch.setattr(root.store, "ledger", ledger)
        assert root.latest().publication == newest[0]

    def test_what_comes_meanwhile_and_is_no_better_than_what_was_found_changes_nothing(
        self, root, bench, begin, move_on
    ):
        old, new = begin(0, 1), begin(0, 2)
        whole, broken = new.save("checkpoint-1", 1), new.save("checkpoint-2", 2)
        bench.delete(broken.path)
        move_on(lambda: old.save("checkpoint-9000", 9000))
        resume = root.latest()
        assert resume.publication == whole
        assert [entry.publication for entry in resume.passed_over] == [broken]

    def test_an_identity_is_compared_with_the_save_that_is_taken_in_the_end(self, root, bench, begin, move_on):
        begin(0, 1, seed="7").save("checkpoint-1", 1)
        execution = begin(0, 2, seed="8")
        old = execution.save("checkpoint-1", 1)
        newest = []

        def go_on() -> None:
            newest.append(execution.save("checkpoint-2", 2))
            bench.delete(old.path)

        move_on(go_on)
        assert root.latest(identity={"seed": "8"}).publication == newest[0]


class TestForgedNames:
    def test_an_epoch_that_is_not_its_folders_is_reported_and_not_followed(self, root, bench, begin):
        old, new = begin(0, 1), begin(0, 2)
        old_save, saved = old.save("checkpoint-9", 9), new.save("checkpoint-1", 1)
        forged = publish_by_hand(bench, Publication(Epoch(5, 1, 0), 10, old_save.path))
        resume = root.latest()
        assert resume.publication == saved
        assert [(entry.publication, entry.forged) for entry in resume.passed_over] == [(forged, True)]
        assert "g0n1r0" in resume.passed_over[0].why

    @pytest.mark.parametrize(
        "path",
        [
            "elsewhere/save",
            "meta/{attempt}/resume/save",
            "exec/{attempt}",
            "exec/other/save",
            "meta/{attempt}/snap/x/save",
        ],
    )
    def test_a_path_that_is_no_executions_is_reported(self, root, bench, begin, path):
        execution = begin()
        saved = execution.save("checkpoint-1", 1)
        path = path.format(attempt=execution.attempt)
        bench.write(f"{path}/model.bin")
        forged = publish_by_hand(bench, Publication(execution.epoch, 9, path))
        resume = root.latest()
        assert resume.publication == saved
        assert [(entry.publication, entry.forged) for entry in resume.passed_over] == [(forged, True)]

    def test_an_epoch_not_below_ones_own_is_reported_and_not_taken(self, root, begin):
        first, second = begin(0, 1), begin(0, 2)
        saved, late = first.save("a", 1), second.save("b", 1)
        resume = root.latest(below=second.epoch)
        assert resume.publication == saved
        assert [entry.publication for entry in resume.passed_over] == [late]

    def test_a_forged_name_does_not_lift_the_base(self, root, bench, begin):
        execution = begin()
        base = execution.save("checkpoint-1", 1)
        execution.save("checkpoint-2", 2)
        publish_by_hand(bench, Publication(Epoch(1, 1, 0), 3, base.path))
        resume = root.latest(ResumeChoice(base, Epoch(1, 1, 0).number))
        assert resume.publication == base
        assert [entry.forged for entry in resume.passed_over] == [True]
        assert root.latest(ResumeChoice(SCRATCH, Epoch(1, 1, 0).number)).publication is None

    def test_only_forged_names_are_no_start_from_scratch(self, root, bench, begin):
        execution = begin()
        bench.write("elsewhere/model.bin")
        publish_by_hand(bench, Publication(execution.epoch, 9, "elsewhere"))
        with pytest.raises(UnusableCheckpoint, match="elsewhere"):
            root.latest()

    def test_a_forged_base_is_refused(self, root, bench, begin):
        begin()
        with pytest.raises(UnusableCheckpoint, match="elsewhere"):
            root.latest(ResumeChoice(Publication(Epoch(0, 1, 0), 9, "elsewhere"), Epoch(1, 1, 0).number))

    def test_a_publication_whose_execution_never_started_is_not_taken(self, root, bench, begin):
        execution = begin()
        execution.save("checkpoint-1", 1)
        bench.delete(f"meta/{execution.attempt}/started.json")
        with pytest.raises(UnusableCheckpoint, match=r"started\.json"):
            root.latest()


class TestChoice:
    def test_from_scratch_holds_until_there_is_a_new_save(self, root, begin):
        old = begin(0, 1)
        old.save("checkpoint-9", 9)
        choice = ResumeChoice(SCRATCH, Epoch(0, 2, 0).number)
        assert root.latest(choice).publication is None
        old.save("checkpoint-10", 10)
        assert root.latest(choice).publication is None
        saved = begin(0, 2).save("checkpoint-1", 1)
        assert root.latest(choice).publication == saved

    def test_a_base_holds_until_there_is_a_new_save(self, root, begin):
        old = begin(0, 1)
        base, _ = old.save("checkpoint-1", 1), old.save("checkpoint-2", 2)
        choice = ResumeChoice(base, Epoch(0, 2, 0).number)
        assert root.latest(choice).publication == base
        saved = begin(0, 2).save("checkpoint-1", 1)
        assert root.latest(choice).publication == saved

    def test_a_broken_base_is_an_error(self, root, bench, begin):
        execution = begin()
        base, _ = execution.save("checkpoint-1", 1), execution.save("checkpoint-2", 2)
        bench.delete(base.path)
        with pytest.raises(UnusableCheckpoint, match="checkpoint-1"):
            root.latest(ResumeChoice(base, Epoch(0, 2, 0).number))

    def test_broken_saves_above_the_floor_do_not_fall_back_below_it(self, root, bench, begin):
        begin(0, 1).save("checkpoint-1", 1)
        bench.delete(begin(0, 2).save("checkpoint-2", 2).path)
        with pytest.raises(UnusableCheckpoint, match="checkpoint-2"):
            root.latest(ResumeChoice(SCRATCH, Epoch(0, 2, 0).number))


class TestIdentity:
    def test_the_same_run_is_taken(self, root, begin):
        saved = begin(0, 1, seed="7", code="1").save("checkpoint-1", 1)
        assert root.latest(identity={"seed": "7", "code": "1"}).publication == saved

    @pytest.mark.parametrize(
        ("identity", "named"),
        [
            ({"seed": "8", "code": "1"}, "seed"),
            ({"code": "1"}, "seed"),
            ({"seed": "7", "code": "1", "data": "x"}, "data"),
        ],
    )
    def test_a_different_run_is_refused_naming_the_fields(self, root, begin, identity, named):
        begin(0, 1, seed="7", code="1").save("checkpoint-1", 1)
        with pytest.raises(IdentityChanged, match=rf"run: {named} changed"):
            root.latest(identity=identity)

    def test_changed_code_is_noted_where_a_declared_schema_is_unchanged(self, root, begin):
        saved = begin(0, 1, code="1", checkpoint_schema="3").save("checkpoint-1", 1)
        resume = root.latest(identity={"code": "2", "checkpoint_schema": "3"})
        assert resume.publication == saved
        assert "code" in resume.notes[0]

    def test_a_save_of_a_superseded_generation_may_be_of_another_run_which_is_noted(self, root, begin):
        saved = begin(0, 1, seed="7", checkpoint_schema="3").save("checkpoint-1", 1)
        new = begin(1, 1, seed="8", checkpoint_schema="4")
        pin = root.pin(new.epoch, new.attempt, ResumeChoice(), {"seed": "8", "checkpoint_schema": "4"})
        assert pin.publication == saved
        assert any("checkpoint_schema, seed changed since generation 0" in note for note in pin.notes)

    def test_a_save_of_the_same_generation_may_not(self, root, begin):
        begin(1, 1, seed="7").save("checkpoint-1", 1)
        new = begin(1, 2, seed="8")
        with pytest.raises(IdentityChanged, match="seed"):
            root.pin(new.epoch, new.attempt, ResumeChoice(), {"seed": "8"})

    @pytest.mark.parametrize("schema", [{}, {"checkpoint_schema": "4"}])
    def test_changed_code_is_refused_otherwise(self, root, begin, schema):
        begin(0, 1, code="1", **({"checkpoint_schema": "3"} if schema else {})).save("checkpoint-1", 1)
        with pytest.raises(IdentityChanged, match="code"):
            root.latest(identity={"code": "2", **schema})


class TestPin:
    def test_a_start_from_scratch_is_noted(self, root, begin):
        execution = begin()
        pin = root.pin(execution.epoch, execution.attempt, ResumeChoice())
        assert (pin.publication, pin.step, pin.path, pin.state) == (None, None, None, "")
        assert root.pinned(execution.attempt) == pin

    def test_the_save_is_imported_out_of_reach_of_its_writer(self, root, bench, begin):
        old, new = begin(0, 1), begin(0, 2)
        saved = old.save("checkpoint-1", 1, b"one", state="epoch 3")
        pin = root.pin(new.epoch, new.attempt, ResumeChoice())
        bench.write(f"{saved.path}/model.bin", b"overwritten")
        bench.delete(saved.path)
        assert (pin.publication, pin.step, pin.state) == (saved, 1, "epoch 3")
        assert pin.path == f"meta/{new.attempt}/resume/checkpoint-1"
        assert bench.read(f"{pin.path}/model.bin") == b"one"

    def test_it_is_decided_and_imported_once(self, root, bench, begin):
        old, new = begin(0, 1), begin(0, 2)
        old.save("checkpoint-1", 1)
        pin = root.pin(new.epoch, new.attempt, ResumeChoice())
        old.save("checkpoint-2", 2)
        assert root.pin(new.epoch, new.attempt, ResumeChoice()) == pin
        assert root.pin(new.epoch, new.attempt, ResumeChoice(SCRATCH, new.epoch.number)) == pin
        assert bench.store.folders(f"meta/{new.attempt}/resume") == ["checkpoint-1"]

    def test_what_was_passed_over_is_noted_with_the_reason(self, root, bench, begin):
        old, new = begin(0, 1), begin(0, 2)
        whole, broken = old.save("checkpoint-1", 1), old.save("two\nlines", 2)
        bench.delete(broken.path)
        pin = root.pin(new.epoch, new.attempt, ResumeChoice())
        assert pin.publication == whole
        assert [(entry.publication, "gone" in entry.why) for entry in pin.passed_over] == [(broken, True)]
        assert root.pinned(new.attempt) == pin

    def test_a_save_that_is_rotated_away_during_the_import_is_passed_over(self, root, bench, begin, monkeypatch):
        old, new = begin(0, 1), begin(0, 2)
        whole, rotated = old.save("checkpoint-1", 1), old.save("checkpoint-2", 2)
        real = bench.store.copy

        def copy(source, target, files):
            if source == rotated.path:
                bench.delete(source)
            real(source, target, files)

        monkeypatch.setattr(bench.store, "copy", copy)
        pin = root.pin(new.epoch, new.attempt, ResumeChoice())
        assert pin.publication == whole
        assert [entry.publication for entry in pin.passed_over] == [rotated]
        assert bench.store.folders(f"meta/{new.attempt}/resume") == ["checkpoint-1"]

    def test_a_save_that_is_written_again_before_the_copy_is_passed_over(self, root, bench, begin, monkeypatch):
        needs_times(bench)
        old, new = begin(0, 1), begin(0, 2)
        whole = old.save("checkpoint-1", 1)
        bench.write(f"{old.folder}/checkpoint-2/.complete", b"2")
        torn = old.save("checkpoint-2", 2, b"weights" * 10)
        real = bench.store.copy

        def copy(source, target, files):
            if source == torn.path:
                write_again(bench, f"{source}/model.bin", b"wei2222" * 10)
            real(source, target, files)

        monkeypatch.setattr(bench.store, "copy", copy)
        pin = root.pin(new.epoch, new.attempt, ResumeChoice())
        assert pin.publication == whole
        assert ["written again" in entry.why for entry in pin.passed_over] == [True]

    def test_when_the_last_save_is_rotated_away_during_the_import_it_does_not_start_from_scratch(
        self, root, bench, begin, monkeypatch
    ):
        old, new = begin(0, 1), begin(0, 2)
        old.save("checkpoint-1", 1)

        def copy(source, target, files):
            raise Absent("model.bin is gone")

        monkeypatch.setattr(bench.store, "copy", copy)
        with pytest.raises(UnusableCheckpoint, match=r"model\.bin is gone"):
            root.pin(new.epoch, new.attempt, ResumeChoice())
        assert root.pinned(new.attempt) is None

    def test_an_import_that_was_not_noted_is_never_taken_for_ones_own(self, root, bench, begin):
        # given an import that nobody noted, and which is something else by now, of the same size
        old, new = begin(0, 1), begin(0, 2)
        saved = old.save("checkpoint-1", 1, b"weights")
        noted = root.pin(new.epoch, new.attempt, ResumeChoice())
        bench.delete(f"meta/{new.attempt}/resume.json")
        bench.write(f"{noted.path}/model.bin", b"garbage")
        # when
        pin = root.pin(new.epoch, new.attempt, ResumeChoice())
        # then
        assert (pin.publication, pin.path.rpartition("/")[2]) == (saved, "checkpoint-1")
        assert bench.read(f"{pin.path}/model.bin") == b"weights"

    @pytest.mark.parametrize("content", [b"", b"{}", b'{"format":1,"base":"latest","floor":0,"publication":"x"}'])
    def test_a_cut_off_pin_is_refused_by_name(self, root, bench, begin, content):
        execution = begin()
        bench.write(f"meta/{execution.attempt}/resume.json", content)
        with pytest.raises(MalformedDocument, match=re.escape(f"{execution.attempt}/resume.json")):
            root.pin(execution.epoch, execution.attempt, ResumeChoice())

    def test_a_different_run_is_refused_and_nothing_is_pinned(self, root, begin):
        old, new = begin(0, 1, seed="7"), begin(0, 2, seed="8")
        old.save("checkpoint-1", 1)
        with pytest.raises(IdentityChanged, match="seed"):
            root.pin(new.epoch, new.attempt, ResumeChoice(), {"seed": "8"})
        assert root.pinned(new.attempt) is None


def test_a_lineage_goes_through_many_overlapping_executions_and_always_resumes_from_its_newest(root, begin):
    executions = []
    expected = None
    for number in range(1, 8):
        current = begin(0, number)
        pin = root.pin(current.epoch, current.attempt, ResumeChoice())
        assert pin.publication == expected
        executions.append(current)
        for old in executions[:-1]:
            old.save(f"late-{number}", 1000 + number)
        expected = current.save("own", number)
    with pytest.raises(DuplicateExecution):
        begin(0, 3, 1)
