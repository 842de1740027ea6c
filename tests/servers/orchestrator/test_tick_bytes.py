"""Bytes of ticks are borrowed, and who holds most of them for longest goes first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers import params_of
from tests.servers.orchestrator.puppets import CLIENT, LOGGED, Stage, settle, stage
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.outcome import EndCause
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.servers.orchestrator._tick_bytes import FREE_BYTES, TickBytes, TickMemory, tick_memory

KIB = 1024
STEP = 64 * KIB
TOTAL = 9 * 2**20


def nothing() -> None:
    raise AssertionError("it had to give way")


def ticks(memory: TickMemory, give_way: Callable[[], None] = nothing) -> TickBytes:
    return TickBytes(memory, give_way)


def test_a_little_is_free_and_the_rest_is_borrowed_in_steps() -> None:
    memory = TickMemory(BytePool(TOTAL))
    one = ticks(memory)
    one.hold(FREE_BYTES, 1, 0.0)
    assert (one.borrowed, len(memory.borrowers)) == (0, 0)
    one.hold(FREE_BYTES + 1, 1, 0.0)
    assert (one.borrowed, len(memory.borrowers)) == (STEP, 1)
    one.hold(FREE_BYTES + STEP + 1, 1, 1.0)
    assert one.borrowed == 2 * STEP
    one.hold(FREE_BYTES + 10, 2, 2.0)
    assert one.borrowed == STEP
    one.hold(0, 3, 3.0)
    assert (memory.pool.used, len(memory.borrowers)) == (0, 0)


def test_who_has_held_most_for_longest_gives_way() -> None:
    memory = TickMemory(BytePool(TOTAL))
    gone: list[str] = []
    stuck = ticks(memory, lambda: gone.append("stuck"))
    stuck.hold(TOTAL // 3, 1, 0.0)
    playing = ticks(memory, lambda: gone.append("playing"))
    playing.hold(TOTAL // 2, 1, 0.0)
    playing.hold(TOTAL // 2, 900, 9.99)
    third = ticks(memory)
    third.hold(TOTAL // 3, 1, 10.0)
    assert gone == ["stuck"]
    assert third.borrowed >= TOTAL // 3
    assert memory.pool.used <= TOTAL


def test_who_asks_for_more_than_there_is_gives_way_itself() -> None:
    memory = TickMemory(BytePool(TOTAL))
    gone: list[str] = []
    other = ticks(memory, lambda: gone.append("other"))
    other.hold(FREE_BYTES + 1, 1, 9.0)
    one = ticks(memory, lambda: gone.append("one"))
    one.hold(TOTAL // 2, 1, 0.0)
    one.hold(2 * TOTAL, 1, 10.0)
    assert gone == ["one"]
    assert (one.borrowed, other.borrowed) == (0, STEP)


def test_ticks_have_something_though_others_have_borrowed_everything() -> None:
    memory = TickMemory(BytePool(TOTAL))
    memory.pool.loan().set(TOTAL)
    gone: list[int] = []
    first = ticks(memory, lambda: gone.append(1))
    first.hold(TOTAL // 10, 1, 0.0)
    assert (first.borrowed >= TOTAL // 10, gone) == (True, [])
    ticks(memory).hold(TOTAL // 10, 1, 1.0)
    assert gone == [1]


# --- trials ---


async def end_of(there: Stage, trial_id: str) -> tuple[int, int, str]:
    info = await there.info(trial_id)
    return info.state, info.end.cause, info.end.reason


@pytest.mark.parametrize("logged", [False, True])
async def test_actions_that_wait_for_others_end_their_trial_when_memory_is_needed(logged: bool) -> None:
    pool = memory_of_run().messages
    async with stage() as there:
        pool.total = 2**20
        params = params_of("a", "b", datalog_endpoint=LOGGED if logged else "")
        await there.play(params, "stuck")
        environment, a, b = there["env"], there["a"], there["b"]
        await environment.observe(indexes=[0, 0])
        await a.act(bytes(400 * KIB))
        held = 400 * KIB * (2 if logged else 1)
        assert held - FREE_BYTES <= pool.used <= held + STEP
        assert (await there.info("stuck")).state == TrialState.RUNNING
        # The next trial needs what there is.
        await there.play(params_of("a", "b"), "other")
        await there["env"].observe(indexes=[0, 0])
        await there["a"].act(bytes(700 * KIB))
        state, cause, reason = await end_of(there, "stuck")
        assert (state, cause) == (TrialState.ENDED, EndCause.PARTICIPANT_REFUSED)
        assert reason.startswith("server_memory_bytes: ")
        assert b.end is not None
        assert (await there.info("other")).state == TrialState.RUNNING
        await there["b"].act()
        await there["env"].observe(indexes=[0, 0])
        await settle()
        assert pool.used == 0
        await there.hard("other")


async def test_what_is_said_before_a_trial_begins_is_borrowed() -> None:
    pool = memory_of_run().messages
    async with stage() as there:
        pool.total = 2**24
        params = params_of("a", "b")
        params.actors[1].endpoint = CLIENT
        await there.start(params)
        await there["a"].ready()
        await there["a"].tell("b", bytes(300 * KIB))
        assert pool.used >= 300 * KIB - FREE_BYTES
        await there.hard()
        assert tick_memory().borrowers == {}
        assert pool.used == 0


async def test_an_ended_trial_has_given_everything_back() -> None:
    pool = memory_of_run().messages
    async with stage() as there:
        pool.total = 2**24
        await there.play(params_of("a", "b", datalog_endpoint=LOGGED))
        await there["env"].observe(contents=[bytes(500 * KIB)], indexes=[0, 0])
        assert pool.used > 0
        await there.hard()
        await settle()
        assert pool.used == 0
