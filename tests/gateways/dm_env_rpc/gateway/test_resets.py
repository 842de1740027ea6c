"""Reset, ResetWorld and DestroyWorld, and what they do to the others in a world."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.gateways.dm_env_rpc.gateway.games import Game, begun, joined, playing, step, together
from trio_cogment.base.errors import StatusCode
from trio_cogment.base.outcome import EndCause
from trio_cogment.gateways.dm_env_rpc import DmEnvRpcError, State, open_connection

RUNNING, TERMINATED, INTERRUPTED = State.RUNNING, State.TERMINATED, State.INTERRUPTED
BOTH = ("ann", "ben")


async def test_a_reset_of_the_only_client() -> None:
    game = Game(length=0)
    async with playing(game) as platform, joined(platform, "ann") as (ann,):
        before = ann.specs
        assert await ann.reset() is before
        for number in (1, 2):
            await step(ann)
            await step(ann, number)
            assert await ann.reset() is before
            assert ann.state is INTERRUPTED
            assert await ann.reset() is before
        for trial in ("w.1", "w.2"):
            assert (await platform.controller.wait_trial(trial)).cause is EndCause.SOFT_TERMINATION
        assert (await step(ann)) == (RUNNING, 0, 0.0)
    assert game.actions[:4] == [[1], [0], [2], [0]]


async def test_a_reset_after_the_end() -> None:
    async with playing(Game(length=1)) as platform, joined(platform, "ann") as (ann,):
        await step(ann)
        assert await step(ann) == (TERMINATED, 1, 0.0)
        await ann.reset()
        assert ann.state is TERMINATED
        assert await step(ann) == (RUNNING, 0, 0.0)


async def test_a_reset_with_settings() -> None:
    """They hold from the next sequence on; wrong ones change nothing, not even the sequence that runs."""
    async with playing(Game(length=0)) as platform, joined(platform, "ann") as (ann,):
        await step(ann)
        with pytest.raises(DmEnvRpcError, match=r"'max_stepz'.*did you mean 'max_steps'") as caught:
            await ann.reset({"max_stepz": 3})
        assert caught.value.code is StatusCode.INVALID_ARGUMENT
        assert await step(ann) == (RUNNING, 1, 0.0)
        await ann.reset({"max_steps": 1})  # after this tick actions are the last ones
        assert await step(ann) == (RUNNING, 0, 0.0)
        assert await step(ann) == (RUNNING, 1, 0.0)
        assert await step(ann) == (INTERRUPTED, 2, 0.0)
        await ann.reset({"max_steps": 2})  # no sequence runs
        assert [(await step(ann))[0] for _ in range(4)] == [RUNNING, RUNNING, RUNNING, INTERRUPTED]


async def test_a_reset_waits_for_the_others() -> None:
    """The default action is played for who has reset, until the trial ends; nobody else notices."""
    game = Game(length=3)
    async with playing(game, BOTH) as platform, joined(platform, *BOTH) as (ann, ben), trio.open_nursery() as nursery:
        await together(ann, ben)
        await together(ann, ben, numbers=[1, 2])
        done = trio.Event()

        async def reset() -> None:
            await ann.reset()
            done.set()

        nursery.start_soon(reset)
        await wait_all_tasks_blocked()
        assert await step(ben, 3) == (RUNNING, 2, 0.0)
        assert not done.is_set()
        assert await step(ben, 4) == (TERMINATED, 3, 0.0)
        await done.wait()
        assert ann.state is INTERRUPTED
        assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2
    assert game.actions[:3] == [[1, 2], [0, 3], [0, 4]]


async def test_a_reset_while_the_other_waits_for_it() -> None:
    game = Game(length=3)
    async with playing(game, BOTH) as platform, joined(platform, *BOTH) as (ann, ben), trio.open_nursery() as nursery:
        await together(ann, ben)
        waiting = await begun(nursery, ben)
        nursery.start_soon(ann.reset)
        assert await waiting.wait() == (RUNNING, 1, 0.0)
        assert await step(ben) == (RUNNING, 2, 0.0)
        assert await step(ben) == (TERMINATED, 3, 0.0)


async def test_a_reset_may_end_the_trial_for_everybody() -> None:
    game = Game(length=0)
    async with (
        playing(game, BOTH, reset="world") as platform,
        joined(platform, *BOTH) as (ann, ben),
        trio.open_nursery() as nursery,
    ):
        await together(ann, ben)
        waiting = await begun(nursery, ben, 2)
        await ann.reset()
        assert await waiting.wait() == (INTERRUPTED, 1, 0.0)
        assert game.actions == [[0, 2]]
        await together(ann, ben)


async def test_when_all_have_reset_the_trial_ends() -> None:
    game = Game(length=0)
    async with playing(game, BOTH) as platform, joined(platform, *BOTH) as (ann, ben):
        await together(ann, ben)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ann.reset)
            nursery.start_soon(ben.reset)
        assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2


# ResetWorld


@pytest.mark.parametrize("caller_runs", [True, False])
async def test_resetting_a_world_tells_each_other_client(caller_runs: bool) -> None:
    """It is answered when the others have made a step and know; the caller is not told."""
    game = Game(length=0, out={} if caller_runs else {"ann": (1, True)})
    async with playing(game, BOTH) as platform, joined(platform, *BOTH) as (ann, ben), trio.open_nursery() as nursery:
        await together(ann, ben)
        await together(ann, ben)
        done = trio.Event()

        async def reset_world() -> None:
            await ann.reset_world()
            done.set()

        nursery.start_soon(reset_world)
        await wait_all_tasks_blocked()
        assert not done.is_set()
        assert (await step(ben, 5))[:2] == (INTERRUPTED, 2)
        await done.wait()
        assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2
    assert game.actions[1] == [0, 5]


async def test_resetting_a_world_while_the_other_waits_for_the_caller() -> None:
    game = Game(length=0)
    async with playing(game, BOTH) as platform, joined(platform, *BOTH) as (ann, ben), trio.open_nursery() as nursery:
        await together(ann, ben)
        waiting = await begun(nursery, ben, 5)
        await ann.reset_world()
        assert await waiting.wait() == (INTERRUPTED, 1, 0.0)
        assert game.actions == [[0, 5]]


async def test_who_waits_for_a_sequence_is_not_told() -> None:
    game = Game(length=2)
    async with playing(game, BOTH) as platform, joined(platform, *BOTH) as (ann, ben), trio.open_nursery() as nursery:
        waiting = await begun(nursery, ben)
        await ann.reset_world()
        assert not waiting.done.is_set()
        assert await step(ann) == (RUNNING, 0, 0.0)
        assert await waiting.wait() == (RUNNING, 0, 0.0)


async def test_resetting_a_world_waits_so_long_and_no_longer(autojump_clock: MockClock) -> None:
    """Who has not stepped is told all the same, with the last observation it had."""
    game = Game(length=0)
    async with (
        playing(game, BOTH, reset_world_timeout_seconds=20) as platform,
        joined(platform, *BOTH) as (ann, ben),
        trio.open_nursery() as nursery,
    ):
        await together(ann, ben)
        await together(ann, ben)
        before = trio.current_time()
        await ann.reset_world()
        assert trio.current_time() - before == pytest.approx(20)
        first = await begun(nursery, ann)
        assert await step(ben) == (INTERRUPTED, 1, 0.0)
        assert await step(ben) == (RUNNING, 0, 0.0)
        assert await first.wait() == (RUNNING, 0, 0.0)


async def test_a_matchmaker_resets_a_world_that_it_has_not_joined() -> None:
    game = Game(length=0)
    async with playing(game) as platform, joined(platform, "ann") as (ann,):
        async with open_connection(platform.channel) as matchmaker, trio.open_nursery() as nursery:
            await step(ann)
            nursery.start_soon(matchmaker.reset_world, "w", {"max_steps": 1})
            await wait_all_tasks_blocked()
            assert (await step(ann))[0] is INTERRUPTED
        assert [(await step(ann))[0] for _ in range(3)] == [RUNNING, RUNNING, INTERRUPTED]
        async with open_connection(platform.channel) as matchmaker:
            with pytest.raises(DmEnvRpcError, match="'v'") as caught:
                await matchmaker.reset_world("v")
            assert caught.value.code is StatusCode.NOT_FOUND
            with pytest.raises(DmEnvRpcError, match="'colour'"):
                await matchmaker.reset_world("w", {"colour": "red"})
            await matchmaker.reset_world("w")  # nobody is in the middle of anything
            await ann.leave_world()
            await matchmaker.reset_world("w")  # nobody is there


async def test_a_world_whose_other_client_vanishes_is_reset() -> None:
    game = Game(length=0)
    async with playing(game, BOTH) as platform, joined(platform, "ann") as (ann,), trio.open_nursery() as nursery:
        async with open_connection(platform.channel) as ben:
            await ben.join_world("w", {"actor_name": "ben"})
            await together(ann, ben)
            nursery.start_soon(ann.reset_world)
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
    assert ann.under_way == 0


# DestroyWorld


async def test_a_world_with_clients_is_not_destroyed() -> None:
    async with playing(Game()) as platform, joined(platform, "ann") as (ann,):
        await step(ann)
        async with open_connection(platform.channel) as other:
            with pytest.raises(DmEnvRpcError, match=r"world 'w'.*'ann'") as caught:
                await other.destroy_world("w")
            assert caught.value.code is StatusCode.FAILED_PRECONDITION
            assert await step(ann) == (RUNNING, 1, 0.0)
            await ann.leave_world()
            await other.destroy_world("w")
            with pytest.raises(DmEnvRpcError, match="'w'") as caught:
                await other.destroy_world("w")
            assert caught.value.code is StatusCode.NOT_FOUND
            assert await ann.create_world({"world_name": "w"}) == "w"


async def test_a_world_may_be_destroyed_by_force() -> None:
    """Steps that wait are refused, and so are later ones; the trial ends."""
    game = Game(length=0)
    async with (
        playing(game, BOTH, destroy="force") as platform,
        joined(platform, *BOTH) as (ann, ben),
        trio.open_nursery() as nursery,
        open_connection(platform.channel) as other,
    ):
        await together(ann, ben)
        waiting = await begun(nursery, ben)
        await other.destroy_world("w")
        await waiting.done.wait()
        assert waiting.error is not None
        for connection in (ann, ben):
            for _ in range(2):
                with pytest.raises(DmEnvRpcError, match="world 'w' was destroyed") as caught:
                    await connection.step()
                assert caught.value.code is waiting.error.code is StatusCode.FAILED_PRECONDITION
            with pytest.raises(DmEnvRpcError, match="world 'w' was destroyed"):
                await connection.reset()
            await connection.leave_world()
        assert (await platform.controller.wait_trial("w.1")).cause is EndCause.SOFT_TERMINATION
        assert (await ann.read_property("worlds")).tolist() == []
        await ann.create_world({"world_name": "w"})
        await ann.join_world("w", {"actor_name": "ann"})
