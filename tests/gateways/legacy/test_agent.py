"""Old agents as actors of trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.gateways.legacy.playing import ACTORS, Field, parameters, staged
from tests.gateways.legacy.servers import PROFILE, AgentServer, served
from trio_cogment.api.legacy.common_pb2 import Feedback, FinalData, Message
from trio_cogment.base.errors import NotFoundError, TrialFailedError, UnavailableError
from trio_cogment.base.outcome import EndCause
from trio_cogment.gateways.legacy.participants import LegacyAgent
from trio_cogment.gateways.legacy.trials import asking
from trio_cogment.platform import open_platform
from trio_cogment.sdk import EnvironmentSession, Participants


async def test_a_trial_with_an_old_agent_and_new_ones() -> None:
    server = AgentServer()
    async with staged(server) as stage:
        await stage.play(parameters(old=["d2"]))
    (start,) = server.requests("Start")
    assert (start.trial_id, start.actor_id, list(start.actor_counts)) == ("trial", 2, [1, 2])
    assert not start.HasField("config")
    assert not start.HasField("trial_config")
    decisions = server.requests("Decide")
    assert [each.observation.tick_id for each in decisions] == [0, 1, 2]
    assert [each.observation.data.content for each in decisions] == [b"see 0", b"see 1", b"see 2"]
    assert all(each.observation.data.snapshot and each.observation.timestamp for each in decisions)
    assert {(each.trial_id, each.actor_id) for each in decisions} == {("trial", 2)}
    acted = [event.actions for event in stage.ground.events if event.actions is not None]
    assert [actions[2].payload for actions in acted] == [b"SEE 0", b"SEE 1", b"SEE 2"]
    assert not server.playing


async def test_one_server_plays_all_actors() -> None:
    server = AgentServer()
    async with staged(server) as stage:
        await stage.play(parameters(old=[name for name, _ in ACTORS]))
    assert sorted(each.actor_id for each in server.requests("Start")) == [0, 1, 2]
    assert sorted(each.actor_id for each in server.requests("End")) == [0, 1, 2]
    assert not server.playing


async def test_the_final_observation_is_in_the_final_data_and_needs_no_decision() -> None:
    server = AgentServer()

    class Ending(Field):
        async def play(self, session: EnvironmentSession[Any, Any, Any]) -> None:
            await session.start([("*", b"first")], auto_done_sending=False)
            async for event in session.all_events():
                if event.actions is not None:
                    await session.end([("*", b"last")])
                    await session.add_reward(2, 1, "d1")
                    await session.send_message(AnyMessage(type_url="x/y", value=b"bye"), "d1")
                    await session.sending_done()

    async with staged(server) as stage:
        stage.platform.participants.register_environment(Ending().play, "ending")
        await stage.play(parameters(old=["d1"], environment="ending"))
    assert len(server.requests("Decide")) == 1
    (end,) = server.requests("End")
    final: FinalData = end.final_data
    assert [(each.tick_id, each.data.content, each.data.snapshot) for each in final.observations] == [
        (1, b"last", True)
    ]
    assert [each.payload.value for each in final.messages] == [b"bye"]
    assert [name for name, _ in server.calls] == ["Start", "Decide", "End"]


async def test_configurations_are_passed_on() -> None:
    server = AgentServer()
    async with staged(server, trial_config=b"of the trial") as stage:
        params = parameters(old=["p"])
        params.actors[1].config.content = b"of the actor"
        await stage.play(params)
    (start,) = server.requests("Start")
    assert (start.config.content, start.trial_config.content) == (b"of the actor", b"of the trial")


async def test_feedbacks_and_messages_belong_to_the_tick_of_the_decision() -> None:
    server = AgentServer(
        feedbacks=[
            Feedback(actor_id=0, tick_id=-1, value=1, confidence=1, content=b"why"),
            Feedback(actor_id=9, tick_id=-1, value=1, confidence=1),
        ],
        messages=[
            Message(sender_id=2, receiver_id=0, payload={"type_url": "x/y", "value": b"to p"}),
            Message(receiver_id=-1, payload={"type_url": "x/y", "value": b"to the environment"}),
            Message(receiver_id=7),
        ],
    )
    async with staged(server) as stage:
        await stage.play(parameters(old=["d1"]))
    rewards = [event.reward for event in stage.newcomer.events["p"] if event.reward is not None]
    assert [(each.tick_id, each.value, each.sources[0].sender_name) for each in rewards] == [
        (0, 1, "d1"),
        (1, 1, "d1"),
        (2, 1, "d1"),
    ]
    messages = [event.message for event in stage.newcomer.events["p"] if event.message is not None]
    assert [(each.tick_id, each.sender_name, each.payload.value) for each in messages] == [
        (tick_id, "d1", b"to p") for tick_id in range(3)
    ]
    got = [event.message.payload.value for event in stage.ground.events if event.message is not None]
    assert got == [b"to the environment"] * 3


async def test_rewards_and_messages_reach_the_agent_before_its_next_decision() -> None:
    server = AgentServer()

    class Generous(Field):
        async def play(self, session: EnvironmentSession[Any, Any, Any]) -> None:
            await session.start([("*", b"0")])
            async for event in session.all_events():
                if event.actions is not None and event.tick_id < 2:
                    await session.send_message(AnyMessage(type_url="x/y", value=b"m"), "d1")
                    await session.add_reward(event.tick_id + 1, 1, "d1")
                    await session.produce_observations([("*", b"1")])
                elif event.actions is not None:
                    await session.end([("*", b"2")])

    async with staged(server) as stage:
        stage.platform.participants.register_environment(Generous().play, "generous")
        await stage.play(parameters(old=["d1"], environment="generous"))
    order = ["Start", "Decide", "OnMessage", "Reward", "Decide", "OnMessage", "Reward", "Decide", "End"]
    assert [name for name, _ in server.calls] == order
    rewards = server.requests("Reward")
    assert [(each.tick_id, each.reward.value, each.reward.confidence) for each in rewards] == [(0, 1, 1), (1, 2, 1)]
    assert {(each.actor_id, each.agent_id) for request in rewards for each in request.reward.feedbacks} == {(1, 0)}
    messages = [each for request in server.requests("OnMessage") for each in request.messages]
    assert {(each.sender_id, each.receiver_id, each.payload.value) for each in messages} == {(-1, 1, b"m")}


async def test_a_reward_for_every_tick_on_request() -> None:
    server = AgentServer()
    async with staged(server, profile=replace(PROFILE, reward_every_tick=True)) as stage:
        await stage.play(parameters(old=["d1"]))
    assert [name for name, _ in server.calls] == ["Start", "Decide", "Reward", "Decide", "Reward", "Decide", "End"]
    rewards = server.requests("Reward")
    assert [(each.tick_id, each.reward.value, len(each.reward.feedbacks)) for each in rewards] == [(0, 0, 0), (1, 0, 0)]
    assert [each.reward.confidence for each in rewards] == [1, 1]


@pytest.mark.parametrize("hard", [False, True])
async def test_a_trial_that_somebody_ends(hard: bool) -> None:
    server = AgentServer()
    async with staged(server) as stage, trio.open_nursery() as nursery:
        stage.ground.ends_at = 10**6
        reached = trio.Event()

        async def before(method: str, request: Any) -> None:
            if method == "Decide" and request.observation.tick_id == 3:
                reached.set()

        server.before = before
        nursery.start_soon(stage.play, parameters(old=["d1", "p"]))
        await reached.wait()
        await stage.platform.controller.terminate_trial("trial", hard=hard)
    assert len(server.requests("End")) == 2
    assert not server.playing
    assert [each.HasField("final_data") for each in server.requests("End")] == [not hard] * 2


# Bad input


async def test_an_agent_that_refuses_the_trial_is_told_nothing_more() -> None:
    server = AgentServer()

    async def before(method: str, request: Any) -> None:
        raise NotFoundError("no config type\n\x1b[31m")

    server.before = before
    async with staged(server) as stage:
        with pytest.raises(TrialFailedError, match="Start: NOT_FOUND: no config type") as caught:
            await stage.play(parameters(old=["d1"]))
    assert caught.value.outcome.losses[0].participant == "d1"
    assert "\x1b" not in str(caught.value)
    assert [name for name, _ in server.calls] == ["Start"]


async def test_an_agent_that_cannot_be_reached_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server = AgentServer()

    async def before(method: str, request: Any) -> None:
        raise UnavailableError("nobody is there")

    server.before = before
    async with staged(server) as stage:
        with pytest.raises(TrialFailedError, match="Start: UNAVAILABLE: nobody is there"):
            await stage.play(parameters(old=["d1"]))
    assert all(record.exc_info is None for record in caplog.records)
    assert "actor 'd1': " in caplog.text


async def test_an_agent_that_fails_to_decide_leaves_the_trial() -> None:
    server = AgentServer()

    async def before(method: str, request: Any) -> None:
        if method == "Decide" and request.observation.tick_id == 1:
            raise NotFoundError("lost my mind")

    server.before = before
    async with staged(server) as stage:
        params = parameters(old=["d1"])
        params.actors[0].optional = True
        params.actors[0].default_action.content = b"default"
        await stage.play(params)
    acted = [event.actions[0].payload for event in stage.ground.events if event.actions is not None]
    assert acted == [b"SEE 0", b"default", b"default"]
    assert [name for name, _ in server.calls] == ["Start", "Decide", "Decide", "End"]


async def test_with_empty_actions_an_agent_that_fails_goes_on() -> None:
    server = AgentServer()

    async def before(method: str, request: Any) -> None:
        if method == "Decide" and request.observation.tick_id == 1:
            raise NotFoundError("lost my mind")

    server.before = before
    async with staged(server, profile=replace(PROFILE, on_agent_error="empty")) as stage:
        await stage.play(parameters(old=["d1"]))
    acted = [event.actions[0].payload for event in stage.ground.events if event.actions is not None]
    assert acted == [b"SEE 0", b"", b"SEE 2"]


async def test_a_class_that_the_profile_does_not_have() -> None:
    server = AgentServer()
    async with staged(server) as stage:
        with pytest.raises(TrialFailedError, match="got 'ship'"):
            await stage.play(parameters(old=["d1"], actors=[*ACTORS, ("s", "ship")]))
    assert not server.calls


async def test_an_agent_that_hangs_is_told_of_the_end(autojump_clock: trio.testing.MockClock) -> None:
    server = AgentServer()

    async def before(method: str, request: Any) -> None:
        if method == "Decide" and request.actor_id == 1:
            await trio.sleep_forever()

    server.before = before
    async with staged(server) as stage:
        stage.ground.ends_at = 10
        await stage.start(parameters(old=["d1", "d2"], max_inactivity_seconds=20))
        outcome = await stage.platform.controller.wait_trial("trial", check=False)
    assert outcome.cause is EndCause.INACTIVITY
    assert not server.playing


async def test_a_timeout_for_each_call(autojump_clock: trio.testing.MockClock) -> None:
    server = AgentServer()

    async def before(method: str, request: Any) -> None:
        if method == "Decide":
            await trio.sleep(60)

    server.before = before
    async with staged(server, profile=replace(PROFILE, call_timeout_seconds=3)) as stage:
        await stage.start(parameters(old=["d1"]))
        outcome = await stage.platform.controller.wait_trial("trial", check=False)
        assert trio.current_time() < 30
    assert "Decide: DEADLINE_EXCEEDED" in outcome.reason
    assert not server.playing


async def test_an_end_without_an_answer_takes_bounded_time(autojump_clock: trio.testing.MockClock) -> None:
    server = AgentServer()

    async def before(method: str, request: Any) -> None:
        if method == "End":
            await trio.sleep_forever()

    server.before = before
    async with staged(server) as stage:
        await stage.start(parameters(old=["d1"]))
        await stage.platform.controller.wait_trial("trial", check=False)
    assert trio.current_time() < 20


async def test_over_sockets_the_actors_come_from_the_orchestrator() -> None:
    server = AgentServer()
    found = Participants()
    async with served(server) as (port, _), open_platform(found) as platform:
        ground = Field()
        agent = LegacyAgent(f"grpc://127.0.0.1:{port}", PROFILE, asking(platform.controller))
        found.register_environment(ground.play, "today")
        found.register_actor(agent, "old")
        with trio.fail_after(30):
            await platform.controller.start_trial(parameters(old=[name for name, _ in ACTORS]), trial_id="trial")
            await platform.controller.wait_trial("trial")
    assert [list(each.actor_counts) for each in server.requests("Start")] == [[1, 2]] * 3
    assert not server.playing


async def test_a_server_that_dies() -> None:
    server = AgentServer()
    found = Participants()
    async with open_platform(found) as platform:
        ground = Field(ends_at=10**6)
        found.register_environment(ground.play, "today")
        async with served(server) as (port, alive):
            reached = trio.Event()

            async def before(method: str, request: Any) -> None:
                if method == "Decide" and request.observation.tick_id == 3:
                    reached.set()

            server.before = before
            agent = LegacyAgent(f"grpc://127.0.0.1:{port}", PROFILE, asking(platform.controller))
            found.register_actor(agent, "old")
            with trio.fail_after(30):
                await platform.controller.start_trial(parameters(old=[name for name, _ in ACTORS]), trial_id="trial")
                await reached.wait()
                alive.cancel()
        with trio.fail_after(30):
            outcome = await platform.controller.wait_trial("trial", check=False)
    assert outcome.cause.is_failure


async def test_a_trial_that_nobody_knows() -> None:
    async with staged() as stage:
        with pytest.raises(NotFoundError):
            await asking(stage.platform.controller)("no such trial")
