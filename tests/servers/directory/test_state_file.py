"""The file on a disk: real ones, and one that loses power at every step."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import stat
from pathlib import Path

import pytest

from tests.servers.directory.test_entries import entry, ids
from tests.servers.directory.test_file_format import FOREIGN
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.host.blocking import run_inline
from trio_cogment.base.host.files import FileLock, Files, SystemFiles
from trio_cogment.servers.directory._entries import Entries
from trio_cogment.servers.directory._state_file import StateFile
from trio_cogment.testing import PowerLossError, SimDisk

PATH = "folder/state"
OLD, NEW = Entries([entry(1)]), Entries([entry(1), entry(2)])


def state_file(files: Files, path: str = PATH, seed: int = 0) -> StateFile:
    return StateFile(path, files, run_inline, random.Random(seed).randbytes)


async def load(files: Files, path: str = PATH) -> list[int]:
    file = state_file(files, path, seed=99)
    try:
        entries, _ = await file.load()
    finally:
        file.close()
    return ids(entries)


async def test_nothing_then_something(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    file = state_file(SystemFiles(0o600), path)
    entries, outdated = await file.load()
    assert not len(entries)
    assert outdated
    await file.save(NEW)
    file.close()
    other = state_file(SystemFiles(), path, seed=1)
    salt = other.hasher.salt
    entries, outdated = await other.load()
    assert list(entries) == list(NEW)
    assert not outdated
    assert other.hasher.salt == file.hasher.salt != salt
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    other.close()
    assert sorted(os.listdir(tmp_path)) == ["state", "state.lock"]
    assert stat.S_IMODE(os.stat(f"{path}.lock").st_mode) == 0o600


async def test_two_directories_do_not_share_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    first = state_file(SystemFiles(), path)
    await first.load()
    await first.save(OLD)
    second = state_file(SystemFiles(), path, seed=1)
    who = rf"it is in use by another directory \(process {os.getpid()}\)"
    text = rf"^persistence file {path}: {who}\. Stop that one, or name another file$"
    for _ in range(2):
        with pytest.raises(FailedPreconditionError, match=text):
            await second.load()
        second.close()
    first.close()
    first.close()
    assert ids((await second.load())[0]) == ids(OLD)
    second.close()


async def test_where_nothing_can_be_locked_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Unlockable(SimDisk):
        def lock(self, path: str) -> FileLock:
            raise PermissionError("read-only")

    disk = Unlockable(random.Random(0))
    await state_file(disk).save(OLD)
    assert await load(disk) == [1]
    assert f"persistence file {PATH}: not locked, another directory may use it too: read-only" in caplog.text


async def test_without_a_file_nothing_is_written() -> None:
    disk = SimDisk(random.Random(0))
    file = state_file(disk, "")
    assert (await file.load())[1] is False
    await file.save(NEW)
    assert disk.operations == 0


async def test_the_file_of_the_reference_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text(json.dumps(FOREIGN))
    file = state_file(SystemFiles(0o600), str(path))
    entries, outdated = await file.load()
    assert ids(entries) == [12, 7100000000000000001]
    assert outdated
    await file.save(entries)
    file.close()
    assert "aB-_9" not in path.read_text()
    assert "team-a" not in path.read_text()
    assert await load(SystemFiles(), str(path)) == [12, 7100000000000000001]


async def test_what_cannot_be_understood_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "state"
    for content in ("first", "second"):
        path.write_text(content)
        assert await load(SystemFiles(), str(path)) == []
        assert not path.exists()
    assert (tmp_path / "state.unreadable").read_text() == "first"
    assert (tmp_path / "state.unreadable.2").read_text() == "second"
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "not JSON" in warnings[0]
    assert warnings[0].endswith(f"it was renamed to {path}.unreadable, and there are no registrations")


async def test_left_out_registrations_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "state"
    path.write_text(json.dumps({**FOREIGN, "x": FOREIGN["12"]}))
    assert len(await load(SystemFiles(), str(path))) == 2
    assert "left out a registration: expected the number of a service, got 'x'" in caplog.text


async def test_a_file_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FailedPreconditionError, match=rf"^persistence file {tmp_path}: .*move the file away"):
        await load(SystemFiles(), str(tmp_path))  # a folder


async def test_a_file_that_cannot_be_kept_is_left_alone() -> None:
    class Stubborn(SimDisk):
        def replace(self, source: str, target: str) -> None:
            raise PermissionError("no")

    disk = Stubborn(random.Random(0))
    disk.open(PATH).write(b"nonsense")
    with pytest.raises(FailedPreconditionError, match="persistence file folder/state: no"):
        await load(disk)
    assert disk.read(PATH) == b"nonsense"


async def test_power_may_go_at_any_step_of_a_write() -> None:
    seen = set()
    for seed in range(30):
        for step in range(8):
            disk = SimDisk(random.Random(seed))
            file = state_file(disk)
            await file.load()
            await file.save(OLD)
            disk.crash_at(disk.operations + step)
            try:
                await file.save(NEW)
                durable = True
                disk.crash()
            except PowerLossError:
                durable = False
            disk.restart()
            found = await load(disk)
            assert found == [1, 2] or (not durable and found == [1])
            seen.add((durable, len(found)))
    assert seen == {(True, 2), (False, 1), (False, 2)}


async def test_power_may_go_at_any_step_of_putting_aside() -> None:
    for seed in range(30):
        for step in range(8):
            disk = SimDisk(random.Random(seed))
            file = disk.open(PATH)
            file.write(b"nonsense")
            file.sync()
            disk.sync_folder("folder")
            disk.crash_at(disk.operations + step)
            try:
                one = state_file(disk)
                entries, _ = await one.load()
                await one.save(entries)
                disk.crash()
            except (PowerLossError, FailedPreconditionError):
                pass
            disk.restart()
            assert await load(disk) == []
            assert disk.read(f"{PATH}.unreadable") == b"nonsense"


@pytest.mark.parametrize("simulated", [False, True])
async def test_without_its_lock_file_it_is_still_locked(simulated: bool, tmp_path: Path) -> None:
    files: Files = SimDisk(random.Random(0)) if simulated else SystemFiles()
    path = str(tmp_path / "state")
    first = state_file(files, path)
    await first.load()
    for entries in (OLD, NEW):
        await first.save(entries)
        files.remove(f"{path}.lock")
        with pytest.raises(FailedPreconditionError, match="in use by another directory"):
            await load(files, path)
    await first.save(OLD)
    first.close()
    assert await load(files, path) == ids(OLD)


async def test_a_file_that_was_removed_is_written_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "state"
    file = state_file(SystemFiles(), str(path))
    await file.load()
    await file.save(OLD)
    path.unlink()
    await file.save(NEW)
    file.close()
    assert await load(SystemFiles(), str(path)) == ids(NEW)
    assert f"persistence file {path}: it was removed; it is written again" in caplog.messages


async def test_a_file_that_has_taken_its_place_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "state"
    file = state_file(SystemFiles(), str(path))
    await file.load()
    await file.save(OLD)
    (tmp_path / "restored").write_text("somebody else's")
    os.replace(tmp_path / "restored", path)
    for _ in range(2):
        with pytest.raises(FileExistsError, match=r"another file was put in its place.*: '.*/state'$") as caught:
            await file.save(NEW)
        assert caught.value.errno == errno.EEXIST
    assert path.read_text() == "somebody else's"
    path.unlink()
    await file.save(NEW)
    file.close()
    assert await load(SystemFiles(), str(path)) == ids(NEW)


async def test_what_was_put_aside_is_written_anew_and_has_the_name_that_was_told() -> None:
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        file = disk.open(PATH)
        file.write(b"nonsense")
        file.sync()
        disk.sync_folder("folder")
        one = state_file(disk)
        entries, outdated = await one.load()
        assert not len(entries)
        assert outdated
        disk.crash()
        disk.restart()
        assert disk.read(f"{PATH}.unreadable") == b"nonsense"


async def test_what_was_put_aside_is_not_said_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the file was given by its bare name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state").write_text("nonsense")
    (tmp_path / "state.unreadable").write_text("older")
    one = state_file(SystemFiles(), "state")
    entries, outdated = await one.load()
    assert (list(entries), outdated) == ([], True)
    assert (tmp_path / "state.unreadable.2").read_text() == "nonsense"
    caplog.clear()
    await one.save(NEW)
    one.close()
    assert caplog.messages == []
    assert await load(SystemFiles(), "state") == ids(NEW)


async def test_what_was_put_aside_stays_there_when_the_power_goes() -> None:
    disk = SimDisk(random.Random(0))
    with_folder = disk.open(PATH)
    with_folder.write(b"nonsense")
    with_folder.sync()
    disk.sync_folder("folder")
    synced: list[str] = []
    sync = disk.sync_folder

    def noted(folder: str) -> None:
        synced.append(folder)
        sync(folder)

    disk.sync_folder = noted  # type: ignore[method-assign]  # of this one
    assert await load(disk) == []
    assert synced == ["folder"]
