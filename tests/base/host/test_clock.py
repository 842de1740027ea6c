"""The clock of a server's loop."""

from __future__ import annotations

import math
import time

import trio

from trio_cogment.base.host.clock import PerformanceCounter


def test_it_tells_the_performance_counter() -> None:
    clock = PerformanceCounter()
    clock.start_clock()
    before = time.perf_counter()
    now = clock.current_time()
    after = time.perf_counter()
    assert before <= now <= after
    assert clock.deadline_to_sleep_time(after + 100) <= 100
    assert clock.deadline_to_sleep_time(before) <= 0
    assert clock.deadline_to_sleep_time(math.inf) == math.inf


def test_a_loop_runs_by_it() -> None:
    async def main() -> tuple[float, float, float]:
        began = time.perf_counter()
        with trio.move_on_after(0.01) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        return began, scope.deadline, trio.current_time()

    began, deadline, ended = trio.run(main, clock=PerformanceCounter())
    assert began + 0.01 <= deadline <= ended
