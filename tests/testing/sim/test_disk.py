"""The simulated disk, and what `trio_cogment.base.host.files` promises on it."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from trio_cogment.base.host.files import Files, LockedError, SystemFiles, replace_durably, write_whole
from trio_cogment.testing import PowerLossError, SimDisk, World

OLD, NEW = b"old" * 700, b"new" * 900


@pytest.mark.parametrize("simulated", [False, True])
def test_both_behave_alike(simulated: bool, tmp_path: Path) -> None:
    files: Files = SimDisk(random.Random(1)) if simulated else SystemFiles()
    folder = str(tmp_path)
    path = f"{folder}/file"
    with pytest.raises(FileNotFoundError):
        files.read(path)
    file = files.open(path)
    write_whole(file, b"one")
    file.sync()
    file.close()
    file.close()
    with pytest.raises(OSError, match=r"Bad file descriptor"):
        file.write(b"x")
    again = files.open(path, append=True)
    write_whole(again, b" two")
    again.close()
    assert files.read(path) == b"one two"
    files.replace(path, f"{folder}/other")
    replace_durably(files, path, b"three")
    assert files.names(folder) == ["file", "other"]
    assert (files.read(path), files.read(f"{folder}/other")) == (b"three", b"one two")
    emptied = files.open(path)
    emptied.close()
    assert files.read(path) == b""
    files.remove(path)
    files.sync_folder(folder)
    assert files.names(folder) == ["other"]


@pytest.mark.parametrize("simulated", [False, True])
def test_folders_ranges_and_locks_are_alike_too(simulated: bool, tmp_path: Path) -> None:
    files: Files = SimDisk(random.Random(1)) if simulated else SystemFiles()
    root = str(tmp_path)
    files.make_folder(f"{root}/a")
    files.sync_folder(root)
    with pytest.raises(FileExistsError):
        files.make_folder(f"{root}/a")
    write_whole(files.open(f"{root}/a/file", exclusive=True), b"0123456789")
    with pytest.raises(FileExistsError):
        files.open(f"{root}/a/file", exclusive=True)
    assert (files.names(root), files.folders(root), files.folders(f"{root}/a")) == (["a"], ["a"], [])
    assert files.size(f"{root}/a/file") == 10
    for missing in (files.size, files.open_read):
        with pytest.raises(FileNotFoundError):
            missing(f"{root}/a/nothing")
    with pytest.raises(IsADirectoryError):
        files.read(f"{root}/a")
    reading = files.open_read(f"{root}/a/file")
    assert [reading.size(), reading.read_at(2, 3), reading.read_at(8, 5), reading.read_at(10, 5)] == [
        10, b"234", b"89", b"",
    ]  # fmt: skip
    replace_durably(files, f"{root}/a/file", b"other")
    files.remove(f"{root}/a/file")
    assert reading.read_at(0, 10) == b"0123456789"
    reading.close()
    reading.close()
    with pytest.raises(OSError, match=r"Bad file descriptor|power went"):
        reading.read_at(0, 1)
    lock = files.lock(f"{root}/a/lock")
    with pytest.raises(LockedError) as held:
        files.lock(f"{root}/a/lock")
    if isinstance(files, SystemFiles):
        assert held.value.holder == os.getpid()
        assert files.read(f"{root}/a/lock") == b"%d\n" % os.getpid()
        assert held.value.who == f" (process {os.getpid()})"
    else:
        assert (held.value.holder, held.value.who) == (None, "")
    with pytest.raises(OSError, match="not empty"):
        files.remove_folder(f"{root}/a")
    lock.release()
    lock.release()
    files.lock(f"{root}/a/lock").release()
    for path in (f"{root}/a", f"{root}/a/lock"):
        claim = files.claim(path)
        assert files.identity(path) == claim.identity
        with pytest.raises(LockedError):
            files.claim(path)
        claim.release()
        files.claim(path).release()
    for absent in (files.claim, files.identity):
        with pytest.raises(FileNotFoundError):
            absent(f"{root}/a/nothing")
    claim = files.claim(f"{root}/a/lock")
    files.remove(f"{root}/a/lock")
    files.open(f"{root}/a/lock").close()
    assert files.identity(f"{root}/a/lock") != claim.identity
    files.claim(f"{root}/a/lock").release()
    claim.release()
    files.remove(f"{root}/a/lock")
    files.remove_folder(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        files.remove_folder(f"{root}/a")
    assert files.names(root) == []


def test_a_folder_is_lost_with_all_that_is_in_it_unless_the_one_it_is_in_was_synced() -> None:
    outcomes = set()
    for seed in range(30):
        disk = SimDisk(random.Random(seed))
        disk.make_folder("a")
        replace_durably(disk, "a/file", OLD)
        disk.crash()
        disk.restart()
        outcomes.add(tuple(disk.names("a")))
        disk = SimDisk(random.Random(seed))
        disk.make_folder("a")
        disk.sync_folder(".")
        replace_durably(disk, "a/file", OLD)
        disk.crash()
        disk.restart()
        assert disk.read("a/file") == OLD
    assert outcomes == {(), ("file",)}


def test_what_was_in_a_folder_that_is_gone_does_not_come_back_in_its_successor() -> None:
    for seed in range(30):
        disk = SimDisk(random.Random(seed))
        disk.make_folder("a")
        disk.sync_folder(".")
        replace_durably(disk, "a/file", OLD)
        disk.remove("a/file")
        disk.remove_folder("a")
        disk.sync_folder(".")
        disk.make_folder("a")
        disk.sync_folder(".")
        replace_durably(disk, "a/other", NEW)
        disk.crash()
        disk.restart()
        assert disk.names("a") == ["other"]


def test_the_power_ends_locks_and_open_files() -> None:
    disk = SimDisk(random.Random(1))
    replace_durably(disk, "file", OLD)
    reading = disk.open_read("file")
    disk.lock("lock")
    disk.crash()
    disk.restart()
    disk.lock("lock")
    with pytest.raises(OSError, match="when the power went"):
        reading.read_at(0, 1)


def test_replacing_survives_a_loss_of_power_at_every_point() -> None:
    disk = SimDisk(random.Random(0))
    replace_durably(disk, "a/file", OLD)
    before = disk.operations
    replace_durably(disk, "a/file", NEW)
    points = disk.operations - before
    assert points >= 5
    seen = set()
    for seed in range(200):
        for point in range(points + 1):
            disk = SimDisk(random.Random(seed))
            replace_durably(disk, "a/file", OLD)
            disk.crash_at(disk.operations + point)
            done = False
            try:
                replace_durably(disk, "a/file", NEW)
                done = True
            except PowerLossError:
                pass
            if done:
                disk.crash()
            disk.restart()
            content = disk.read("a/file")
            seen.add((content == NEW, done))
            assert content == NEW if done else content in (OLD, NEW)
    assert seen == {(False, False), (True, False), (True, True)}


def test_writing_in_place_is_torn() -> None:
    """What the disk is for: the naive writer loses both the old and the new."""
    torn = 0
    for seed in range(100):
        disk = SimDisk(World(seed).stream("disk"))
        replace_durably(disk, "file", OLD)
        file = disk.open("file", append=True)
        write_whole(file, NEW)
        disk.crash()
        disk.restart()
        torn += disk.read("file") not in (OLD, OLD + NEW)
        with pytest.raises(OSError, match="when the power went"):
            file.write(b"x")
    assert 0 < torn < 100


def test_full_disk_keeps_what_there_was() -> None:
    disk = SimDisk(random.Random(1), capacity_bytes=len(OLD) + 10)
    replace_durably(disk, "file", OLD)
    with pytest.raises(OSError, match="No space") as caught:
        replace_durably(disk, "file", NEW)
    assert caught.value.errno == errno.ENOSPC
    assert disk.read("file") == OLD
    assert disk.names(".") == ["file"]
    disk.capacity_bytes = 1 << 20
    replace_durably(disk, "file", NEW)
    assert disk.read("file") == NEW


def test_failed_sync_is_never_made_good_by_the_next_one() -> None:
    disk = SimDisk(random.Random(1))
    file = disk.open("file")
    disk.sync_folder(".")
    write_whole(file, NEW)
    disk.fail_syncs()
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    assert disk.read("file") == NEW
    disk.crash()
    with pytest.raises(PowerLossError):
        disk.read("file")
    disk.restart()
    assert disk.read("file") == b""


def test_failed_sync_of_a_replacement_keeps_the_old() -> None:
    disk = SimDisk(random.Random(1))
    replace_durably(disk, "file", OLD)
    disk.fail_syncs()
    with pytest.raises(OSError, match="Input/output error"):
        replace_durably(disk, "file", NEW)
    assert disk.read("file") == OLD
    disk.crash()
    disk.restart()
    assert disk.read("file") == OLD


def test_unsynced_names_may_be_lost() -> None:
    outcomes = set()
    for seed in range(50):
        disk = SimDisk(random.Random(seed))
        replace_durably(disk, "file", OLD)
        disk.replace("file", "renamed")
        disk.crash()
        disk.restart()
        outcomes.add(tuple(disk.names(".")))
    assert outcomes == {("file",), ("renamed",)}
