"""Trio in the caller's thread, by turns."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.rl.views import pump as pumps
from trio_cogment.rl.views.drivers import PumpDriver


@pytest.fixture
def pump() -> Iterator[pumps.Pump]:
    found = pumps.acquire()
    assert found is not None
    yield found
    if found.users:
        found.release()


def test_calls_a_function(pump: pumps.Pump) -> None:
    async def double(number: int) -> int:
        await trio.sleep(0.001)
        return 2 * number

    assert pump.call(double, 4) == 8


def test_raises_what_the_function_raises(pump: pumps.Pump) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        pump.call(fail)


def test_gets_what_other_threads_bring(pump: pumps.Pump) -> None:
    async def other() -> int:
        return await trio.to_thread.run_sync(threading.get_ident)

    assert pump.call(other) != threading.get_ident()


def test_is_one_for_all_of_a_thread(pump: pumps.Pump) -> None:
    again = pumps.acquire()
    assert again is pump
    again.release()
    assert pump.is_usable()
    pump.release()
    assert not pump.is_usable()
    assert not trio.lowlevel.in_trio_run()


def test_time_stands_still_between_calls(pump: pumps.Pump) -> None:
    async def now() -> float:
        return trio.current_time()

    before = pump.call(now)
    pump.turn()
    held = trio.current_time()
    assert held == trio.current_time()
    assert before <= held


def test_nothing_is_left_when_it_has_ended(pump: pumps.Pump) -> None:
    files = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    ended = []

    async def task() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(True)

    pump.nursery.start_soon(task)
    pump.turn()
    pump.turn()
    pump.release()
    assert ended
    if files:
        assert len(os.listdir("/proc/self/fd")) < files
    with pytest.raises(FailedPreconditionError, match="closed"):
        pump.call(trio.sleep, 0)


def test_refuses_another_thread(pump: pumps.Pump) -> None:
    found: list[str] = []

    def use() -> None:
        try:
            pump.call(trio.sleep, 0)
        except FailedPreconditionError as error:
            found.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(found) == 1
    assert "another thread" in found[0]


def test_refuses_to_turn_within_a_turn(pump: pumps.Pump) -> None:
    async def nested() -> None:
        pump.turn()

    with pytest.raises(FailedPreconditionError, match="thread=True"):
        pump.call(nested)


async def test_is_refused_where_trio_runs() -> None:
    assert pumps.acquire() is None


def test_control_c_cancels_the_call(pump: pumps.Pump) -> None:
    cancelled = []

    async def wait() -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.append(True)
            raise

    with pytest.raises(KeyboardInterrupt):
        pump.call(wait)
    assert cancelled
    pump.call(trio.sleep, 0)  # it goes on


def test_control_c_waits_for_the_end_of_a_protected_block(pump: pumps.Pump) -> None:
    reached = []

    def interrupted(times: int) -> None:
        with pump.protecting():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupted(1)
    assert reached

    def compute() -> None:
        signal.raise_signal(signal.SIGINT)
        reached.append(False)

    with pytest.raises(KeyboardInterrupt), pump.protecting():
        pump.exposed(compute)
    with pytest.raises(KeyboardInterrupt):  # who presses the keys twice does not want to wait
        interrupted(2)
    assert reached == [True]
    with pytest.raises(KeyboardInterrupt):
        pump.raise_interrupt()


def test_the_handler_of_control_c_goes_with_it(pump: pumps.Pump) -> None:
    assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    pump.release()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def opened(pump: pumps.Pump) -> Any:
    """Return a driver of something in the pump, with one more user of it."""
    pump.users += 1
    return PumpDriver(pump, nothing())


@asynccontextmanager
async def nothing() -> AsyncIterator[None]:
    yield


def test_a_driver_that_is_abandoned_closes_where_it_can(pump: pumps.Pump) -> None:
    driver = opened(pump)
    pump.release()
    driver.abandon()
    assert not pump.is_usable()
    assert not trio.lowlevel.in_trio_run()
    driver.abandon()  # it is harmless


@pytest.mark.parametrize("where", ["another thread", "a turn", "a protected block"])
def test_a_driver_that_is_abandoned_elsewhere_closes_later(pump: pumps.Pump, where: str) -> None:
    driver = opened(pump)

    async def turn() -> None:
        driver.abandon()

    if where == "another thread":
        thread = threading.Thread(target=driver.abandon)
        thread.start()
        thread.join()
    elif where == "a turn":
        pump.call(turn)
    else:
        with pump.protecting():
            driver.abandon()
            assert pump.users == 2
    while pump.users > 1:
        pump.turn()
    with pytest.raises(FailedPreconditionError, match="closed"):
        driver.call(trio.sleep, 0)
    pump.call(trio.sleep, 0)


def test_a_driver_that_is_abandoned_in_a_forked_process_stays_open(
    pump: pumps.Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would do there, it would do to the process that made it."""
    driver = opened(pump)
    with monkeypatch.context() as forked:
        forked.setattr(pump, "forked", True)
        driver.abandon()
    for _ in range(20):
        pump.turn()
    driver.call(trio.sleep, 0)
    driver.close()
    assert pump.users == 1


def test_sleeps_until_what_it_waits_for_is_there(pump: pumps.Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[float | None] = []
    turn = pump.turn

    def counted(seconds: float | None = None) -> None:
        turns.append(seconds)
        turn(seconds)

    monkeypatch.setattr(pump, "turn", counted)
    pump.call(trio.to_thread.run_sync, threading.Event().wait, 0.1)
    pump.call(trio.sleep, 0.1)
    assert len(turns) < 40
    turns.clear()
    pump.call(trio.sleep, 0)
    assert turns


def test_control_c_ends_its_sleep(pump: pumps.Pump) -> None:
    main = threading.get_ident()

    async def wait() -> None:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(signal.pthread_kill, main, signal.SIGINT)
        await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        pump.call(wait)
    pump.call(trio.sleep, 0)  # it goes on
