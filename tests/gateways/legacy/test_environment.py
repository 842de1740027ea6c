"""Old environments as the environments of trials."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import Int64Value

from tests.gateways.legacy.playing import ACTORS, Newcomer, parameters, staged
from tests.gateways.legacy.servers import PROFILE, AgentServer, EnvironmentServer, served
from trio_cogment.api.legacy.common_pb2 import Feedback, Message
from trio_cogment.base.errors import FailedPreconditionError, TrialFailedError
from trio_cogment.base.outcome import EndCause
from trio_cogment.gateways.legacy.deltas import applying
from trio_cogment.gateways.legacy.participants import LegacyEnvironment
from trio_cogment.platform import open_platform
from trio_cogment.sdk import ActorSession, Participants


async def test_a_trial_that_an_old_environment_ends() -> None:
    server = EnvironmentServer(ends_at=3)
    async with staged(environments=server) as stage:
        outcome = await stage.play(parameters(environment="old"))
    assert outcome.cause is EndCause.ENVIRONMENT
    (start,) = server.requests("Start")
    assert (start.trial_id, list(start.actor_counts)) == ("trial", [1, 2])
    assert not start.HasField("config")
    assert not start.HasField("trial_config")
    # Ids and parameters have different orders: p is 0, d1 is 1, d2 is 2.
    for actor_id, name in enumerate(("p", "d1", "d2")):
        assert stage.newcomer.observations(name) == [b"seen by %d at %d" % (actor_id, tick) for tick in range(4)]
    updates = server.requests("Update")
    assert [list(each.action_set.actions) for each in updates] == [
        [f"{name} at {tick}".encode() for name in ("p", "d1", "d2")] for tick in range(3)
    ]
    assert all(each.reply_with_snapshot for each in updates)
    assert [name for name, _ in server.calls] == ["Start", *["Update"] * 3, "End"]
    assert not server.playing


@pytest.mark.parametrize("ends_at", [2, 0])
async def test_the_end_is_acknowledged_for_old_participants(
    ends_at: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Else the orchestrator would wait for them as long as it may, and count them as lost."""
    server = EnvironmentServer(ends_at=ends_at)
    async with staged(environments=server) as stage:
        began = trio.current_time()
        outcome = await stage.play(parameters(old=("p",), environment="old", max_steps=0 if ends_at else 2))
        took = trio.current_time() - began
    assert outcome.cause is (EndCause.ENVIRONMENT if ends_at else EndCause.STEP_LIMIT)
    assert not outcome.losses
    assert took < 1


async def test_configurations_are_passed_on() -> None:
    server = EnvironmentServer(ends_at=1)
    async with staged(environments=server, trial_config=b"of the trial") as stage:
        await stage.play(parameters(environment="old", environment_config=b"of the environment"))
    (start,) = server.requests("Start")
    assert (start.config.content, start.trial_config.content) == (b"of the environment", b"of the trial")


async def test_with_a_step_limit_the_last_observations_are_the_final_ones() -> None:
    server = EnvironmentServer()
    async with staged(environments=server) as stage:
        outcome = await stage.play(parameters(environment="old", max_steps=3))
    assert outcome.cause is EndCause.STEP_LIMIT
    assert len(server.requests("Update")) == 3
    # One for each tick, and the final one.
    assert stage.newcomer.observations("p") == [b"seen by 0 at %d" % tick for tick in (0, 1, 2, 3, 3)]
    assert not server.playing


@pytest.mark.parametrize("hard", [False, True])
async def test_a_trial_that_somebody_ends(hard: bool) -> None:
    server = EnvironmentServer()
    async with staged(environments=server) as stage, trio.open_nursery() as nursery:
        reached = trio.Event()

        async def before(method: str, request: Any) -> None:
            if len(server.requests("Update")) == 3:
                reached.set()

        server.before = before
        nursery.start_soon(stage.play, parameters(environment="old"))
        await reached.wait()
        await stage.platform.controller.terminate_trial("trial", hard=hard)
    assert not server.playing
    assert len(server.requests("End")) == 1


async def test_feedbacks_and_messages_belong_to_the_step_that_is_finished() -> None:
    server = EnvironmentServer(ends_at=2)

    def alter(reply: Any, _: str) -> None:
        if hasattr(reply, "feedbacks"):
            reply.feedbacks.append(Feedback(actor_id=2, tick_id=-1, value=4, confidence=1))
            reply.feedbacks.append(Feedback(actor_id=2, tick_id=-1, value=1, confidence=0.5))
            reply.feedbacks.append(Feedback(actor_id=5, tick_id=-1, value=1, confidence=1))
            reply.messages.append(Message(receiver_id=0, payload={"type_url": "x/y", "value": b"m"}))
            reply.messages.append(Message(receiver_id=5))

    server.alter = alter
    async with staged(environments=server) as stage:
        await stage.play(parameters(environment="old"))
    rewards = [event.reward for event in stage.newcomer.events["d2"] if event.reward is not None]
    assert [(each.tick_id, each.value, len(each.sources)) for each in rewards] == [(0, 3, 2), (1, 3, 2)]
    messages = [event.message for event in stage.newcomer.events["p"] if event.message is not None]
    assert [(each.tick_id, each.sender_name, each.payload.value) for each in messages] == [
        (0, "env", b"m"),
        (1, "env", b"m"),
    ]


async def test_messages_reach_the_environment() -> None:
    server = EnvironmentServer(ends_at=1)

    async def telling(session: ActorSession[Any, Any, Any]) -> None:
        async for event in session.all_events():
            if event.observation is not None and event.tick_id == 0:
                await session.send_message(AnyMessage(type_url="x/y", value=b"m"), session.environment_name)
                await session.do_action(b"")

    async with staged(environments=server) as stage:
        stage.platform.participants.register_actor(telling, "telling")
        params = parameters(environment="old")
        params.actors[2].implementation = "telling"
        await stage.play(params)
    (told,) = server.requests("OnMessage")
    assert told.actor_id == -1
    assert [(each.sender_id, each.receiver_id, each.payload.value) for each in told.messages] == [(2, -1, b"m")]


async def test_deltas_become_whole_observations() -> None:
    server = EnvironmentServer(ends_at=3)

    def alter(reply: Any, _: str) -> None:
        shown = reply.observation_set
        del shown.observations[:]
        shown.observations.add(content=Int64Value(value=10 + shown.tick_id).SerializeToString())
        shown.observations.add(content=Int64Value(value=7).SerializeToString(), snapshot=True)
        shown.actors_map[:] = [0, 0, 1]

    def added(before: Int64Value, delta: Int64Value) -> Int64Value:
        before.value += delta.value
        return before

    server.alter = alter
    profile = replace(PROFILE, deltas=dict.fromkeys(PROFILE.classes, applying(added, Int64Value, Int64Value)))
    async with staged(environments=server, profile=profile) as stage:
        await stage.play(parameters(environment="old"))
    seen = {
        name: [Int64Value.FromString(each).value for each in stage.newcomer.observations(name)]
        for name in ("p", "d1", "d2")
    }
    assert seen == {"p": [10, 21, 33, 46], "d1": [10, 21, 33, 46], "d2": [7, 7, 7, 7]}


async def test_an_actor_that_does_not_act_is_an_empty_action(autojump_clock: trio.testing.MockClock) -> None:
    server = EnvironmentServer(ends_at=2)

    async def idle(session: ActorSession[Any, Any, Any]) -> None:
        async for _ in session.all_events():
            pass

    async with staged(environments=server) as stage:
        stage.platform.participants.register_actor(idle, "idle")
        params = parameters(environment="old")
        params.actors[0].implementation, params.actors[0].optional = "idle", True
        params.actors[0].response_timeout = 1
        await stage.start(params)
        await stage.platform.controller.wait_trial("trial")
    assert [list(each.action_set.actions) for each in server.requests("Update")] == [
        [f"p at {tick}".encode(), b"", f"d2 at {tick}".encode()] for tick in range(2)
    ]


async def test_old_agents_in_an_old_environment() -> None:
    agents, environments = AgentServer(), EnvironmentServer(ends_at=2)
    async with staged(agents, environments) as stage:
        await stage.play(parameters(old=[name for name, _ in ACTORS], environment="old"))
    assert [list(each.action_set.actions) for each in environments.requests("Update")] == [
        [b"SEEN BY %d AT %d" % (actor_id, tick) for actor_id in range(3)] for tick in range(2)
    ]
    assert not agents.playing
    assert not environments.playing


# Bad input


def wrong_count(reply: Any) -> None:
    reply.observation_set.actors_map.append(0)


def wrong_index(reply: Any) -> None:
    reply.observation_set.actors_map[1] = 9


def a_delta(reply: Any) -> None:
    reply.observation_set.observations[1].snapshot = False


@pytest.mark.parametrize(
    ("alter", "text"),
    [
        (wrong_count, "actors_map: expected one entry for each of 3 actors, got 4"),
        (wrong_index, "expected the index of one of 3 observations, got 9"),
        (a_delta, "a delta for an actor of class 'drone'"),
    ],
)
@pytest.mark.parametrize("at", [0, 2])
async def test_nonsense_ends_the_trial_and_no_other(alter: Any, text: str, at: int) -> None:
    server = EnvironmentServer()

    def sometimes(reply: Any, trial_id: str) -> None:
        if trial_id == "trial" and reply.observation_set.tick_id == at:
            alter(reply)

    server.alter = sometimes
    async with staged(environments=server) as stage:
        await stage.start(parameters(environment="old", max_steps=50), "other")
        outcome = await stage.play(parameters(environment="old"), check=False)
        assert text in outcome.reason
        assert outcome.losses[0].participant == "env"
        assert (await stage.platform.controller.wait_trial("other")).cause is EndCause.STEP_LIMIT
    assert len(server.requests("End")) == 2
    assert not server.playing


async def test_an_environment_that_refuses_the_trial_is_told_nothing_more() -> None:
    server = EnvironmentServer()

    async def before(method: str, request: Any) -> None:
        raise FailedPreconditionError("This environment isn't expecting a config")

    server.before = before
    async with staged(environments=server) as stage:
        with pytest.raises(TrialFailedError, match="This environment isn't expecting a config"):
            await stage.play(parameters(environment="old"))
    assert [name for name, _ in server.calls] == ["Start"]


async def test_a_class_that_the_profile_does_not_have() -> None:
    server = EnvironmentServer()
    async with staged(environments=server) as stage:
        with pytest.raises(TrialFailedError, match="got 'ship'"):
            await stage.play(parameters(environment="old", actors=[*ACTORS, ("s", "ship")]))
    assert not server.calls


async def test_an_environment_that_hangs_is_told_of_the_end(autojump_clock: trio.testing.MockClock) -> None:
    server = EnvironmentServer()

    async def before(method: str, request: Any) -> None:
        if method == "Update":
            await trio.sleep_forever()

    server.before = before
    async with staged(environments=server) as stage:
        await stage.start(parameters(environment="old", max_inactivity_seconds=20))
        outcome = await stage.platform.controller.wait_trial("trial", check=False)
    assert outcome.cause is EndCause.INACTIVITY
    assert not server.playing


async def test_ticks_that_differ_are_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    server = EnvironmentServer(ends_at=3)

    def alter(reply: Any, _: str) -> None:
        reply.observation_set.tick_id += 100

    server.alter = alter
    with caplog.at_level(logging.WARNING):
        async with staged(environments=server) as stage:
            await stage.play(parameters(environment="old"))
    assert caplog.text.count("tick 100, where the trial is at 0: ignored") == 1
    assert caplog.text.count("where the trial is at") == 1
    assert [event.tick_id for event in stage.newcomer.events["p"] if event.observation] == [0, 1, 2, 3]


async def test_over_sockets() -> None:
    server = EnvironmentServer(ends_at=2)
    found = Participants()
    async with served(server) as (port, _), open_platform(found) as platform:
        found.register_environment(LegacyEnvironment(f"grpc://127.0.0.1:{port}", PROFILE), "old")
        found.register_actor(Newcomer().play, "today")
        with trio.fail_after(30):
            await platform.controller.start_trial(parameters(environment="old"), trial_id="trial")
            await platform.controller.wait_trial("trial")
    assert [name for name, _ in server.calls] == ["Start", "Update", "Update", "End"]


async def test_a_server_that_dies() -> None:
    server = EnvironmentServer()
    async with staged() as stage:
        async with served(server) as (port, alive):
            reached = trio.Event()

            async def before(method: str, request: Any) -> None:
                if len(server.requests("Update")) == 3:
                    reached.set()

            server.before = before
            environment = LegacyEnvironment(f"grpc://127.0.0.1:{port}", PROFILE)
            stage.platform.participants.register_environment(environment, "dying")
            with trio.fail_after(30):
                await stage.start(parameters(environment="dying"))
                await reached.wait()
                alive.cancel()
        with trio.fail_after(30):
            outcome = await stage.platform.controller.wait_trial("trial", check=False)
    assert outcome.losses[0].participant == "env"
    assert "Update: UNAVAILABLE" in outcome.reason
