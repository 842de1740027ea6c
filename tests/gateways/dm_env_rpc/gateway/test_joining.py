"""Joining: slots, the start barrier, taking over, and what becomes of a trial whose client leaves."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.gateways.dm_env_rpc.gateway.games import Game, begun, joined, params_of, playing, seat, step, together
from trio_cogment.base.errors import StatusCode
from trio_cogment.base.outcome import EndCause
from trio_cogment.gateways.dm_env_rpc import DmEnvRpcError, State, open_connection
from trio_cogment.sdk import ActorSession, EnvironmentSession, actor_params

RUNNING, TERMINATED, INTERRUPTED = State.RUNNING, State.TERMINATED, State.INTERRUPTED


# Slots


async def test_who_joins_as_what() -> None:
    async with playing(Game(), ("ann", "ben")) as platform, open_connection(platform.channel) as ann:
        world = await ann.create_world()
        for settings, code, text in [
            ({}, StatusCode.INVALID_ARGUMENT, "free are 'ann', 'ben'"),
            ({"actor_name": "eve"}, StatusCode.NOT_FOUND, "'eve'"),
            ({"actor_class": "clerk"}, StatusCode.NOT_FOUND, "'clerk'"),
            ({"actor_name": "ann", "colour": "red"}, StatusCode.INVALID_ARGUMENT, "'colour'"),
        ]:
            with pytest.raises(DmEnvRpcError, match=text) as caught:
                await ann.join_world(world, settings)
            assert caught.value.code is code
            assert ann.state is State.NOT_JOINED
        await ann.join_world(world, {"actor_class": "player"})
        async with open_connection(platform.channel) as ben, open_connection(platform.channel) as eve:
            with pytest.raises(DmEnvRpcError, match="somebody else") as caught:
                await ben.join_world(world, {"actor_name": "ann"})
            assert caught.value.code is StatusCode.ALREADY_EXISTS
            await ben.join_world(world)  # the only one that is free
            with pytest.raises(DmEnvRpcError, match="as all of them") as caught:
                await eve.join_world(world)
            assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
            assert (await eve.read_property(f"worlds.{world}")).tolist() == []
            await ben.leave_world()
            await eve.join_world(world)
            assert (await eve.read_property("trial.actors")).tolist() == ["ann", "ben"]


async def test_leaving_and_joining_again_costs_no_trial() -> None:
    game = Game()
    async with playing(game) as platform, joined(platform, "ann") as (ann,):
        assert len(game.sessions) == 1  # the specifications come with an environment's first observation
        for _ in range(5):
            await ann.leave_world()
            specs = await ann.join_world("w")
            assert [*specs.actions.specs, *specs.observations.specs] == ["action", "observation", "reward"]
        assert await step(ann) == (RUNNING, 0, 0.0)
    assert len(game.sessions) == 2


async def test_who_leaves_before_a_trial_has_begun_does_not_end_it_for_those_who_stay() -> None:
    """Nor does the last one but one; when nobody is left it ends."""
    game, names = Game(), ("ann", "ben", "cleo")
    async with playing(game, names) as platform, joined(platform, *names) as (ann, ben, cleo):
        for gone in (ann, ben):
            await gone.leave_world()
            await wait_all_tasks_blocked()
            assert len(game.sessions) == 1
            assert not game.sessions[0].is_over
        for back, name in ((ann, "ann"), (ben, "ben")):
            await back.join_world("w", {"actor_name": name})
        assert await together(ann, ben, cleo) == [(RUNNING, 0, 0.0)] * 3
        assert len(game.sessions) == 1


async def test_who_joins_while_the_trial_for_the_one_before_is_ended() -> None:
    go_on = trio.Event()

    async def slow(_: EnvironmentSession) -> None:
        await go_on.wait()

    game = Game(opening=slow)
    async with playing(game) as platform, open_connection(platform.channel) as ann:
        await ann.create_world({"world_name": "w"})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ann.join_world, "w")
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        game.opening = None
        ann.close()
        await wait_all_tasks_blocked()  # until the gateway has seen it
        async with open_connection(platform.channel) as ben:
            while not (await ben.read_property("worlds.w")).size:
                pass  # as soon as it is free
            await ben.join_world("w")
            assert await step(ben) == (RUNNING, 0, 0.0)


# The start barrier


async def test_everybody_has_to_step_first() -> None:
    """A step that waits stops no other connection."""
    game = Game(length=2)
    async with playing(game, ("ann", "ben")) as platform, joined(platform, "ann", "ben") as (ann, ben):
        async with trio.open_nursery() as nursery:
            waiting = await begun(nursery, ann)
            assert not waiting.done.is_set()
            assert (await ben.read_property("server.version")).item()
            assert (await ben.reset()) == ben.specs
            other = await ben.create_world()
            await ben.destroy_world(other)
            assert await step(ben) == (RUNNING, 0, 0.0)
            assert await waiting.wait() == (RUNNING, 0, 0.0)
            waiting = await begun(nursery, ann, 3)
            assert not waiting.done.is_set()
            assert await step(ben, 4) == (RUNNING, 1, 0.0)
            assert await waiting.wait() == (RUNNING, 1, 0.0)
        assert await together(ann, ben, numbers=[5, 6]) == [(TERMINATED, 2, 0.0)] * 2
    assert game.actions[:2] == [[3, 4], [5, 6]]


async def test_so_many_have_to_step_first() -> None:
    game = Game(length=2)
    names = ("ann", "ben", "cleo")
    async with (
        playing(game, names, start_when=2) as platform,
        joined(platform, *names) as (ann, ben, cleo),
        trio.open_nursery() as nursery,
    ):
        first = await begun(nursery, ann)
        assert not first.done.is_set()
        assert await step(cleo) == (RUNNING, 0, 0.0)
        assert await first.wait() == (RUNNING, 0, 0.0)
        # Who comes later takes over where nobody has played.
        late = await begun(nursery, ben)
        assert not late.done.is_set()
        assert await together(ann, cleo, numbers=[1, 2]) == [(RUNNING, 1, 0.0)] * 2
        assert await late.wait() == (RUNNING, 1, 0.0)
        assert await together(ann, ben, cleo, numbers=[3, 4, 5]) == [(TERMINATED, 2, 0.0)] * 3
    assert game.actions[:2] == [[1, 0, 2], [3, 4, 5]]


async def test_the_first_one_starts_alone() -> None:
    game = Game(length=2)
    async with playing(game, ("ann", "ben"), start_when="first") as platform, joined(platform, "ben") as (ben,):
        assert [await step(ben, number) for number in (0, 7, 8)] == [
            (RUNNING, 0, 0.0),
            (RUNNING, 1, 0.0),
            (TERMINATED, 2, 0.0),
        ]
    assert game.actions == [[0, 7], [0, 8]]


async def test_who_steps_after_the_end_of_others_waits_for_the_next_sequence() -> None:
    """Ann is out after one step; her next step belongs to the next sequence, which begins when Ben is at its end."""
    game = Game(length=3, out={"ann": (1, True)})
    async with playing(game, ("ann", "ben")) as platform, joined(platform, "ann", "ben") as (ann, ben):
        assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2
        assert await together(ann, ben) == [(TERMINATED, 1, 0.0), (RUNNING, 1, 0.0)]
        async with trio.open_nursery() as nursery:
            waiting = await begun(nursery, ann)
            assert await step(ben) == (RUNNING, 2, 0.0)
            assert await step(ben) == (TERMINATED, 3, 0.0)
            assert not waiting.done.is_set()
            assert await step(ben) == (RUNNING, 0, 0.0)
            assert await waiting.wait() == (RUNNING, 0, 0.0)


# Leaving


async def test_a_client_leaves_and_its_trial_ends() -> None:
    game = Game(length=0)
    async with playing(game, ("ann", "ben")) as platform, joined(platform, "ann", "ben") as (ann, ben):
        await together(ann, ben)
        await ann.leave_world()
        assert await step(ben) == (INTERRUPTED, 1, 0.0)
        assert (await platform.controller.wait_trial("w.1")).cause is EndCause.SOFT_TERMINATION
        assert len(game.actions) == 1  # one last tick
        await ann.join_world("w")
        assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2


async def test_a_client_leaves_and_the_default_action_is_played() -> None:
    """Whoever joins as this actor takes over at the next observation."""
    game = Game(length=5)
    async with (
        playing(game, ("ann", "ben"), on_leave="autopilot") as platform,
        joined(platform, "ann", "ben") as (ann, ben),
    ):
        await together(ann, ben)
        await together(ann, ben, numbers=[1, 2])
        await ann.leave_world()
        assert await step(ben, 3) == (RUNNING, 2, 0.0)
        await ann.join_world("w", {"actor_name": "ann"})
        async with trio.open_nursery() as nursery:
            waiting = await begun(nursery, ann)
            assert await step(ben, 4) == (RUNNING, 3, 0.0)
            assert await waiting.wait() == (RUNNING, 3, 0.0)
        assert await together(ann, ben, numbers=[5, 6]) == [(RUNNING, 4, 0.0)] * 2
        assert await together(ann, ben, numbers=[7, 8]) == [(TERMINATED, 5, 0.0)] * 2
    assert game.actions == [[1, 2], [0, 3], [0, 4], [5, 6], [7, 8]]


async def test_without_any_client_a_trial_ends_whatever_the_policy() -> None:
    game = Game(length=0)
    async with playing(game, on_leave="autopilot") as platform, joined(platform, "ann") as (ann,):
        await step(ann)
        await ann.leave_world()
        assert (await platform.controller.wait_trial("w.1")).cause is EndCause.SOFT_TERMINATION
    assert len(game.actions) == 1


async def test_a_client_leaves_and_its_actor_leaves_the_trial() -> None:
    game = Game(length=3)
    params = params_of(seat("ann", optional=True), "ben")
    async with playing(game, params, on_leave="vacate") as platform, joined(platform, "ann", "ben") as (ann, ben):
        await together(ann, ben)
        await ann.leave_world()
        assert await step(ben, 3) == (RUNNING, 1, 0.0)
        assert game.actions == [[None, 3]]
        await ann.join_world("w", {"actor_name": "ann"})
        async with trio.open_nursery() as nursery:
            waiting = await begun(nursery, ann)
            assert await step(ben, 4) == (RUNNING, 2, 0.0)
            assert await step(ben, 5) == (TERMINATED, 3, 0.0)
            assert not waiting.done.is_set()  # until the next sequence
            await step(ben)
            assert await waiting.wait() == (RUNNING, 0, 0.0)


async def test_a_required_actor_that_leaves_ends_the_trial() -> None:
    game = Game(length=0)
    async with playing(game, ("ann", "ben"), on_leave="vacate") as platform, joined(platform, "ann", "ben") as both:
        await together(*both)
        await both[0].leave_world()
        assert await step(both[1]) == (INTERRUPTED, 0, 0.0)
        outcome = await platform.controller.wait_trial("w.1", check=False)
        assert outcome.participant == "ann"
        assert "ann" in (await both[1].read_property("trial.last_error")).item()


async def test_a_client_that_vanishes_has_left() -> None:
    game = Game(length=0)
    async with playing(game, ("ann", "ben")) as platform, joined(platform, "ben") as (ben,):
        async with trio.open_nursery() as nursery:
            async with open_connection(platform.channel) as ann:
                await ann.join_world("w", {"actor_name": "ann"})
                waiting = await begun(nursery, ben)
                await step(ann)
                await waiting.wait()
                waiting = await begun(nursery, ben)
            assert await waiting.wait() == (INTERRUPTED, 1, 0.0)
        async with open_connection(platform.channel) as ann:
            await ann.join_world("w")
            assert await together(ann, ben) == [(RUNNING, 0, 0.0)] * 2


@pytest.mark.parametrize("name", ["step", "first step"])
async def test_a_client_that_vanishes_while_a_request_waits(name: str) -> None:
    game = Game(length=0)
    async with playing(game, ("ann", "ben")) as platform, joined(platform, "ben") as (ben,):
        async with trio.open_nursery() as nursery, open_connection(platform.channel) as ann:
            await ann.join_world("w", {"actor_name": "ann"})
            if name == "step":
                waiting = await begun(nursery, ben)
                await step(ann)
                await waiting.wait()
            reply = await ann.begin_step()
            await wait_all_tasks_blocked()
            assert not reply.is_there
        await wait_all_tasks_blocked()
        async with open_connection(platform.channel) as ann:
            assert (await ann.read_property("worlds.w")).tolist() == ["ann"]
            await ann.join_world("w")


# Others in the trial


async def test_beside_a_service_actor() -> None:
    async def bot(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"")

    game = Game(length=2)
    params = params_of("ann", actor_params("bot", "player", implementation="bot"))
    async with playing(game, params) as platform:
        platform.participants.register_actor(bot, "bot")
        async with joined(platform, "ann") as (ann,):
            assert (await ann.read_property("trial.actors")).tolist() == ["ann", "bot"]
            assert [(await step(ann, 4))[:2] for _ in range(3)] == [(RUNNING, 0), (RUNNING, 1), (TERMINATED, 2)]
    assert game.actions == [[4, None], [4, None]]


async def test_an_idle_world_goes(autojump_clock: MockClock) -> None:
    async with playing(Game(), world_idle_seconds=60) as platform, open_connection(platform.channel) as ann:
        await ann.create_world({"world_name": "w"})
        await trio.sleep(50)
        await ann.join_world("w")
        await step(ann)
        await trio.sleep(100)  # somebody is there
        await ann.leave_world()
        await trio.sleep(59)
        assert (await ann.read_property("worlds")).tolist() == ["w"]
        await trio.sleep(2)
        assert (await ann.read_property("worlds")).tolist() == []
        with pytest.raises(DmEnvRpcError, match="'w'") as caught:
            await ann.join_world("w")
        assert caught.value.code is StatusCode.NOT_FOUND


async def test_a_world_may_stay_for_ever(autojump_clock: MockClock) -> None:
    async with playing(Game(), world_idle_seconds=0) as platform, open_connection(platform.channel) as ann:
        await ann.create_world({"world_name": "w"})
        await trio.sleep(80_000)
        await ann.join_world("w")
