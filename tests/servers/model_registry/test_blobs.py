"""The kit for stores of blobs on ours, and what is ours alone: the lock, leftovers, names that are not lost."""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trio_cogment.base.host.files import Files, SystemFiles
from trio_cogment.servers.model_registry import BlobStore, LocalBlobs
from trio_cogment.servers.model_registry.blobs import put
from trio_cogment.testing import FaultyStore, History, PowerLossError, SimDisk
from trio_cogment.testing.conformance.blobs import CASES, check_blobs


@pytest.mark.parametrize("simulated", [False, True], ids=["system", "simulated"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_kit(case: Callable[[BlobStore], None], simulated: bool, tmp_path: Path) -> None:
    files: Files = SimDisk(random.Random(1)) if simulated else SystemFiles()
    store = LocalBlobs(tmp_path / "not" / "there" / "yet", files=files)
    store.open()
    case(store)
    store.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_kit_behind_a_store_that_could_fail(case: Callable[[BlobStore], None]) -> None:
    front: FaultyStore[BlobStore] = FaultyStore(
        LocalBlobs("root", files=SimDisk(random.Random(1))), rng=random.Random(1), history=History(), plain=OSError
    )
    front.store.open()
    case(front.store)
    front.store.close()
    assert front.operations > 2


def test_kit_as_a_whole_names_the_case() -> None:
    @contextmanager
    def make() -> Iterator[BlobStore]:
        yield LocalBlobs("root", files=SimDisk(random.Random(1)))

    check_blobs(make)

    class Forgetful(LocalBlobs):
        def read(self, folder: str, name: str) -> bytes:
            return super().read(folder, name)[:-1]

    @contextmanager
    def make_forgetful() -> Iterator[BlobStore]:
        yield Forgetful("root", files=SimDisk(random.Random(1)))

    with pytest.raises(AssertionError) as caught:
        check_blobs(make_forgetful)
    assert caught.value.__notes__ == ["check_blobs: case written_and_read"]


@pytest.mark.parametrize("simulated", [False, True], ids=["system", "simulated"])
def test_a_root_has_one_user(simulated: bool, tmp_path: Path) -> None:
    files: Files = SimDisk(random.Random(1)) if simulated else SystemFiles()
    first, second = LocalBlobs(tmp_path, files=files), LocalBlobs(tmp_path, files=files)
    first.open()
    with pytest.raises(BlockingIOError):
        second.open()
    upload = first.upload()
    upload.write(b"x")
    with pytest.raises(BlockingIOError):
        second.open()
    first.close()
    second.open()  # and removes what the first has left
    assert files.names(str(tmp_path)) == [".lock"]
    second.close()


def test_what_others_have_put_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "file").write_bytes(b"1")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "file").touch()
    (tmp_path / ".profile").touch()
    (tmp_path / ".5.tmp").touch()
    (tmp_path / "file.tmp").touch()
    store = LocalBlobs(tmp_path)
    store.open()
    assert store.folders() == ["folder"]
    assert store.names("folder") == ["file"]
    store.delete("folder", ["file"])
    store.close()
    assert sorted(os.listdir(tmp_path)) == [".hidden", ".lock", ".profile", "file.tmp", "folder", "notes"]


class Guarded(SystemFiles):
    """Whoever runs the tests may read everything; this forbids it."""

    def names(self, folder: str) -> list[str]:
        if os.path.basename(folder) in ("lost+found", "walker"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return super().names(folder)


def test_a_folder_of_others_need_not_be_readable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = LocalBlobs(tmp_path, files=Guarded())
    store.open()
    (tmp_path / "lost+found").mkdir()
    put(store, "folder", "name", b"x")
    assert store.folders() == ["folder"]
    assert "a folder is left alone: [Errno 13] Permission denied" in caplog.text
    assert "lost+found" in caplog.text
    (tmp_path / "walker").mkdir()  # which may well be ours, with versions in it
    with pytest.raises(PermissionError):
        store.folders()
    store.close()


def test_no_room_leaves_nothing() -> None:
    disk = SimDisk(random.Random(1), capacity_bytes=1000)
    store = LocalBlobs("root", files=disk)
    store.open()
    put(store, "folder", "name", b"x" * 500)
    with pytest.raises(OSError, match="No space") as caught:
        put(store, "folder", "other", b"x" * 501)
    assert caught.value.errno == errno.ENOSPC
    assert disk.names("root") == [".lock", "folder"]
    put(store, "folder", "other", b"x" * 500)
    assert store.names("folder") == ["name", "other"]


def test_a_sync_that_fails_at_any_step_leaves_nothing_and_harms_nothing_later() -> None:
    failures = 0
    for step in range(1, 10):
        disk = SimDisk(random.Random(step))
        store = LocalBlobs("root", files=disk)
        store.open()
        disk.fail_syncs(step)
        for _ in range(step):
            with pytest.raises(OSError, match="Input/output"):
                put(store, "folder", "name", b"lost")
            failures += 1
            assert store.names("folder") == []
        put(store, "folder", "name", b"kept")
        disk.crash()
        disk.restart()
        store.open()
        assert store.read("folder", "name") == b"kept"
    assert failures == 45


def test_one_failing_sync_among_good_ones() -> None:
    """The k-th sync from here fails, for every k: whatever is told to be there is there after a loss of power."""

    class Picky(SimDisk):
        good = -1

        def _check_sync(self) -> None:
            if self.good == 0:
                self.fail_syncs(1)
            self.good -= 1
            super()._check_sync()

    for good in range(12):
        for seed in range(20):
            disk = Picky(random.Random(seed))
            store = LocalBlobs("root", files=disk)
            store.open()
            disk.good = good
            told: dict[str, bytes] = {}
            for turn in range(4):
                name = f"name{turn}"
                try:
                    put(store, "folder", name, name.encode())
                    told[name] = name.encode()
                except OSError:
                    continue
            assert len(told) >= 3
            disk.crash()
            disk.restart()
            store.open()
            assert {name: store.read("folder", name) for name in told} == told


def test_the_power_goes_at_every_point() -> None:
    """What was told to be there is there, whole; what was told to be gone is gone; what else there is, is whole."""

    def work(store: LocalBlobs, done: list[str]) -> None:
        store.open()
        done.append("open")
        put(store, "a", "one", b"1" * 3000)
        done.append("one")
        put(store, "a", "two", b"2" * 3000)
        done.append("two")
        put(store, "b", "three", b"3" * 3000)
        done.append("three")
        put(store, "a", "one", b"4" * 3000, replace=True)
        done.append("four")
        store.delete("a", ["two"])
        done.append("delete two")
        store.delete("b", ["three"])
        done.append("delete three")
        put(store, "b", "five", b"5" * 3000)
        done.append("five")

    dry = SimDisk(random.Random(0))
    work(LocalBlobs("root", files=dry), [])
    points = dry.operations
    assert points > 40
    for point in range(points + 1):
        for seed in range(8):
            disk = SimDisk(random.Random(seed))
            disk.crash_at(point)
            done: list[str] = []
            try:
                work(LocalBlobs("root", files=disk), done)
                disk.crash()
            except PowerLossError:
                pass
            disk.restart()
            store = LocalBlobs("root", files=disk)
            store.open()
            found = {
                (folder, name): store.read(folder, name) for folder in store.folders() for name in store.names(folder)
            }
            assert all(len(content) == 3000 and len(set(content)) == 1 for content in found.values())
            if "one" in done:
                assert found["a", "one"][:1] in ((b"4",) if "four" in done else (b"1", b"4"))
            assert ("a", "two") in found or "two" not in done or len(done) >= 5
            assert ("a", "two") not in found or "delete two" not in done
            assert ("b", "three") in found or "three" not in done or len(done) >= 6
            assert ("b", "three") not in found or "delete three" not in done
            assert ("b", "five") in found or "five" not in done
            assert [name for name in disk.names("root") if name.endswith(".tmp")] == []


@pytest.mark.parametrize("simulated", [False, True], ids=["system", "simulated"])
def test_without_its_lock_file_a_root_still_has_one_user(simulated: bool, tmp_path: Path) -> None:
    files: Files = SimDisk(random.Random(1)) if simulated else SystemFiles()
    root = tmp_path / "root"
    first, second = LocalBlobs(root, files=files), LocalBlobs(root, files=files)
    first.open()
    files.remove(f"{root}/.lock")
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            second.open()
    put(first, "folder", "name", b"")
    first.close()
    second.open()
    second.close()


def test_a_folder_that_is_taken_away_takes_nothing_more(tmp_path: Path) -> None:
    store = LocalBlobs(tmp_path / "root")
    store.open()
    put(store, "a", "one", b"1")
    put(store, "b", "one", b"1")
    shutil.rmtree(tmp_path / "root" / "a")
    with pytest.raises(FileNotFoundError) as caught:
        put(store, "a", "two", b"2")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(tmp_path / "root" / "a"))
    assert not (tmp_path / "root" / "a").exists()
    put(store, "b", "two", b"2")
    store.delete("a", ["one"])  # a model that is deleted may come back
    put(store, "a", "three", b"3")
    store.close()


@pytest.mark.parametrize("made_again", [False, True])
def test_a_root_that_is_taken_away_takes_nothing_more(made_again: bool, tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = LocalBlobs(root)
    store.open()
    put(store, "a", "one", b"1")
    shutil.rmtree(root)
    if made_again:
        root.mkdir()
    for folder in ("a", "new"):
        with pytest.raises(FileNotFoundError) as caught:
            put(store, folder, "two", b"2")
        assert caught.value.errno == errno.ENOENT
        assert not made_again or caught.value.filename == str(root)
    assert not made_again or not list(root.glob("*/two"))
    store.close()


def test_nobody_else_can_read_what_is_stored(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = LocalBlobs(tmp_path / "above" / "root")
        store.open()
        put(store, "folder", "name", b"secret")
        store.close()
    finally:
        os.umask(before)
    for path in (tmp_path / "above").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((tmp_path / "above").stat().st_mode) == 0o700


def test_what_has_taken_the_place_of_the_root_is_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    blobs = LocalBlobs(root)
    blobs.open()
    root.rename(tmp_path / "away")
    (root / "m").mkdir(parents=True)
    theirs = root / "m" / "m.yaml"
    theirs.write_text("somebody else's")
    try:
        upload = blobs.upload()
        upload.write(b"ours")
        upload.finish()
        with pytest.raises(FileNotFoundError, match="it was replaced"):
            upload.commit("m", "m.yaml", replace=True)
        upload.abort()
        with pytest.raises(FileNotFoundError, match="it was replaced"):
            blobs.delete("m", ["m.yaml"])
    finally:
        blobs.close()
    assert theirs.read_text() == "somebody else's"


def test_a_folder_that_is_taken_away_after_a_restart_takes_nothing_more(tmp_path: Path) -> None:
    store = LocalBlobs(tmp_path)
    store.open()
    put(store, "folder", "name", b"x")
    store.close()
    store = LocalBlobs(tmp_path)
    store.open()
    shutil.rmtree(tmp_path / "folder")
    with pytest.raises(FileNotFoundError, match="removed while it was in use"):
        put(store, "folder", "name", b"y")
    put(store, "other", "name", b"y")
    store.close()
    assert sorted(os.listdir(tmp_path)) == [".lock", "other"]


def test_what_is_put_while_the_root_is_taken_away_is_not_acknowledged(tmp_path: Path) -> None:
    root = tmp_path / "root"
    armed: list[bool] = []

    class Taken(SystemFiles):
        def sync_folder(self, path: str) -> None:
            super().sync_folder(path)
            if armed and path.endswith("folder"):
                armed.clear()
                root.rename(tmp_path / "away")
                root.mkdir()

    store = LocalBlobs(root, files=Taken())
    store.open()
    put(store, "folder", "name", b"x")
    armed.append(True)
    with pytest.raises(FileNotFoundError, match="it was replaced while it was in use"):
        put(store, "folder", "other", b"x")
    store.close()


def test_a_name_that_somebody_has_given_to_a_file_is_left_to_it(tmp_path: Path) -> None:
    store = LocalBlobs(tmp_path)
    store.open()
    (tmp_path / ".0.tmp").write_bytes(b"by hand")
    put(store, "folder", "name", b"ours")
    assert (tmp_path / ".0.tmp").read_bytes() == b"by hand"
    assert store.read("folder", "name") == b"ours"
    store.close()


def test_an_upload_keeps_its_file_open_until_it_is_finished() -> None:
    disk = SimDisk(random.Random(1))
    store = LocalBlobs("root", files=disk)
    store.open()
    (before,) = disk.recount()
    uploads = [store.upload() for _ in range(3)]
    (during,) = disk.recount()
    assert during.kept == before.kept + 3
    for upload in uploads:
        upload.write(b"x")
        upload.finish()
    (after,) = disk.recount()
    assert after.kept == before.kept
    for number, upload in enumerate(uploads):
        upload.commit("folder", str(number))
    store.close()


def test_of_a_blob_whose_name_may_be_lost_nothing_is_left_unless_it_was_there_before(tmp_path: Path) -> None:
    failing: list[str] = []

    class Failing(SystemFiles):
        def sync_folder(self, path: str) -> None:
            if failing and path.endswith(failing[0]):
                failing.clear()
                raise OSError(errno.EIO, "Input/output error")
            super().sync_folder(path)

    store = LocalBlobs(tmp_path, files=Failing())
    store.open()
    put(store, "folder", "old", b"1")
    for name, replace, left in (("new", False, ["old"]), ("old", True, ["old"])):
        failing.append("folder")
        with pytest.raises(OSError, match="Input/output error"):
            put(store, "folder", name, b"2", replace=replace)
        assert store.names("folder") == left
    store.close()


def test_what_was_committed_is_not_given_up_any_more(tmp_path: Path) -> None:
    store = LocalBlobs(tmp_path)
    store.open()
    upload = store.upload()
    upload.finish()
    upload.commit("folder", "name")
    (tmp_path / ".0.tmp").write_bytes(b"by hand")
    upload.abort()
    upload.abort()
    assert store.read("folder", "name") == b""
    assert (tmp_path / ".0.tmp").exists()
    store.close()


def test_what_is_gone_already_keeps_nothing_else_from_going(tmp_path: Path) -> None:
    store = LocalBlobs(tmp_path)
    store.open()
    for name in ("one", "two", "three"):
        put(store, "folder", name, b"x")
    store.delete("folder", ["nobody", "one", "nothing", "two"])
    assert store.names("folder") == ["three"]
    store.close()
