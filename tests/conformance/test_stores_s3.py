"""What a bucket alone has to show: long listings, odd names, and saves that move to it and back."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import s3fs

from prefect_dispatch.errors import Absent, Exists, StoreError, StoreUnreachable, Unpublishable
from prefect_dispatch.format.epoch import Epoch
from prefect_dispatch.format.publication import Publication
from prefect_dispatch.stores import s3_mover
from prefect_dispatch.stores.lineage_root import LineageRoot
from prefect_dispatch.stores.s3 import S3Store
from prefect_dispatch.stores.s3_digests import prove, sha256_of
from prefect_dispatch.stores.s3_managed import ManagedStore
from prefect_dispatch.stores.s3_mover import PART, part_size
from prefect_dispatch.stores.s3_reading import Reading
from prefect_dispatch.stores.transfer import Transfer
from prefect_dispatch.stores.workplace import make_workplace
from support.full_form import FULL
from support.s3.access import new_url, store_at
from support.s3.begun import begin
from support.s3.server import Server

BYTES = [chr(number) for number in range(1, 128) if chr(number) != "/"] + [
    "é",
    "\x80",
    "\x9f",
    "\u2028",
    "\ufffe",
    "\U0001f600",
]
NAMES = [f"a{letter}b" for letter in BYTES] + ["a?versionId=b", "a%2Fb", "a+b%20c", "s3:", "~41"]


@pytest.fixture
def store(s3_server: Server) -> S3Store:
    return store_at(s3_server, new_url(s3_server))


@pytest.fixture
def told() -> list[Transfer]:
    return []


@pytest.fixture
def managed(store: S3Store, tmp_path: Path, told: list[Transfer]) -> ManagedStore:
    return ManagedStore(store, str(tmp_path / "workplace"), told.append)


@pytest.fixture
def execution(managed: ManagedStore):
    """A lineage's root and the execution that writes to it from its workplace."""
    root = LineageRoot(managed)
    epoch, attempt = begin(root)
    return root, epoch, attempt, Path(root.absolute(f"exec/{attempt}"))


def fill(store: S3Store, count: int) -> None:
    ledger = store.ledger("pub")
    names = [Publication(Epoch(0, 1, 0), step, "exec/k3v7q2m5x4c6b7a2-0/s").name for step in range(count)]
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(ledger.create, names))


@pytest.mark.parametrize("count", [1001, pytest.param(100_000, marks=pytest.mark.skipif(not FULL, reason="long"))])
def test_every_publication_is_seen_however_many_pages_they_take(store: S3Store, count: int) -> None:
    # given more publications than one answer of a server holds
    fill(store, count)
    # when / then
    publications = LineageRoot(store).publications()
    assert [publication.step for publication in publications] == list(range(count))
    # and a listing that begins in the middle has what is behind
    after = publications[count // 2].name
    assert len(store.ledger("pub").names(after)) == count - count // 2 - 1
    # and one that may not be so long is refused
    with pytest.raises(Exception, match="more than 1,000"):
        store.ledger("pub").names(most=1000)


def test_a_name_with_every_legal_byte_comes_back(store: S3Store) -> None:
    ledger = store.ledger("odd ~?\\/names")
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: ledger.create(name, name.encode()), NAMES))
        assert ledger.names() == sorted(NAMES, key=str.encode)
        assert list(pool.map(ledger.read, NAMES)) == [name.encode() for name in NAMES]
    assert store.folders("") == ["odd ~?\\"]
    for after in ("a", "a}b", "a~b", "a\x7fb", "a\nb", "aéb"):
        assert ledger.names(after) == [name for name in sorted(NAMES, key=str.encode) if name > after]


def test_a_listing_comes_to_its_end_whatever_folders_and_placeholders_lie_there(
    store: S3Store, s3_server: Server
) -> None:
    # given names that sort before and behind a '/', folders in folders, and what consoles put there for a folder
    names = ["dir/x", "dir-b", "dir.c/y/z", "dir0", "dir/a-b", "dir/a/b", "z/z"]
    client = s3_server.client()
    for name in [*names, "", "dir/", "empty/", "zz/"]:
        client.put_object(Bucket=s3_server.bucket, Key=f"{store.place.key('odd')}/{name}", Body=b"")
    # when / then
    start = len(store.place.key("odd")) + 1
    found = [one.key[start:] for page in store.listings.pages(store.place.key("odd")) for one in page]
    assert {*names} <= set(found)
    assert {"dir-b", "dir0"} <= set(store.ledger("odd").names())
    assert {"dir", "dir.c", "z"} <= set(store.folders("odd"))


def test_a_save_with_such_names_moves_there_and_back(execution, managed: ManagedStore) -> None:
    # given a save whose files are named so, with one in a folder of such a name
    root, epoch, attempt, folder = execution
    save = folder / "save\n?~ [1]"
    (save / "in\\ner").mkdir(parents=True)
    for name in NAMES[:40]:
        (save / name).write_bytes(name.encode())
    (save / "in\\ner" / "?").write_text("deep")
    (save / "link").symlink_to("in\\ner")
    # when it is published and the next execution imports it
    publication = root.publish(epoch, attempt, f"exec/{attempt}/save\n?~ [1]", 3)
    (manifest_name,) = managed.ledger(f"meta/{attempt}/saves").names()
    files = root.latest().manifest.files
    target = "meta/other/resume/save"
    managed.copy(publication.path, target, files)
    # then all is there
    assert manifest_name and managed.difference(target, files) is None
    fetched = Path(managed.local(target))
    assert [(fetched / name).read_bytes() for name in NAMES[:40]] == [name.encode() for name in NAMES[:40]]
    assert (fetched / "in\\ner" / "?").read_text() == "deep"
    assert os.readlink(fetched / "link") == "in\\ner"


def test_a_large_file_moves_in_parts_and_is_told_of(execution, managed: ManagedStore, told: list[Transfer]) -> None:
    # given a file of more than two parts
    root, epoch, attempt, folder = execution
    size = 2 * PART + 5
    (folder / "large.pt").write_bytes(os.urandom(1 << 20) * (size >> 20) + b"12345")
    # when
    publication = root.publish(epoch, attempt, f"exec/{attempt}/large.pt", 3)
    files = root.latest().manifest.files
    managed.copy(publication.path, "meta/other/resume/large.pt", files)
    # then
    assert Path(managed.local("meta/other/resume/large.pt")).read_bytes() == (folder / "large.pt").read_bytes()
    ended = [(each.direction.value, each.total) for each in told if each.done == each.total]
    assert list(dict.fromkeys(ended)) == [("upload", size), ("download", size)]


def test_an_object_that_is_there_is_never_written_over(execution, store: S3Store, s3_server: Server) -> None:
    # given what an upload that broke off has left under the name of a save
    root, epoch, attempt, folder = execution
    path = f"exec/{attempt}/save.pt"
    key = store.place.key(path)
    s3_server.client().put_object(Bucket=s3_server.bucket, Key=key, Body=b"of an earlier try")
    (folder / "save.pt").write_bytes(b"weights")
    # when
    publication = root.publish(epoch, attempt, path, 3)
    # then the save has a place of its own, and what was there is as it was
    assert publication.path == f"meta/{attempt}/snap/{1:020d}/save.pt"
    assert s3_server.client().get_object(Bucket=s3_server.bucket, Key=key)["Body"].read() == b"of an earlier try"
    assert root.latest().publication == publication
    # and nothing of the copy is left on this machine
    assert not Path(root.absolute(publication.path)).exists()
    # but the same bytes are one's own success
    (folder / "again.pt").write_bytes(b"weights")
    s3_server.client().put_object(
        Bucket=s3_server.bucket, Key=store.place.key(f"exec/{attempt}/again.pt"), Body=b"weights"
    )
    assert root.publish(epoch, attempt, f"exec/{attempt}/again.pt", 4).path == f"exec/{attempt}/again.pt"


def test_a_save_that_is_written_again_is_published_beside_the_first(execution) -> None:
    root, epoch, attempt, folder = execution
    path = f"exec/{attempt}/save.pt"
    (folder / "save.pt").write_bytes(b"first")
    first = root.publish(epoch, attempt, path, 3)
    (folder / "save.pt").write_bytes(b"other")
    second = root.publish(epoch, attempt, path, 3)
    assert first.path == path and second.path != path
    assert root.latest().publication == second
    assert root.store.difference(first.path, ()) is None


def test_a_file_that_changes_meanwhile_is_not_published(execution, managed: ManagedStore) -> None:
    root, epoch, attempt, folder = execution
    (folder / "save.pt").write_bytes(b"weights")
    files = managed.files(f"exec/{attempt}/save.pt")
    os.utime(folder / "save.pt", ns=(1, 1))
    with pytest.raises(Absent, match="written to"):
        managed.sync(f"exec/{attempt}/save.pt", files)
    (folder / "save.pt").unlink()
    with pytest.raises(Absent):
        managed.sync(f"exec/{attempt}/save.pt", files)
    with pytest.raises(Unpublishable):
        root.publish(epoch, attempt, f"exec/{attempt}/save.pt", 3)
    assert root.publications() == []


@pytest.mark.parametrize("damage", [b"weigh", b"WEIGHTS", None])
def test_an_import_of_what_is_not_the_manifests_leaves_nothing(
    execution, managed: ManagedStore, store: S3Store, s3_server: Server, damage: bytes | None
) -> None:
    # given a published save whose object was cut, replaced or removed
    root, epoch, attempt, folder = execution
    (folder / "save.pt").write_bytes(b"weights" * 20)
    publication = root.publish(epoch, attempt, f"exec/{attempt}/save.pt", 3)
    files = root.latest().manifest.files
    client, key = s3_server.client(), store.place.key(publication.path)
    if damage is None:
        client.delete_object(Bucket=s3_server.bucket, Key=key)
    else:
        client.put_object(Bucket=s3_server.bucket, Key=key, Body=damage * 20)
    # when / then
    with pytest.raises(Absent):
        managed.copy(publication.path, "meta/other/resume/save.pt", files)
    workplace = Path(managed.workplace)
    assert not (workplace / "meta/other/resume/save.pt").exists()
    assert os.listdir(workplace / "tmp") == []


def test_a_disk_that_takes_no_more_at_a_restore_is_told_as_the_disks(execution, managed: ManagedStore) -> None:
    # given a published save that is larger than a file may be here
    root, epoch, attempt, folder = execution
    (folder / "save.pt").write_bytes(bytes(2**20))
    publication = root.publish(epoch, attempt, f"exec/{attempt}/save.pt", 3)
    files = root.latest().manifest.files
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, hard))
    # when it is restored
    began = time.monotonic()
    try:
        with pytest.raises(StoreError, match="File too large") as failure:
            managed.copy(publication.path, "meta/other/resume/save.pt", files)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    # then that is said at once, with the place, and nothing half is there
    assert managed.workplace in str(failure.value) and time.monotonic() - began < 10
    assert not isinstance(failure.value, Absent)
    assert os.listdir(Path(managed.workplace, "tmp")) == []


def test_a_file_that_takes_long_to_be_read_here_is_no_transfer_that_stands_still(
    execution, managed: ManagedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a machine that takes far longer to read a file than a transfer may stand still
    root, epoch, attempt, folder = execution
    monkeypatch.setattr(s3_mover, "_STALLED", 0.05)
    real = os.pread

    def slow(descriptor: int, count: int, offset: int) -> bytes:
        time.sleep(0.2)
        return real(descriptor, min(count, 1), offset)

    monkeypatch.setattr(os, "pread", slow)
    (folder / "save.pt").write_bytes(b"long weights")
    # when a save goes there and back, then it does
    publication = root.publish(epoch, attempt, f"exec/{attempt}/save.pt", 3)
    managed.copy(publication.path, "meta/other/resume/save.pt", root.latest().manifest.files)
    assert Path(managed.workplace, "meta/other/resume/save.pt").read_bytes() == b"long weights"


def test_a_client_that_takes_long_to_load_is_no_transfer_that_stands_still(
    execution, managed: ManagedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a machine on which the client loads far longer than a transfer may stand still
    root, epoch, attempt, folder = execution
    monkeypatch.setattr(s3_mover, "_STALLED", 0.05)
    real = s3fs.S3FileSystem.set_session

    async def slow(filesystem: s3fs.S3FileSystem, *arguments: object, **options: object) -> object:
        if filesystem._s3 is None:
            await asyncio.sleep(3)
        return await real(filesystem, *arguments, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "set_session", slow)
    (folder / "save.pt").write_bytes(b"weights")
    # when / then
    assert root.publish(epoch, attempt, f"exec/{attempt}/save.pt", 3) == root.latest().publication


def test_a_target_that_is_there_is_left_alone(execution, managed: ManagedStore) -> None:
    root, epoch, attempt, folder = execution
    (folder / "save.pt").write_bytes(b"weights")
    publication = root.publish(epoch, attempt, f"exec/{attempt}/save.pt", 3)
    files = root.latest().manifest.files
    managed.copy(publication.path, "meta/other/resume/save.pt", files)
    with pytest.raises(Exists):
        managed.copy(publication.path, "meta/other/resume/save.pt", files)


def test_a_workplace_that_is_somebody_elses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    for name in ("open", "link"):
        with pytest.raises(StoreUnreachable, match="no private folder"):
            make_workplace(str(tmp_path / name))
    make_workplace(str(tmp_path / "new" / "own"))
    make_workplace(str(tmp_path / "new" / "own"))
    assert (tmp_path / "new" / "own").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 25, 30])
def test_an_objects_bytes_are_proved_by_its_tag_or_by_reading_it(tmp_path: Path, size: int) -> None:
    # given a file, and what a server that encrypts says of its object
    content = bytes(range(size))
    (tmp_path / "file").write_bytes(content)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    reading = Reading(descriptor, size, 10, "file")
    digests = reading.digests()
    # then the tag of the same parts proves it, and where there is another the bytes do
    assert digests.tag.endswith("-3") is (size > 20)
    assert prove(digests.tag, digests, lambda: pytest.fail("read"))
    assert prove("another", digests, lambda: [content[:3], content[3:]])
    assert not prove("another", digests, lambda: [content, b"more"])
    assert digests.sha256 == sha256_of(descriptor) == hashlib.sha256(content).hexdigest()
    # and of a file that has become shorter there are none
    with pytest.raises(Absent, match="shorter"):
        Reading(descriptor, size + 1, 10, "file").digests()
    os.close(descriptor)


def test_parts_that_are_tagged_in_any_order_come_to_the_same(tmp_path: Path) -> None:
    # given the parts of a file, the last of which is tagged first, and one that nobody has taken yet
    (tmp_path / "file").write_bytes(bytes(range(25)))
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    reading = Reading(descriptor, 25, 10, "file")
    taken = [reading.take(), reading.take()]
    for part in reversed(taken):
        assert part is not None
        reading.tag(part)
    # when / then
    assert reading.digests() == Reading(descriptor, 25, 10, "file").digests()
    assert reading.take() is None
    os.close(descriptor)


def test_parts_are_as_many_as_s3_takes() -> None:
    assert part_size(1) == PART
    assert part_size(5 * 2**40) * 10_000 >= 5 * 2**40
    assert part_size(PART * 10_000 + 1) > PART
