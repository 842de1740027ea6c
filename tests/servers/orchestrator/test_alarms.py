"""One sleeper for many deadlines."""

from __future__ import annotations

import math

import trio
import trio.testing

from trio_cogment.servers.orchestrator._alarms import Alarms


class Woken:
    """Notes when it is woken, and may want to be woken again."""

    def __init__(self, alarms: Alarms, *, every: float = math.inf) -> None:
        self.times: list[float] = []
        self._alarms = alarms
        self._every = every

    def wake(self) -> None:
        """See `Sleeper`."""
        self.times.append(trio.current_time())
        self._alarms.set(self, trio.current_time() + self._every)


async def test_each_is_woken_at_its_own_last_deadline(autojump_clock: trio.testing.MockClock) -> None:
    alarms = Alarms()
    moved, dropped, early, ticking = (Woken(alarms), Woken(alarms), Woken(alarms), Woken(alarms, every=3))
    alarms.set(moved, 2)
    alarms.set(dropped, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        await trio.sleep(0.5)
        alarms.set(moved, 5)
        alarms.set(dropped, math.inf)
        alarms.set(dropped, math.inf)
        alarms.set(early, 0.75)
        alarms.set(ticking, 1)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert moved.times == [5]
    assert dropped.times == []
    assert early.times == [0.75]
    assert ticking.times == [1, 4, 7, 10]


async def test_a_deadline_that_is_past_wakes_at_once(autojump_clock: trio.testing.MockClock) -> None:
    alarms = Alarms()
    late = Woken(alarms)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        await trio.sleep(2)
        alarms.set(late, 1)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert late.times == [2]


async def test_deadlines_that_are_moved_again_and_again_take_no_memory(autojump_clock: trio.testing.MockClock) -> None:
    alarms = Alarms()
    sleepers = [Woken(alarms) for _ in range(10)]
    for number in range(100_000):
        alarms.set(sleepers[number % 10], 100_001 - number)
    assert len(alarms._queue) < 2_000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert [sleeper.times for sleeper in sleepers] == [[11 - number] for number in range(10)]
