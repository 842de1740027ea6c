"""The runner of blocking functions in a simulation."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_cogment.testing.sim.world import SimRunner


class Drawn(random.Random):
    """Draws the longest times."""

    def choice(self, seq: Any) -> Any:
        """See `random.Random.choice`."""
        return max(seq)


async def test_what_is_done_is_there_before_its_caller_is_told(autojump_clock: MockClock) -> None:
    run, done = SimRunner(1, Drawn()), list[str]()

    async def call(name: str) -> None:
        await run(done.append, name)
        done.append(f"told {name}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, "a")
        await trio.sleep(0.002)
        assert done == []
        await trio.sleep(0.002)
        assert done == ["a"]
        nursery.start_soon(call, "b")
    # One at a time: the second waits until the first has told.
    assert done == ["a", "told a", "b", "told b"]
    assert trio.current_time() == pytest.approx(0.012)


async def test_it_is_cancelled_before_the_function_or_not_at_all(autojump_clock: MockClock) -> None:
    run, done = SimRunner(1, Drawn()), list[str]()
    with trio.move_on_after(0.002) as before:
        await run(done.append, "a")
    assert before.cancelled_caught
    assert done == []
    with trio.move_on_after(0.004) as after:
        await run(done.append, "b")
        done.append("told")
    assert not after.cancelled_caught
    assert done == ["b", "told"]


async def test_what_it_returns_or_raises_is_what_the_function_does(autojump_clock: MockClock) -> None:
    run = SimRunner(2, Drawn())
    assert await run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run(divmod, 1, 0)
    assert trio.current_time() == pytest.approx(0.012)
