"""Schedule of the checks of services, and what is said about it."""

from __future__ import annotations

import logging

import pytest
import trio

from tests.servers.directory.test_entries import entry
from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.servers.directory._check_schedule import CheckScheduler
from trio_cogment.servers.directory._entries import Entries, Entry
from trio_cogment.servers.directory._monitored_entries import MonitoredEntries

Clock = trio.testing.MockClock
CONFIG = DirectoryServerConfig(
    check_interval_seconds=10, recheck_initial_seconds=1, scan_interval_seconds=0.25, registration_wait_seconds=0,
    max_failures=3, forget_seconds=20,
)  # fmt: skip


class Bench:
    """A scheduler and what it checks.

    Attributes:
        load: what a check returns.
        checked: the times of the checks.
        removed: who was given up.
        shown: how often somebody came to be shown.
    """

    def __init__(self) -> None:
        self.load: int | None = 3
        self.checked: list[float] = []
        self.removed: list[int] = []
        self.shown = 0
        self.monitored = MonitoredEntries(CONFIG)
        self.monitored.adopt(Entries([entry(1)]), trio.current_time())
        self.scheduler = CheckScheduler(self.monitored, self.check, self.remove, self.count, CONFIG)

    async def check(self, _entry: Entry) -> int | None:
        await trio.lowlevel.checkpoint()
        self.checked.append(trio.current_time())
        return self.load

    async def remove(self, gone: Entry) -> None:
        await trio.lowlevel.checkpoint()
        self.removed.append(gone.service_id)
        self.monitored.adopt(Entries(), trio.current_time())

    def count(self) -> None:
        self.shown += 1


async def test_what_becomes_of_a_service_is_logged(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "trio_cogment.servers.directory")
    one = Bench()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.scheduler.run)
        for load, seconds in ((3, 5), (None, 11), (7, 11), (9, 30), (None, 100)):
            one.load = load
            await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    assert one.shown == 2
    assert one.removed == [1]
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("DEBUG", "service 1 at host-1:9000 is up"),
        ("INFO", "service 1 at host-1:9000 is down"),
        ("INFO", "service 1 at host-1:9000 is up"),
        ("INFO", "service 1 at host-1:9000 is down"),
    ]


@pytest.mark.parametrize("where", ["record", "remove"])
async def test_what_fails_with_one_service_ends_no_other(
    where: str, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = Bench()
    one.monitored.adopt(Entries([entry(1), entry(2)]), trio.current_time())
    record, remove = one.monitored.record, one.remove

    def planted_record(of: Entry, load: int | None, now: float) -> None:
        if of.service_id == 1:
            raise RuntimeError("planted")
        record(of, load, now)

    async def planted_remove(of: Entry) -> None:
        if of.service_id == 1:
            raise RuntimeError("planted")
        await remove(of)

    if where == "record":
        monkeypatch.setattr(one.monitored, "record", planted_record)
    else:
        one.scheduler = CheckScheduler(one.monitored, one.check, planted_remove, one.count, CONFIG)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.scheduler.run)
        await trio.sleep(5)
        with trio.fail_after(1):
            await one.scheduler.check_now([entry(1), entry(2)], wait_seconds=10)
        one.load = None
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert one.removed == [2]
    assert "the health check of service 1 at host-1:9000 failed" in caplog.text
    assert "RuntimeError: planted" in caplog.text


async def test_before_the_start_and_after_the_end_nothing_is_checked(autojump_clock: Clock) -> None:
    one = Bench()
    await one.scheduler.check_now([entry(1)], wait_seconds=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.scheduler.run)
        await trio.sleep(1)
        assert len(one.checked) == 1
        await one.scheduler.check_now([entry(1)], wait_seconds=10)
        assert len(one.checked) == 2
        nursery.cancel_scope.cancel()
    await one.scheduler.check_now([entry(1)], wait_seconds=10)
    assert len(one.checked) == 2
