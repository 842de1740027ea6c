"""Changes are written together, are true when they are written, and none is made when that fails."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from tests.servers.directory.test_entries import HASHER, MINE, entry, ids
from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, UnavailableError
from trio_cogment.servers.directory._changes import Changes
from trio_cogment.servers.directory._entries import Entries

Clock = trio.testing.MockClock
CONFIG = DirectoryServerConfig()
WRITE_SECONDS = 1.0


class Disk:
    """Takes a second for each write."""

    def __init__(self) -> None:
        self.written: list[list[int]] = []
        self.adopted: list[list[int]] = []
        self.broken = False
        self.changes = Changes(self.save, self.adopt, max_pending=3, retry_seconds=5)

    async def save(self, entries: Entries) -> None:
        with trio.CancelScope(shield=True):  # as a thread is
            await trio.sleep(WRITE_SECONDS)
        if self.broken:
            raise OSError("no space")
        self.written.append(ids(entries))

    def adopt(self, entries: Entries) -> None:
        self.adopted.append(ids(entries))

    async def register(self, number: int) -> None:
        await self.changes.make(lambda entries: entries.register(entry(number), CONFIG))

    async def deregister(self, number: int) -> None:
        await self.changes.make(lambda entries: entries.deregister(number, MINE, HASHER.digest("s")))


@asynccontextmanager
async def disk_at_work() -> AsyncIterator[tuple[Disk, trio.Nursery]]:
    disk = Disk()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.changes.run)
        yield disk, nursery
        nursery.cancel_scope.cancel()


async def test_what_comes_during_a_write_is_written_together(autojump_clock: Clock) -> None:
    async with disk_at_work() as (disk, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(disk.register, 1)
            await trio.testing.wait_all_tasks_blocked()
            for number in (2, 3, 4, 5, 6):  # more than may wait
                nursery.start_soon(disk.register, number)
                await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == 2 * WRITE_SECONDS
    assert disk.written == disk.adopted == [[1], [1, 2, 3, 4, 5, 6]]


async def test_one_after_the_other_in_one_write(autojump_clock: Clock) -> None:
    """A later change sees an earlier one; a refused one changes nothing and needs no write."""
    async with disk_at_work() as (disk, _):
        results: list[str] = []

        async def note(name: str, function: Callable[[int], object], number: int) -> None:
            try:
                await function(number)  # type: ignore[misc]  # one of the disk's
                results.append(name)
            except CogmentError as error:
                results.append(f"{name}: {type(error).__name__}")

        async with trio.open_nursery() as nursery:
            for name, function in (("in", disk.register), ("out", disk.deregister), ("again", disk.deregister)):
                nursery.start_soon(note, name, function, 1)
                await trio.testing.wait_all_tasks_blocked()
        assert sorted(results) == ["again: FailedPreconditionError", "in", "out"]
        assert disk.written == [[1], []]
        began = trio.current_time()
        with pytest.raises(FailedPreconditionError):
            await disk.deregister(1)
        assert trio.current_time() == began
    assert disk.written == [[1], []]


async def test_a_disk_that_fails(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with disk_at_work() as (disk, _):
        await disk.register(1)
        disk.broken = True
        for number in (2, 3):
            with pytest.raises(UnavailableError, match=r"^the directory cannot write its file: no space$"):
                await disk.register(number)
        with pytest.raises(UnavailableError):
            await disk.deregister(1)
        assert disk.adopted == [[1]]
        await trio.sleep(20)
        disk.broken = False
        # It is not known what the failed write has left: the truth is written without anybody's asking.
        await trio.sleep(5 + 2 * WRITE_SECONDS)
        assert disk.written == [[1], [1]]
        await disk.register(4)
        assert disk.written[-1] == disk.adopted[-1] == [1, 4]
    messages = [record.message for record in caplog.records]
    assert messages == [
        "the registrations cannot be written; changes are refused: no space",
        "the registrations can be written again",
    ]


async def test_a_change_that_fails_is_undone_and_harms_no_other(autojump_clock: Clock) -> None:
    """It may have failed halfway, and the others are made without it."""

    def half(entries: Entries) -> None:
        entries.register(entry(9), CONFIG)
        raise ZeroDivisionError("planted")

    async with disk_at_work() as (disk, nursery):
        nursery.start_soon(disk.register, 1)
        await trio.testing.wait_all_tasks_blocked()
        outcomes: list[str] = []

        async def note(function: Callable[[], Awaitable[object]]) -> None:
            try:
                await function()
                outcomes.append("made")
            except (FailedPreconditionError, ZeroDivisionError) as error:
                outcomes.append(type(error).__name__)

        async with trio.open_nursery() as attempts:
            for function in (
                partial(disk.register, 2),
                partial(disk.changes.make, half),
                partial(disk.deregister, 7),
                partial(disk.changes.make, half),
                partial(disk.register, 3),
            ):
                attempts.start_soon(note, function)
                await trio.testing.wait_all_tasks_blocked()
        assert sorted(outcomes) == ["FailedPreconditionError", "ZeroDivisionError", "ZeroDivisionError", "made", "made"]
        await disk.register(4)
    assert disk.written == disk.adopted == [[1], [1, 2, 3], [1, 2, 3, 4]]


async def test_a_write_that_fails_in_another_way(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def planted(entries: Entries) -> list[int]:
        raise ZeroDivisionError("planted")

    async with disk_at_work() as (disk, _):
        with monkeypatch.context() as patched:
            patched.setattr("tests.servers.directory.test_changes.ids", planted)
            with pytest.raises(UnavailableError, match=r"^the directory cannot write its file; the server's log has"):
                await disk.register(1)
        await disk.register(2)
    assert disk.written == disk.adopted == [[2]]
    assert "ZeroDivisionError: planted" in caplog.text


async def test_everybody_in_a_batch_that_fails_is_told(autojump_clock: Clock) -> None:
    async with disk_at_work() as (disk, nursery):
        nursery.start_soon(disk.register, 1)
        await trio.testing.wait_all_tasks_blocked()
        refused: list[int] = []

        async def attempt(number: int) -> None:
            with pytest.raises(UnavailableError, match="no space"):
                await disk.register(number)
            refused.append(number)

        async with trio.open_nursery() as attempts:
            for number in (2, 3, 4):
                attempts.start_soon(attempt, number)
            await trio.sleep(WRITE_SECONDS / 2)
            disk.broken = True
            # The write that is under way ends badly, and so does that of the three, which is one.
            await trio.sleep(WRITE_SECONDS / 4)
            disk.broken = False
            await trio.sleep(WRITE_SECONDS / 2)
            disk.broken = True
        assert sorted(refused) == [2, 3, 4]
        assert disk.adopted[-1] == [1]
        disk.broken = False


async def test_who_goes_away_before_the_write_is_not_registered(autojump_clock: Clock) -> None:
    async with disk_at_work() as (disk, nursery):
        nursery.start_soon(disk.register, 1)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(WRITE_SECONDS / 2):
            await disk.register(2)
        with trio.move_on_after(WRITE_SECONDS / 4):
            await disk.register(3)
        await disk.register(4)
    assert disk.written == [[1], [1, 4]]


async def test_the_beginning(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    await disk.changes.begin(Entries([entry(7)]), write=False)
    assert (disk.adopted, disk.written) == ([[7]], [])
    disk.broken = True
    await disk.changes.begin(Entries([entry(8)]), write=True)
    assert (disk.adopted, disk.written) == ([[7], [8]], [])
    assert "cannot be written" in caplog.text
    disk.broken = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.changes.run)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert disk.written == [[8]]


async def test_the_end(autojump_clock: Clock) -> None:
    """What is being written is true; what waits, or comes later, is refused."""
    disk, outcomes = Disk(), dict[int, str]()

    async def note(number: int) -> None:
        try:
            await disk.register(number)
            outcomes[number] = "true"
        except UnavailableError as error:
            outcomes[number] = str(error)

    async with trio.open_nursery() as callers:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(disk.changes.run)
            for number in range(1, 8):
                callers.start_soon(note, number)
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await note(8)
    assert disk.written == [[1]]
    assert outcomes == {1: "true", **dict.fromkeys(range(2, 9), "the directory is stopping")}
