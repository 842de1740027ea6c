"""The simulated disk, and what `trio_cogment.files` promises on it."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from trio_cogment.files import Files, SystemFiles, replace_durably, write_whole
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
