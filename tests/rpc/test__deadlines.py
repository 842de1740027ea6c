"""The deadlines of a connection's calls, alone."""

from __future__ import annotations

import math

import trio
import trio.testing

from trio_cogment.rpc._deadlines import Deadlines


class Call:
    def __init__(self) -> None:
        self.over = False
        self.expired: list[float] = []

    def on_deadline(self) -> None:
        self.expired.append(trio.current_time())


async def test_calls_hear_of_their_deadlines_in_order(autojump_clock: trio.testing.MockClock) -> None:
    deadlines = Deadlines([])
    began = trio.current_time()
    calls = [Call() for _ in range(4)]
    deadlines.arm(began + 3, calls[0])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        await trio.sleep(1)
        deadlines.arm(began + 2, calls[1])  # earlier than the first one
        deadlines.arm(began + 2, calls[2])
        deadlines.arm(began, calls[3])  # has passed
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert [call.expired for call in calls] == [[began + 3], [began + 2], [began + 2], [began + 1]]


async def test_calls_that_have_ended_are_forgotten_when_they_are_the_most() -> None:
    running: list[Call] = []
    deadlines = Deadlines(running)
    for _ in range(1000):
        call = Call()
        deadlines.arm(trio.current_time() + 1000, call)
        call.over = True
    assert len(deadlines._entries) <= 65
    for _ in range(1000):
        running.append(Call())
        deadlines.arm(trio.current_time() + 1000, running[-1])
    assert len(deadlines._entries) >= 1000


async def test_no_more_than_four_entries_are_kept_for_each_open_call() -> None:
    running = [Call() for _ in range(20)]
    deadlines = Deadlines(running)
    most = 0
    for call in (*running, *(Call() for _ in range(200))):
        deadlines.arm(trio.current_time() + 1000, call)
        call.over = call not in running
        most = max(most, len(deadlines._entries))
    assert most == 4 * 20 + 1
    assert len(deadlines._entries) < most


async def test_looking_for_ended_calls_costs_each_call_little() -> None:
    """However many are open, and however often the last of them ends, a look is shared by as many as it looks at."""
    looked = 0

    class Watched(Call):
        @property
        def over(self) -> bool:
            nonlocal looked
            looked += 1
            return self.ended

        @over.setter
        def over(self, value: bool) -> None:
            self.ended = value

    for lasting in (0, 50, 2000):
        running: list[Watched] = [Watched() for _ in range(lasting)]
        deadlines = Deadlines(running)
        looked = 0
        for call in running:
            deadlines.arm(math.inf, call)
        assert looked == 0
        for _ in range(10_000):
            call = Watched()
            deadlines.arm(math.inf, call)
            call.over = True
        assert looked < 15_000
        assert len(deadlines._entries) <= max(65, 4 * lasting + 1)
