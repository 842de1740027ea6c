"""Samples that wait are counted, and beyond a free part borrowed from what the whole process may hold."""

from __future__ import annotations

import pytest
import trio

from tests.helpers import Script, actor_that_acts, bench, observation_set, params_of, start_environment
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.rpc import ServerCall
from trio_cogment.servers.orchestrator._datalog import FREE_BYTES, SampleBytes

STEP = 64 * 1024
#: More than call and data log hold by themselves.
TICKS = 300


def test_a_little_is_free_and_more_is_borrowed_in_steps() -> None:
    pool = BytePool(40 * STEP)
    counted = SampleBytes(pool.loan(), lambda: None)
    counted.size = FREE_BYTES
    assert counted.fit
    assert pool.used == 0
    counted.size += 1000
    assert counted.fit
    assert (counted.size, pool.used) == (FREE_BYTES + 1000, STEP)
    counted.size += STEP
    assert counted.fit
    assert pool.used == 2 * STEP
    counted.size -= STEP
    assert counted.fit
    assert pool.used == STEP
    counted.size -= 1000
    assert counted.fit
    assert pool.used == 0


def test_who_was_refused_is_told_when_others_give_something_back() -> None:
    pool = BytePool(20 * STEP)
    other = pool.loan()
    other.set(20 * STEP)
    asked: list[int] = []
    counted = SampleBytes(pool.loan(), lambda: asked.append(1))
    counted.size = FREE_BYTES + 1
    fits = [counted.fit]
    counted.count_all()
    assert pool.used == 20 * STEP + 1
    assert not asked
    other.close()
    assert asked == [1]
    fits.append(counted.fit)
    assert fits == [False, True]
    counted.count_all()  # never less than it has
    assert pool.used == STEP
    counted.close()
    assert (counted.size, pool.used) == (0, 0)


@pytest.mark.parametrize("short", [True, False])
async def test_a_trial_waits_while_there_is_no_memory_for_its_samples(
    short: bool, autojump_clock: trio.testing.MockClock
) -> None:
    ticks: list[int] = []
    opened = trio.Event()

    async def large(call: ServerCall) -> None:
        actors = await start_environment(call)
        for _ in range(TICKS):
            await call.send(observation_set(actors, bytes(20_000)))
            await call.receive()
        await trio.sleep_forever()

    async def slow(call: ServerCall) -> None:
        await call.receive()
        opened.set()
        if short:
            await trio.sleep(5)
        async for message in call:
            ticks.append(message.sample.info.tick_id)

    memory = memory_of_run().messages
    services = Script(large).environment(), Script(actor_that_acts()).actor(), Script(slow).datalog()
    async with bench(*services) as table:
        other, memory.total = memory.loan(), 10_000_000
        if short:
            other.set(10_000_000)
        params = params_of("a", datalog_endpoint="cogment://discover/datalog")
        await table.controller.start_trial(params, trial_id="t")
        await opened.wait()
        await trio.sleep(1)
        (info,) = await table.controller.trial_infos(["t"])
        assert (info.tick_id < TICKS - 1) is short
        # Nothing but the memory has been in the way: once it is back the trial goes on, before the log takes anything.
        other.close()
        await trio.sleep(1)
        (after,) = await table.controller.trial_infos(["t"])
        assert (after.tick_id > info.tick_id) is short
