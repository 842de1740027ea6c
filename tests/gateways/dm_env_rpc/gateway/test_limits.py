"""Limits: of time, of worlds and connections, of memory; and an orderly stop."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.gateways.dm_env_rpc.gateway.games import Game, begun, joined, playing, step, together
from trio_cogment.base.config import DmEnvRpcConfig
from trio_cogment.base.errors import StatusCode, UnavailableError
from trio_cogment.base.outcome import EndCause
from trio_cogment.gateways.dm_env_rpc import DmEnvRpcError, State, open_connection
from trio_cogment.sdk import EnvironmentSession

RUNNING, TERMINATED, INTERRUPTED = State.RUNNING, State.TERMINATED, State.INTERRUPTED
BOTH = ("ann", "ben")


class Slow:
    """A turn that waits, once, when it is asked to."""

    def __init__(self, when: int) -> None:
        self.when, self.go_on = when, trio.Event()

    async def __call__(self, _: EnvironmentSession, number: int) -> None:
        if number == self.when:
            await self.go_on.wait()


# Time


async def test_a_slow_environment(autojump_clock: MockClock) -> None:
    """The client has not been told that its sequence is over: the next step does it, and the one after that begins."""
    slow = Slow(2)
    game = Game(length=0, turn=slow)
    async with playing(game, step_timeout_seconds=5) as platform, joined(platform, "ann") as (ann,):
        await step(ann)
        await step(ann)
        before = trio.current_time()
        with pytest.raises(DmEnvRpcError, match="actor 'ann': waited 5 s for the next observation") as caught:
            await step(ann)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        assert trio.current_time() - before == pytest.approx(5)
        assert ann.state is RUNNING
        assert (await step(ann)) == (INTERRUPTED, 1, 0.0)
        with trio.fail_after(20):
            outcome = await platform.controller.wait_trial("w.1", check=False)
        assert outcome.cause is EndCause.HARD_TERMINATION
        slow.when = 0
        assert await step(ann) == (RUNNING, 0, 0.0)
        assert await step(ann) == (RUNNING, 1, 0.0)


async def test_a_reset_after_a_step_that_took_too_long(autojump_clock: MockClock) -> None:
    game = Game(length=0, turn=Slow(1))
    async with playing(game, step_timeout_seconds=5) as platform, joined(platform, "ann") as (ann,):
        await step(ann)
        with pytest.raises(DmEnvRpcError, match="waited 5 s"):
            await step(ann)
        await ann.reset()
        assert ann.state is INTERRUPTED
        assert await step(ann) == (RUNNING, 0, 0.0)


async def test_a_slow_neighbour(autojump_clock: MockClock) -> None:
    """Who has waited too long is out of the trial, which goes on for the neighbour."""
    game = Game(length=3)
    async with playing(game, BOTH, step_timeout_seconds=5) as platform, joined(platform, *BOTH) as (ann, ben):
        await together(ann, ben)
        with pytest.raises(DmEnvRpcError, match="waited 5 s for the next observation"):
            await step(ann, 7)
        assert await step(ben, 4) == (RUNNING, 1, 0.0)
        assert await step(ann) == (INTERRUPTED, 0, 0.0)
        assert await step(ben, 5) == (RUNNING, 2, 0.0)
        assert await step(ben, 6) == (TERMINATED, 3, 0.0)
        assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2
    assert game.actions[:3] == [[7, 4], [0, 5], [0, 6]]


async def test_a_neighbour_who_does_not_come(autojump_clock: MockClock) -> None:
    async with playing(Game(), BOTH, step_timeout_seconds=5) as platform, joined(platform, *BOTH) as (ann, ben):
        for _ in range(2):
            with pytest.raises(DmEnvRpcError, match="waited 5 s for others to join and step") as caught:
                await step(ann)
            assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        assert ann.state is TERMINATED
        assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2


async def test_a_reset_that_waits_too_long_for_the_others(autojump_clock: MockClock) -> None:
    async with playing(Game(length=0), BOTH, step_timeout_seconds=5) as platform, joined(platform, *BOTH) as (ann, ben):
        await together(ann, ben)
        with pytest.raises(DmEnvRpcError, match="waited 5 s for the end of the trial") as caught:
            await ann.reset()
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        assert await step(ben) == (RUNNING, 1, 0.0)
        await ann.reset()
        assert ann.state is INTERRUPTED


async def test_specifications_that_do_not_come(autojump_clock: MockClock) -> None:
    go_on = trio.Event()

    async def stuck(_: EnvironmentSession) -> None:
        await go_on.wait()

    game = Game(opening=stuck)
    async with playing(game, step_timeout_seconds=5) as platform, open_connection(platform.channel) as ann:
        await ann.create_world({"world_name": "w"})
        with pytest.raises(DmEnvRpcError, match="'ann': waited 5 s for the first observation") as caught:
            await ann.join_world("w")
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        game.opening = None
        await ann.join_world("w")
        assert await step(ann) == (RUNNING, 0, 0.0)


# Numbers


async def test_so_many_worlds() -> None:
    async with (
        playing(Game(), config=DmEnvRpcConfig(max_worlds=2)) as platform,
        open_connection(platform.channel) as ann,
    ):
        first = await ann.create_world()
        assert await ann.create_world() != first
        with pytest.raises(DmEnvRpcError, match="too many worlds: max_worlds is 2") as caught:
            await ann.create_world()
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        await ann.destroy_world(first)
        await ann.create_world({"world_name": "w"})
        with pytest.raises(DmEnvRpcError):
            await ann.create_world({"world_name": "w"})


async def test_two_worlds_of_one_name() -> None:
    async with playing(Game()) as platform, open_connection(platform.channel) as ann:
        await ann.create_world({"world_name": "w"})
        with pytest.raises(DmEnvRpcError, match="'world_name': there is a world 'w' already") as caught:
            await ann.create_world({"world_name": "w"})
        assert caught.value.code is StatusCode.ALREADY_EXISTS


async def test_so_many_connections() -> None:
    async with playing(Game(), config=DmEnvRpcConfig(max_connections=2)) as platform:
        async with open_connection(platform.channel) as one, open_connection(platform.channel) as two:
            await one.leave_world()
            await two.leave_world()
            async with open_connection(platform.channel) as three:
                with pytest.raises(UnavailableError, match="too many connections: max_connections is 2"):
                    await three.leave_world()
        async with open_connection(platform.channel) as three:
            await three.leave_world()


async def test_worlds_do_not_notice_each_other() -> None:
    slow = Slow(1)
    async with playing(Game(length=2, turn=slow)) as platform, joined(platform, "ann") as (ann,):
        await step(ann)
        async with trio.open_nursery() as nursery:
            waiting = await begun(nursery, ann)
            slow.when = 0
            async with joined(platform, "ann", world="v") as (other,):
                assert [(await step(other))[0] for _ in range(4)] == [RUNNING, RUNNING, TERMINATED, RUNNING]
                assert (await other.read_property("worlds")).tolist() == ["w", "v"]
            assert not waiting.done.is_set()
            slow.go_on.set()
            assert await waiting.wait() == (RUNNING, 1, 0.0)


# The end of the gateway


async def test_a_stop_answers_the_request_in_hand() -> None:
    game = Game(length=0)
    async with playing(game, BOTH) as platform, joined(platform, *BOTH) as (ann, ben):
        await together(ann, ben)
        async with trio.open_nursery() as nursery:
            waiting = await begun(nursery, ben)
            reply = await ben.begin_step()
            await platform.stop()
            assert await waiting.wait() == (INTERRUPTED, 1, 0.0)
            with pytest.raises(UnavailableError, match="the gateway is stopping"):
                await reply
        for connection in (ann, ben):
            with pytest.raises(UnavailableError, match="the gateway is stopping"):
                await connection.leave_world()
        async with open_connection(platform.channel) as late:
            with pytest.raises(UnavailableError, match="the gateway is stopping"):
                await late.create_world()
    assert game.actions == [[0, 0]]  # one last tick


async def test_a_stop_refuses_who_waits_for_a_sequence() -> None:
    async with (
        playing(Game(length=0), BOTH) as platform,
        joined(platform, *BOTH) as (ann, _),
        trio.open_nursery() as nursery,
    ):
        waiting = await begun(nursery, ann)
        await platform.stop()
        await waiting.done.wait()
        assert waiting.error is not None
        assert waiting.error.code is StatusCode.UNAVAILABLE


async def test_a_stop_does_not_wait_for_an_environment_that_hangs(autojump_clock: MockClock) -> None:
    game = Game(length=0, turn=Slow(1))
    async with playing(game, config=DmEnvRpcConfig(leave_seconds=2)) as platform, joined(platform, "ann") as (ann,):
        await step(ann)
        reply = await ann.begin_step()
        await wait_all_tasks_blocked()
        before = trio.current_time()
        await platform.stop()
        assert trio.current_time() - before <= 2 + 2
        assert reply.is_there
