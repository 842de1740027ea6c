"""Many deadlines, one sleeper."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from trio_cogment.servers.orchestrator._alarms import Alarms
from trio_cogment.servers.orchestrator._timers import Timers
from trio_cogment.trial import Timer, TimerKind

A, B, C, D = (Timer(TimerKind.RESPONSE, participant) for participant in range(4))


async def test_timers_fire_in_order_and_once(autojump_clock: trio.testing.MockClock) -> None:
    fired: list[tuple[Timer, float]] = []
    alarms = Alarms()
    timers = Timers(lambda timer: fired.append((timer, trio.current_time())), alarms)
    timers.arm(B, 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        await trio.sleep(0.5)
        timers.arm(A, 1)
        timers.arm(C, 3)
        timers.arm(C, 4)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert fired == [(A, 1), (B, 2), (C, 4)]


async def test_all_that_are_due_fire_in_the_same_turn(autojump_clock: trio.testing.MockClock) -> None:
    fired: list[Timer] = []
    timers = Timers(fired.append, Alarms())
    for timer, deadline in ((B, 1.5), (A, 1.5), (C, 3.0), (D, 1.0)):
        timers.arm(timer, deadline)
    await trio.sleep(2)
    timers.wake()
    assert fired == [D, B, A]  # by their deadlines, and those of one as they were armed


async def test_disarmed_timer_does_not_fire(autojump_clock: trio.testing.MockClock) -> None:
    fired: list[Timer] = []

    def fire(timer: Timer) -> None:
        fired.append(timer)
        timers.disarm(B)

    alarms = Alarms()
    timers = Timers(fire, alarms)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        timers.arm(A, 1)
        timers.arm(B, 1)
        timers.arm(C, 0.5)
        timers.disarm(C)
        timers.disarm(C)
        await trio.sleep(2)
        timers.arm(C, 1)  # already past: at once
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert fired == [A, C]


async def test_time_stands_still_while_suspended(autojump_clock: trio.testing.MockClock) -> None:
    fired: list[tuple[Timer, float]] = []
    alarms = Alarms()
    timers = Timers(lambda timer: fired.append((timer, trio.current_time())), alarms)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        timers.arm(A, 2)
        await trio.sleep(1)
        timers.suspend()
        timers.suspend()
        await trio.sleep(10)
        assert timers.now() == 1
        timers.arm(B, 1.5)
        await trio.sleep(10)
        assert not fired
        timers.resume()
        timers.resume()
        assert timers.now() == 1
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert fired == [(B, 21.5), (A, 22)]
    assert timers.now() == 6


@pytest.mark.parametrize("pause", [0.1 * number + 1e-9 for number in range(40)])
async def test_a_deadline_that_has_come_is_not_in_the_future(
    pause: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Whatever is rounded when pauses are added: else the sleeper would be woken endlessly, and no time would pass."""
    times: list[float] = []

    def fire(timer: Timer) -> None:
        times.append(timers.now())
        if len(times) < 50:
            timers.arm(timer, deadline if timers.now() < deadline else timers.now() + 0.7)

    alarms = Alarms()
    timers = Timers(fire, alarms)
    deadline = timers.now() + 100 / 3
    timers.arm(A, deadline)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        await trio.sleep(0.3)
        timers.suspend()
        await trio.sleep(pause)
        timers.resume()
        with trio.fail_after(200):
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(150)
        nursery.cancel_scope.cancel()
    assert len(times) == 50
    assert times[0] >= deadline
    assert all(later - earlier > 0.69 for earlier, later in pairwise(times))


async def test_stopping_ends_the_wait_and_nothing_fires_any_more(autojump_clock: trio.testing.MockClock) -> None:
    fired: list[Timer] = []
    alarms = Alarms()
    timers = Timers(fired.append, alarms)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        timers.arm(A, 1)
        timers.arm(B, 2)
        await trio.sleep(1.5)
        timers.suspend()
        timers.stop()
        timers.resume()
        assert [count.kept for count in alarms.recount()] == [0]
        with trio.fail_after(1):
            await timers.wait_stopped()
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert fired == [A]


async def test_what_firing_raises_is_raised_to_who_waits_and_others_go_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fired: list[Timer] = []

    def fail(_timer: Timer) -> None:
        raise ValueError("no")

    alarms = Alarms()
    broken, whole = Timers(fail, alarms), Timers(fired.append, alarms)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        broken.arm(A, 1)
        broken.arm(B, 3)
        whole.arm(C, 2)
        with pytest.raises(ValueError, match="no"):
            await broken.wait_stopped()
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert fired == [C]


@pytest.mark.parametrize("pause", [False, True])
async def test_until_its_first_pause_a_trial_has_the_clocks_time(
    pause: bool, autojump_clock: trio.testing.MockClock
) -> None:
    timers = Timers(lambda _: None, Alarms())
    if pause:
        timers.suspend()
        await trio.sleep(2)
        timers.resume()
    await trio.sleep(1)
    assert timers.steady is not pause
    assert timers.clock() == trio.current_time()
    assert timers.clock() - timers.now() == (2 if pause else 0)
