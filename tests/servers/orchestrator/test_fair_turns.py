"""Turns: bounded for all and for each account, fair between accounts, and none is lost by a cancellation."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import trio
import trio.testing

from trio_cogment.servers.orchestrator._fair_turns import FairTurns, Turn


async def test_accounts_take_turns_and_within_one_it_is_first_come_first_served(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns = FairTurns(1, 1)
    order: list[str] = []

    async def work(name: str) -> None:
        async with Turn(turns, name[0]):
            order.append(name)
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
            nursery.start_soon(work, name)
            await trio.testing.wait_all_tasks_blocked()
    assert order == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
    assert (turns.taken, turns.waiting) == (0, 0)


async def test_one_account_leaves_room_for_others_and_this_process_has_all_of_it() -> None:
    turns = FairTurns(4, 2)
    assert [turns.acquire_nowait("a") for _ in range(3)] == [True, True, False]
    assert [turns.acquire_nowait("") for _ in range(3)] == [True, True, False]
    turns.release("a")
    assert turns.acquire_nowait("b")
    for account in ("a", "", "", "b"):
        turns.release(account)
    assert turns.taken == 0


async def test_who_came_first_is_not_overtaken_by_one_who_need_not_wait() -> None:
    turns = FairTurns(2, 1)
    first, second = Turn(turns, "a"), Turn(turns, "a")
    assert first.begin_nowait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.begin)
        await trio.testing.wait_all_tasks_blocked()
        first.end()
        first.end()  # nothing happens
        assert not turns.acquire_nowait("a")  # it is the second's already
    second.end()
    assert (turns.taken, turns.waiting) == (0, 0)


async def test_who_may_not_begin_yet_keeps_nobody_else_from_it() -> None:
    turns = FairTurns(2, 1)
    begun: list[str] = []

    async def begin(account: str) -> None:
        await turns.acquire(account)
        begun.append(account)

    assert turns.acquire_nowait("a")
    assert turns.acquire_nowait("b")
    async with trio.open_nursery() as nursery:
        for account in ("a", "c"):
            nursery.start_soon(begin, account)
            await trio.testing.wait_all_tasks_blocked()
        turns.release("b")
        await trio.testing.wait_all_tasks_blocked()
        assert begun == ["c"]
        turns.release("a")
    assert begun == ["c", "a"]


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_is_cancelled_when_every_turn_comes_back(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    rng = random.Random(seed)
    turns = FairTurns(3, 2)
    held: Counter[str] = Counter()

    async def work(account: str) -> None:
        with trio.move_on_after(rng.uniform(0, 3)):
            async with Turn(turns, account):
                held[account] += 1
                assert held.total() <= 3
                assert not account or held[account] <= 2
                try:
                    await trio.sleep(rng.uniform(0, 1))
                finally:
                    held[account] -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(work, rng.choice(["", "a", "b", "c"]))
            await trio.sleep(rng.uniform(0, 0.1))
    assert (turns.taken, turns.waiting) == (0, 0)


async def test_who_is_cancelled_in_the_moment_of_its_turn_passes_it_on() -> None:
    turns = FairTurns(1, 1)
    assert turns.acquire_nowait("a")
    reached: list[str] = []

    async def wait(account: str, scope: trio.CancelScope) -> None:
        with scope:
            await turns.acquire(account)
            reached.append(account)

    async with trio.open_nursery() as nursery:
        first = trio.CancelScope()
        nursery.start_soon(wait, "a", first)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(wait, "b", trio.CancelScope())
        await trio.testing.wait_all_tasks_blocked()
        first.cancel()
        turns.release("a")  # it is its turn, and it has not heard of either
        assert (turns.taken, turns.waiting) == (1, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert (reached, turns.taken, turns.waiting) == (["b"], 1, 0)
    turns.release("b")
    assert turns.taken == 0
