"""Handlers begin in turns, and only those of calls that are still wanted."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
import trio.testing

from trio_cogment.budget.call_starts import CallStarts
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import Turns


class Call:
    """A call that waits when it has begun."""

    def __init__(self) -> None:
        self.over = False
        self.began = False

    async def run(self) -> None:
        self.began = True
        await trio.sleep_forever()


class Books:
    """Counts calls whose handlers never begin."""

    def __init__(self) -> None:
        self.skipped = 0

    def skip(self) -> None:
        self.skipped += 1


@asynccontextmanager
async def starts(*, crowded: bool) -> AsyncIterator[tuple[CallStarts, Turns, Books]]:
    turns, books = Turns(trio.current_time), Books()
    if crowded:
        turns.charge(Lane.OTHERS, 1000)
    async with trio.open_nursery() as nursery:
        found = CallStarts(turns, nursery, books.skip)
        yield found, turns, books
        found.drop()
        nursery.cancel_scope.cancel()


async def test_a_call_begins_at_once_while_nobody_waits() -> None:
    async with starts(crowded=False) as (found, _, __):
        call = Call()
        found.start(call, "call")
        assert found.handlers() == 1
        await trio.testing.wait_all_tasks_blocked()
        assert call.began


async def test_calls_wait_for_their_turns_and_begin_in_order() -> None:
    async with starts(crowded=True) as (found, _, books):
        calls = [Call() for _ in range(500)]
        for call in calls:
            found.start(call, "call")
        assert found.handlers() == 500
        seen: list[int] = []
        while not calls[-1].began:
            await trio.lowlevel.checkpoint()
            seen.append(sum(call.began for call in calls))
        assert max(b - a for a, b in itertools.pairwise(seen)) < 100  # not all in one pass
        assert (found.handlers(), books.skipped) == (500, 0)


async def test_calls_that_are_over_never_begin() -> None:
    async with starts(crowded=True) as (found, _, books):
        calls = [Call() for _ in range(50)]
        for call in calls:
            found.start(call, "call")
            call.over = call is not calls[-1]
        await trio.testing.wait_all_tasks_blocked()
        assert [call.began for call in calls] == [False] * 49 + [True]
        assert (found.handlers(), books.skipped) == (1, 49)


async def test_dropped_calls_never_begin() -> None:
    async with starts(crowded=True) as (found, _, books):
        call = Call()
        found.start(call, "call")
        found.drop()
        found.drop()
        await trio.testing.wait_all_tasks_blocked()
        assert (call.began, found.handlers(), books.skipped) == (False, 0, 1)


async def test_one_connection_with_many_calls_delays_another_by_one() -> None:
    async with starts(crowded=True) as (many, turns, _), trio.open_nursery() as nursery:
        few = CallStarts(turns, nursery, lambda: None)
        crowd = [Call() for _ in range(300)]
        for call in crowd:
            many.start(call, "call")
        one = Call()
        few.start(one, "call")
        while not one.began:
            await trio.lowlevel.checkpoint()
        assert sum(call.began for call in crowd) < 100
        nursery.cancel_scope.cancel()


class Names:
    """A nursery that notes whom it is given; tasks that are ready run in any order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def start_soon(self, _: Any, name: str) -> None:
        self.names.append(name)


async def test_a_call_that_comes_later_does_not_overtake_those_that_wait() -> None:
    """There are units again when it comes, and somebody waits for them."""
    turns, nursery = Turns(trio.current_time), Names()
    found = CallStarts(turns, cast("Any", nursery), lambda: None)
    turns.charge(Lane.OTHERS, 1000)
    for number in range(2):
        found.start(Call(), str(number))
    turns.charge(Lane.OTHERS, -2000)
    found.start(Call(), "2")
    assert nursery.names == []
    await trio.testing.wait_all_tasks_blocked()
    assert nursery.names == ["0", "1", "2"]
