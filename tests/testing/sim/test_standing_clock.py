"""The hint for a mock clock that stands still while everybody waits."""

from __future__ import annotations

import math

import pytest
import trio
import trio.testing

from trio_cogment.testing.sim import standing_clock
from trio_cogment.testing.sim.standing_clock import told_when_time_stands_still


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_clock, "PATIENCE_SECONDS", 0.01)


class Listener:
    """Hears hints; where a test is slow to begin, also one about the time before."""

    def __init__(self) -> None:
        self._heard = trio.Event()
        self.hints: list[str] = []

    def tell(self, hint: str) -> None:
        self.hints.append(hint)
        self._heard.set()

    async def hint_at(self, seconds: int) -> str:
        while True:
            for hint in self.hints:
                if hint.startswith(f"the mock clock stands at {seconds} s,"):
                    return hint
            self._heard = trio.Event()
            await self._heard.wait()


async def test_who_waits_for_which_time_is_told(mock_clock: trio.testing.MockClock) -> None:
    async def sleeper() -> None:
        await trio.sleep(7200)

    listener = Listener()
    async with told_when_time_stands_still(listener.tell), trio.open_nursery() as nursery:
        nursery.start_soon(sleeper)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(3600)
        hint = await listener.hint_at(3600)
        nursery.cancel_scope.cancel()
    first, *lines = hint.splitlines()
    assert first.startswith("the mock clock stands at 3600 s, and everybody waits: the next deadline is in 3600 s.")
    assert [line for line in lines if line.endswith("await trio.sleep(7200), until 7200 s (in 3600 s)")]
    assert [
        line
        for line in lines
        if "<test 'test_who_waits_for_which_time_is_told'>" in line and __file__.rpartition("/")[2] in line
    ]
    assert "pytest_trio" not in hint


async def test_each_time_at_which_it_stands_is_told(mock_clock: trio.testing.MockClock) -> None:
    listener = Listener()
    async with told_when_time_stands_still(listener.tell), trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 100)
        for seconds in (10, 20):
            mock_clock.jump(seconds)
            await listener.hint_at(int(trio.current_time()))
        nursery.cancel_scope.cancel()
    assert len(set(listener.hints)) == len(listener.hints)


async def test_the_errors_of_the_block_are_its_own(mock_clock: trio.testing.MockClock) -> None:
    with pytest.raises(ZeroDivisionError):
        async with told_when_time_stands_still(Listener().tell):
            _ = 1 / 0


async def test_a_clock_that_moves_by_itself_is_not_watched(autojump_clock: trio.testing.MockClock) -> None:
    assert autojump_clock.autojump_threshold < math.inf
    before = trio.lowlevel.current_statistics().tasks_living
    async with told_when_time_stands_still(Listener().tell):
        assert trio.lowlevel.current_statistics().tasks_living == before
