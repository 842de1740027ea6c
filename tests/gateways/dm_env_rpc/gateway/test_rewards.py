"""The observation `reward`: which rewards of a trial it counts, and where they came from."""

from __future__ import annotations

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from tests.gateways.dm_env_rpc.gateway.games import Game, joined, params_of, playing, seat, step, together
from trio_cogment.api.common_pb2 import Reward as ApiReward
from trio_cogment.api.common_pb2 import RewardSource
from trio_cogment.gateways.dm_env_rpc import Connection
from trio_cogment.gateways.dm_env_rpc.gateway.records import GatheredRewards, PlayerRecord
from trio_cogment.gateways.dm_env_rpc.gateway.templates import RewardMode
from trio_cogment.sdk import ActorSession, EnvironmentSession, RecvReward, Reward, actor_params


def received(*sources: tuple[float, float], value: float) -> RecvReward:
    return RecvReward(0, value, [RewardSource(value=each, confidence=sure) for each, sure in sources], "ann")


@pytest.mark.parametrize(("mode", "expected"), [("sum", 5.0), ("last", 2.0), ("weighted", (4 * 1.0 + 1 * 3.0) / 4)])
def test_several_rewards_become_one_number(mode: RewardMode, expected: float) -> None:
    gathered = GatheredRewards(mode)
    assert gathered.take() == 0.0
    gathered.add(received((4.0, 1.0), (1.0, 1.0), value=3.0))
    gathered.add(received((1.0, 2.0), value=2.0))
    assert gathered.take() == pytest.approx(expected)
    assert gathered.take() == 0.0


def test_the_weight_of_each_reward_is_its_confidence() -> None:
    gathered = GatheredRewards("weighted")
    for value, confidence in ((8.0, 0.25), (2.0, 1.0), (1.0, 0.75)):
        gathered.add(received((value, confidence), value=value))
    assert gathered.take() == (8.0 * 0.25 + 2.0 + 0.75) / 2.0
    gathered.add(received((3.0, 0.5), (1.0, 0.25), value=1.0))
    assert gathered.take() == (1.5 + 0.25) / 0.75


def test_rewards_without_confidence() -> None:
    gathered = GatheredRewards("weighted")
    gathered.add(received((4.0, 0.0), value=0.0))
    assert gathered.take() == 0.0


async def rewards(connection: Connection, count: int) -> list[float]:
    return [(await step(connection))[2] for _ in range(count)]


async def test_the_reward_of_a_step_comes_with_its_observation() -> None:
    """Also with the last one; the first one has none, whatever came before it."""
    game = Game(length=3, rewards={1: [Reward("ann", 0.5)], 3: [Reward("*", -2.0)]})
    async with playing(game) as platform, joined(platform, "ann") as (ann,):
        for _ in range(2):
            assert await rewards(ann, 4) == [0.0, 0.5, 0.0, -2.0]


async def test_each_agent_has_its_own() -> None:
    game = Game(length=1, rewards={1: [Reward("ann", 1.0), Reward("ben", 2.0)]})
    async with playing(game, ("ann", "ben")) as platform, joined(platform, "ann", "ben") as (ann, ben):
        await together(ann, ben)
        assert [reward for _, _, reward in await together(ann, ben)] == [1.0, 2.0]


@pytest.mark.parametrize(("mode", "expected"), [("sum", 3.0), ("last", 3.0), ("weighted", 3.0)])
async def test_rewards_for_one_tick_are_one_reward(mode: str, expected: float) -> None:
    """The orchestrator makes their mean, weighted by confidence; all sources can be read."""
    sent = [Reward("ann", 4.0, 0.75, user_data=StringValue(value="well done")), Reward("ann", 0.0, 0.25)]
    game = Game(length=2, rewards={1: sent})
    async with playing(game, reward_mode=mode) as platform, joined(platform, "ann") as (ann,):
        assert await rewards(ann, 2) == [0.0, expected]
        found = []
        for packed in (await ann.read_property("reward.sources")).tolist():
            source = RewardSource()
            assert packed.Unpack(source)
            found.append((source.sender_name, source.value, source.confidence))
        assert found == [("env", 4.0, 0.75), ("env", 0.0, 0.25)]
        assert await rewards(ann, 1) == [0.0]
        assert (await ann.read_property("reward.sources")).tolist() == []


async def test_rewards_for_earlier_ticks() -> None:
    """The orchestrator books them there, and tells nobody."""

    async def turn(session: EnvironmentSession, number: int) -> None:
        if number == 2:
            await session.add_reward(5.0, 1.0, "ann", tick_id=0)
            await session.add_reward(1.0, 1.0, "ann")

    async with playing(Game(length=3, turn=turn)) as platform, joined(platform, "ann") as (ann,):
        assert await rewards(ann, 2) == [0.0, 0.0]
        assert (await ann.read_property("reward.late")).item() == 0
        assert await rewards(ann, 3) == [1.0, 0.0, 0.0]
        assert (await ann.read_property("reward.late")).item() == 0


def test_rewards_that_come_late_are_counted() -> None:
    """Other orchestrators pass them on."""
    record = PlayerRecord(actor_name="ann", actors=[("ann", "player")], environment_name="env", tick=5)
    for tick in (3, 5, 4):
        record.add_reward(ApiReward(tick_id=tick, value=1.0))
    assert record.late_rewards == 2
    record.begin("w.2")
    assert record.late_rewards == 0


@pytest.mark.parametrize("mode", ["sum", "last"])
async def test_rewards_after_the_last_observation_count_too(mode: str) -> None:
    """The answer to the last step waits for the end of the trial: others may still give rewards."""

    async def critic(session: ActorSession) -> None:
        await session.start(auto_done_sending=False)
        async for event in session.all_events():
            if event.observation is not None:
                if event.observation.tick_id == 2:
                    await session.add_reward(7.0, 1.0, "ann")
                    await session.sending_done()
                else:
                    await session.do_action(b"")

    params = params_of(seat("ann"), actor_params("critic", "player", implementation="critic"))
    async with playing(Game(length=2), params, reward_mode=mode) as platform:
        platform.participants.register_actor(critic, "critic")
        async with joined(platform, "ann") as (ann,):
            assert await rewards(ann, 3) == [0.0, 0.0, 7.0]


async def test_what_nobody_saw_is_not_counted() -> None:
    """A client that takes over has no part in the rewards of the default action before."""
    game = Game(length=0, rewards={number: [Reward("ann", 1.0)] for number in range(1, 9)})
    async with (
        playing(game, ("ann", "ben"), start_when="first") as platform,
        joined(platform, "ben") as (ben,),
        joined(platform, "ann", world="other") as (ann,),
    ):
        await rewards(ben, 3)
        await ann.leave_world()
        await ann.join_world("w", {"actor_name": "ann"})
        reply = await ann.begin_step()
        await rewards(ben, 1)
        assert (await reply).observations["reward"] == 0.0
        assert [reward for _, _, reward in await together(ann, ben)] == [1.0, 0.0]


async def test_rewards_of_ticks_that_have_not_waited_for_the_client_count(autojump_clock: object) -> None:
    """The trial goes on without an optional actor that takes too long: the next reply has what it has earned."""
    game = Game(length=0, rewards={1: [Reward("ann", 1.0)], 2: [Reward("ann", 2.0)], 3: [Reward("ann", 4.0)]})
    params = params_of(seat("ann", optional=True, response_timeout_seconds=1), "ben")
    async with playing(game, params) as platform, joined(platform, "ann", "ben") as (ann, ben):
        await together(ann, ben)
        assert [seen for _, seen, _ in (await step(ben), await step(ben))] == [1, 2]
        assert [reward for _, _, reward in await together(ann, ben)] == [7.0, 0.0]
