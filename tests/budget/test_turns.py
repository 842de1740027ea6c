"""Turns between tasks: nobody waits while there is room, and a task gives turns only while somebody waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from trio_cogment.api.common_pb2 import Action, TrialParams
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import LARGE_BYTES, Turns, measure_turns_by, turns_of_run
from trio_cogment.rpc._compressed_message import CompressedMessage


@asynccontextmanager
async def crowded() -> AsyncIterator[Turns]:
    """A run's turns, of which the lane of the others has none left in this pass."""
    turns = Turns(trio.current_time)
    while turns.take(Lane.OTHERS):
        pass
    yield turns


async def test_while_there_are_units_nobody_waits() -> None:
    turns = Turns(trio.current_time)
    with trio.testing.assert_no_checkpoints():
        await turns.turn(Lane.OTHERS)
        await turns.turn(Lane.ESTABLISHED, 5)


async def test_who_waits_goes_in_order() -> None:
    went: list[int] = []

    async def one(number: int) -> None:
        await turns.turn(Lane.OTHERS)
        went.append(number)

    async with crowded() as turns, trio.open_nursery() as nursery:
        before = trio.lowlevel.current_statistics().tasks_living
        for number in range(5):
            turns.wait(Lane.OTHERS, number, partial(went.append, number))
        nursery.start_soon(one, 5)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(went) == list(range(6))
        assert went[:5] == list(range(5))
        assert trio.lowlevel.current_statistics().tasks_living == before  # nothing runs when nobody waits


async def test_a_cancelled_one_does_not_wait_any_more() -> None:
    async with crowded() as turns:
        with trio.CancelScope() as scope:
            scope.cancel()
            await turns.turn(Lane.OTHERS)
        assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
        await turns.turn(Lane.OTHERS)


async def test_slow_passes_are_noticed() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0  # every pass takes a second
        return now

    turns = Turns(clock)
    passes: list[int] = []

    def go() -> None:
        passes.append(0)
        if len(passes) < 1000:
            turns.wait(Lane.OTHERS, "busy", go)

    turns.wait(Lane.OTHERS, "busy", go)
    others = 0
    while len(passes) < 1000:
        await trio.lowlevel.checkpoint()
        others += 1
    assert others >= 1000 / 16  # between the turns everybody else goes on


async def test_a_large_message_is_paid_for_by_what_it_takes() -> None:
    now = 0.0

    def decode(payload: bytes) -> TrialParams:
        nonlocal now
        now += 0.14
        return TrialParams.FromString(payload)

    turns = Turns(lambda: now)
    message = TrialParams(max_steps=7)
    assert turns.decode_large(message.SerializeToString(), decode, "10.0.0.1") == message
    passes = 0
    while not turns.take(Lane.OTHERS):
        turns._order.next_pass()
        passes += 1
    assert passes == 10  # 1,400 units of at most 128 each, beside the 128 of the first
    assert turns.take(Lane.ESTABLISHED)  # those who were there are not the ones who pay


async def test_a_run_has_one() -> None:
    assert turns_of_run() is turns_of_run()


async def test_simulations_measure_by_their_own_clock() -> None:
    measure_turns_by(trio.current_time)
    assert turns_of_run() is turns_of_run()
    assert turns_of_run()._clock is trio.current_time


def test_each_run_has_its_own() -> None:
    async def main() -> Turns:
        return turns_of_run()

    assert trio.run(main) is not trio.run(main)


class _Slow:
    """A clock that a decoding moves."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self._seconds = seconds

    def decode(self, payload: bytes) -> Action:
        self.now += self._seconds
        return Action(content=payload)


LARGE = bytes(LARGE_BYTES)


async def test_large_messages_of_slow_accounts_wait(autojump_clock: object) -> None:
    slow = _Slow(0.14)
    turns = Turns(lambda: slow.now)
    assert not turns.waits(LARGE, "slow")
    turns.decode_large(LARGE, slow.decode, "slow")
    assert turns.waits(LARGE, "slow")
    assert turns.waits(CompressedMessage(b"small"), "slow")
    assert not turns.waits(LARGE[1:], "slow")
    assert not turns.waits(LARGE, "other")
    await trio.sleep(9.9)
    assert turns.waits(LARGE, "slow")
    await trio.sleep(0.2)
    assert not turns.waits(LARGE, "slow")
    turns.decode_large(LARGE, slow.decode, "another")
    assert list(turns.slow) == ["another"]


async def test_who_decodes_quickly_is_not_slow() -> None:
    quick = _Slow(0.005)
    turns = Turns(lambda: quick.now)
    turns.decode_large(LARGE, quick.decode, "quick")
    assert not turns.slow


async def test_slow_messages_come_one_at_a_time_and_rest(autojump_clock: object) -> None:
    slow = _Slow(0.1)
    turns = Turns(lambda: slow.now)
    times = []

    async def one() -> None:
        await turns.large_turn()
        turns.decode_large(LARGE, slow.decode, "slow")
        times.append(trio.current_time())

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(one)
    assert [round(time - began, 6) for time in times] == [0.0, 0.2, 0.4, 0.6]


@pytest.mark.parametrize("size", [1, 1024, 1025, 100_000])
async def test_compressed_messages_of_any_size_have_their_turns(size: int) -> None:
    """A unit for 64 bytes, which may become 64 KiB."""
    turns = Turns(trio.current_time)
    unpacked: list[int] = []

    def decode() -> TrialParams:
        unpacked.append(size)
        return TrialParams()

    turns.charge(Lane.OTHERS, 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.unpack, size, decode)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        assert unpacked == []
        await trio.testing.wait_all_tasks_blocked()
        assert unpacked == [size]
    before = turns._order._credits[Lane.OTHERS]
    turns = Turns(trio.current_time)
    before = turns._order._credits[Lane.OTHERS]
    await turns.unpack(size, decode)
    assert before - turns._order._credits[Lane.OTHERS] == 1 + size // 64


@pytest.mark.parametrize(("size", "unpacked", "seconds"), [(1024, 8 * 2**20, 0), (1025, 8 * 2**20, 0.1), (1025, 0, 0)])
async def test_after_unpacking_as_much_time_is_left_to_others_as_its_size_says(
    size: int, unpacked: int, seconds: float, autojump_clock: object
) -> None:
    """A second for 80 MiB; but of a kibibyte no more can come than is worth a pause."""
    turns = Turns(trio.current_time)
    message = Action(content=bytes(unpacked))
    began = trio.current_time()
    assert await turns.unpack(size, lambda: message) is message
    assert trio.current_time() - began == pytest.approx(seconds, abs=1e-5)


@pytest.mark.parametrize(("seconds", "is_slow"), [(0.00499, False), (0.00501, True)])
async def test_slow_is_who_has_sent_what_takes_longer_than_five_milliseconds(seconds: float, is_slow: bool) -> None:
    clock = _Slow(seconds)
    turns = Turns(lambda: clock.now)
    turns.decode_large(LARGE, clock.decode, "somebody")
    assert bool(turns.slow) is is_slow
