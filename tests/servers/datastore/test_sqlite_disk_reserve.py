"""Disks and databases that are full, and then not any more."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import ResourceExhaustedError, UnavailableError
from trio_cogment.servers.datastore import _sqlite_disk_reserve
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.servers.datastore.storage import EndWrite, OutcomeWrite, SampleWrite, TrialEnd, TrialStore, Write
from trio_cogment.testing.conformance.trial_store import get, ids, new_trial, sample, ticks


def noise(size: int, seed: int) -> bytes:
    """Return bytes that do not become smaller when they are compressed."""
    return random.Random(seed).randbytes(size)


def big(trial_id: str, tick_id: int) -> SampleWrite:
    return sample(trial_id, tick_id, payload=noise(20_000, tick_id))


async def fill(store: TrialStore, written: int = 0) -> int:
    """Write until there is no room, beginning with a tick; return the next one."""
    while True:
        try:
            await store.apply([big("a", written), big("a", written + 1)])
        except ResourceExhaustedError:
            return written
        written += 2


async def test_full_and_with_room_again(tmp_path: Path) -> None:
    """A write without room is refused whole; deleting makes room, without a restart."""
    async with open_store(f"sqlite:{tmp_path}/a.db", file_bytes=1_000_000) as store:
        await store.apply([new_trial("a"), new_trial("b")])
        written = await fill(store)
        assert 20 < written < 50
        for _ in range(3):
            with pytest.raises(ResourceExhaustedError, match="no room left"):
                await store.apply([new_trial("c"), sample("b", 0), *(big("b", tick) for tick in range(1, 50))])
        assert await ticks(store, "a") == list(range(written))
        assert await ids(store) == ["a", "b"]
        assert (await get(store, "b")).samples_count == 0
        await store.delete(["a"])
        await trio.testing.wait_all_tasks_blocked()
        for tick in range(0, written, 2):  # each is in the log, too, until that is copied
            await apply_when_swept(store, [big("b", tick), big("b", tick + 1)])
        assert await ticks(store, "b") == list(range(written))


@pytest.mark.parametrize("limit", [400_000, 1_000_000, 3_000_000])
async def test_the_files_of_a_store_stay_within_its_limit(limit: int, tmp_path: Path) -> None:
    """All of them together, at any time: while samples come, one by one and many at a time, and while trials go."""
    folder = tmp_path / "store"
    folder.mkdir()
    largest = tick = 0

    def look() -> None:
        nonlocal largest
        largest = max(largest, sum(file.stat().st_size for file in folder.iterdir()))
        assert largest <= limit

    async def more(count: int, size: int) -> bool:
        nonlocal tick
        try:
            await store.apply(
                [sample("a", tick + number, payload=noise(size, tick + number)) for number in range(count)]
            )
        except ResourceExhaustedError:
            return False
        finally:
            look()
        tick += count
        return True

    async with open_store(f"sqlite:{folder}/a.db", durability="batch", file_bytes=limit) as store:
        for number in range(2):
            tick = 0
            await store.apply([new_trial("a", user_id=f"{number}")])
            while await more(1, 100) and tick < 60:
                pass
            while await more(20, 500) or await more(1, 3000):
                pass
            with pytest.raises(ResourceExhaustedError, match=f"its files may have {limit} bytes together"):
                await store.apply([sample("a", tick, payload=noise(3000, tick))])
            assert tick > 10
            assert await ticks(store, "a") == list(range(tick))
            await store.delete(["a"])
            with trio.fail_after(30):
                while True:
                    look()
                    try:
                        await store.apply([new_trial("b"), sample("b", 0)])
                        break
                    except ResourceExhaustedError:
                        await trio.sleep(0.01)
            await store.delete(["b"])
            await trio.testing.wait_all_tasks_blocked(0.1)
            look()
    assert largest > limit * 0.6


async def apply_when_swept(store: TrialStore, writes: list[Write]) -> None:
    with trio.fail_after(30):
        while True:
            try:
                await store.apply(writes)
                return
            except ResourceExhaustedError:
                await trio.sleep(0.01)


async def test_a_full_disk_can_be_deleted_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's way into the database is kept free, or deletions would need room themselves."""
    disk = 12_000_000
    least = disk

    def look(_path: str) -> SimpleNamespace:
        nonlocal least
        free = disk - sum(one.stat().st_size for one in tmp_path.iterdir())
        least = min(least, free)
        return SimpleNamespace(f_frsize=1, f_blocks=disk, f_bavail=free)

    monkeypatch.setattr(_sqlite_disk_reserve, "os", SimpleNamespace(statvfs=look, stat=os.stat))
    async with open_store(f"sqlite:{tmp_path}/a.db", durability="batch") as store:
        await store.apply([new_trial("a"), new_trial("b")])
        written = await fill(store)
        assert written * 20_000 > disk / 2
        for _ in range(3):
            with pytest.raises(ResourceExhaustedError, match="no room left"):
                await store.apply([big("b", tick) for tick in range(5)])
            assert await store.delete(["a"]) == ["a"]
            for tick in range(0, written // 2, 10):
                await apply_when_swept(store, [big("b", tick + more) for more in range(10)])
            assert await store.delete(["b"]) == ["b"]
            await apply_when_swept(store, [new_trial("a"), new_trial("b")])
            await fill(store)
    assert least > 0


def test_much_room_is_not_looked_at_for_each_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That somebody else fills the disk is noticed after a few transactions, some bytes, a second, or a failure."""
    free = 1 << 40
    looks = 0
    now = 100.0

    def look(_path: str) -> SimpleNamespace:
        nonlocal looks
        looks += 1
        return SimpleNamespace(f_frsize=1, f_blocks=1 << 40, f_bavail=free)

    monkeypatch.setattr(_sqlite_disk_reserve, "os", SimpleNamespace(statvfs=look, stat=os.stat))
    room = _sqlite_disk_reserve.DiskReserve(str(tmp_path / "a.db"), clock=lambda: now)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        for _ in range(34):
            room.check(connection, 1)
        assert looks == 2
        for _ in range(4):
            room.check(connection, 1_500_000)
        assert looks == 4
        room.check(connection, 1)
        assert looks == 4
        now += 0.9
        room.check(connection, 1)
        assert looks == 4
        now += 0.2
        room.check(connection, 1)
        assert looks == 5
        room.recheck()
        room.check(connection, 1)
        assert looks == 6
        # One that is too large to go unseen finds that there is little: small ones do not go unseen any more.
        free = 500_000_000
        room.check(connection, 8_000_000)
        before = looks
        room.check(connection, 1)
        assert looks > before
        free = 1_000_000
        kept = 0
        with pytest.raises(ResourceExhaustedError):  # noqa: PT012  as often as it takes
            while kept < 100:
                room.check(connection, 1)
                kept += 1
        assert kept <= 16


@pytest.mark.parametrize(("disk", "kept"), [(1 << 40, 16 << 20), (80 << 20, 10 << 20)])
@pytest.mark.parametrize("size", [0, 1000, 4_000_000])
def test_what_is_kept_free(size: int, disk: int, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MiB, or an eighth of a small disk, beside the transaction: in the log, and in the database.

    It takes a quarter more than its data, and sixteen pages of 8 KiB.
    """
    free = 0

    def look(_path: str) -> SimpleNamespace:
        return SimpleNamespace(f_frsize=1, f_blocks=disk, f_bavail=free)

    monkeypatch.setattr(_sqlite_disk_reserve, "os", SimpleNamespace(statvfs=look, stat=os.stat))
    room = _sqlite_disk_reserve.DiskReserve(str(tmp_path / "a.db"), clock=lambda: 0.0)
    needed = 2 * (size + size // 4 + 16 * 8192) + kept
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        free = needed
        room.check(connection, size)
        free = needed - 1
        with pytest.raises(ResourceExhaustedError, match="the rest of the disk is kept for deletions"):
            room.check(connection, size)
        # With a gibibyte more, what is written next is not looked at.
        free = needed + 2 * (1 << 30) - 1
        room.check(connection, size)
        free = 0
        with pytest.raises(ResourceExhaustedError):
            room.check(connection, 0)
        free = needed + 2 * (1 << 30)
        room.check(connection, size)
        free = 0
        room.check(connection, 0)


async def test_trials_can_end_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the reserve is for that; for samples, and for trials that begin, nothing of it is."""
    free = 1 << 40
    path = tmp_path / "a.db"

    def look(_path: str) -> SimpleNamespace:
        return SimpleNamespace(f_frsize=1, f_blocks=1 << 40, f_bavail=free)

    monkeypatch.setattr(_sqlite_disk_reserve, "os", SimpleNamespace(statvfs=look, stat=os.stat))
    monkeypatch.setattr(_sqlite_disk_reserve, "_SPARE_SECONDS", 0.0)  # it looks each time
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a"), new_trial("b"), sample("a", 0)])
        free = 12 << 20
        outcome = OutcomeWrite("a", b"so it ended")
        last = sample("a", 1, state=TrialState.ENDED)
        batches: list[list[Write]] = [
            [sample("a", 1)],
            [new_trial("c")],
            [sample("a", 1, state=TrialState.ENDED, payload=bytes(5000))],
            [outcome, sample("b", 0)],
        ]
        for refused in batches:
            with pytest.raises(ResourceExhaustedError, match="kept for deletions"):
                await store.apply(refused)
        await store.apply([new_trial("a"), last, outcome])
        await store.apply([EndWrite("b", TrialEnd.ABNORMAL)])
        assert await ticks(store, "a") == [0, 1]
        assert ((await get(store, "a")).end, (await get(store, "a")).outcome) == (TrialEnd.ENDED, b"so it ended")
        assert (await get(store, "b")).end == TrialEnd.ABNORMAL
        free = 8 << 20
        with pytest.raises(ResourceExhaustedError, match="kept for deletions"):
            await store.apply([outcome])
        assert await store.delete(["a"]) == ["a"]


async def test_after_a_failure_room_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others have left of the disk since the last look is not used up by tries: it is for deletions."""
    free = 1 << 40

    def look(_path: str) -> SimpleNamespace:
        return SimpleNamespace(f_frsize=1, f_blocks=1 << 40, f_bavail=free)

    monkeypatch.setattr(_sqlite_disk_reserve, "os", SimpleNamespace(statvfs=look, stat=os.stat))
    monkeypatch.setattr(_sqlite_disk_reserve, "_SPARE_SECONDS", 3600.0)
    async with open_store(f"sqlite:{tmp_path}/a.db") as store:
        await store.apply([new_trial("a")])
        free = 1_000_000
        await store.apply([sample("a", 0)])
        with pytest.raises(UnicodeEncodeError):
            await store.apply([new_trial("b", user_id="\udc80")])
        with pytest.raises(ResourceExhaustedError, match="kept for deletions"):
            await store.apply([sample("a", 1)])
        assert await ticks(store, "a") == [0]
        assert await store.delete(["a"]) == ["a"]


@pytest.mark.soak
def test_full_disk(tmp_path: Path) -> None:
    """A small file system: full, and then not any more."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.decode().strip()}")
    try:
        filler = mount / "filler"
        filler.write_bytes(bytes(1_500_000))

        async def main() -> None:
            async with open_store(f"sqlite:{mount}/a.db") as store:
                await store.apply([new_trial("a")])
                written = await fill(store)
                assert written > 10
                with pytest.raises((ResourceExhaustedError, UnavailableError)):
                    await store.apply([big("a", tick) for tick in range(written, written + 100)])
                assert await ticks(store, "a") == list(range(written))
                filler.unlink()
                await store.apply([big("a", written), big("a", written + 1)])
                assert await ticks(store, "a") == list(range(written + 2))
                await store.apply([new_trial("b")])
            async with open_store(f"sqlite:{mount}/a.db") as store:
                assert await ticks(store, "a") == list(range(written + 2))
                written = await fill(store, written + 2)
                await store.delete(["a"])
                for tick in range(written // 2):
                    await apply_when_swept(store, [big("b", tick)])

        trio.run(main)
    finally:
        subprocess.run(["umount", str(mount)], check=True)
