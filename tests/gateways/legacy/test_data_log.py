"""Old data logs of trials, and the log streams of old orchestrators in a datastore."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio
from google.protobuf.any_pb2 import Any as AnyMessage

from tests.gateways.legacy.playing import Field, Newcomer, parameters
from tests.gateways.legacy.servers import PROFILE
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.api.legacy import data_pb2 as pb
from trio_cogment.base.errors import InvalidArgumentError, RpcError
from trio_cogment.gateways.legacy import LegacyGateway, LegacyProfile
from trio_cogment.gateways.legacy.deltas import ApplyDelta
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import ServerCall, bind, methods_of, open_listeners, serve
from trio_cogment.sdk import EnvironmentSession, Participants

SERVICE = pb.DESCRIPTOR.services_by_name["LogExporter"]
LOG = methods_of(SERVICE)["Log"]


@dataclass
class LogServer:
    """Keeps streams; it refuses the first ones."""

    refuses: int = 0
    streams: list[list[pb.DatalogMsg]] = field(default_factory=list)
    finished: trio.Event = field(default_factory=trio.Event)

    async def Log(self, call: ServerCall) -> pb.LogReply:
        self.streams.append([])
        if self.refuses:
            self.refuses -= 1
            raise InvalidArgumentError("the disk is full")
        async for message in call:
            self.streams[-1].append(message)
        self.finished.set()
        return pb.LogReply()


@asynccontextmanager
async def served(server: LogServer) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        services = [bind(SERVICE, server)]
        running: Any = await nursery.start(serve, services, await open_listeners("127.0.0.1"))
        yield f"legacy://127.0.0.1:{running.port}"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def platform(profile: LegacyProfile = PROFILE, **options: Any) -> AsyncIterator[Platform]:
    class Generous(Field):
        async def play(self, session: EnvironmentSession[Any, Any, Any]) -> None:
            await session.start([("d1", b"0"), ("p", b"0"), ("d2", b"other 0")])
            async for event in session.all_events():
                if event.actions is None:
                    continue
                await session.add_reward(2, 1, "drone.*")
                await session.add_reward(4, 1, "d2")
                await session.send_message(AnyMessage(type_url="x/y", value=b"all"), "*")
                seen: list[tuple[str, bytes]] = [("*", b"%d" % (event.tick_id + 1))]
                await (session.end(seen) if event.tick_id == 1 else session.produce_observations(seen))

    found = Participants()
    found.register_actor(Newcomer().play, "today")
    found.register_environment(Generous().play, "today")
    async with open_platform(found, extensions=[LegacyGateway(profile)], **options) as opened:
        yield opened


async def play(opened: Platform, endpoint: str) -> TrialParams:
    params = parameters(datalog_endpoint=endpoint)
    with trio.fail_after(60):
        await opened.controller.start_trial(params, trial_id="trial")
        await opened.controller.wait_trial("trial")
    return params


async def test_an_old_data_log_gets_the_samples_by_ids() -> None:
    server = LogServer()
    async with served(server) as endpoint, platform() as opened:
        await play(opened, endpoint)
    (stream,) = server.streams
    assert [actor.actor_class for actor in stream[0].trial_params.actors] == ["drone", "plane", "drone"]
    samples = [message.sample for message in stream[1:]]
    assert [each.observations.tick_id for each in samples] == [0, 1, 2]
    assert {(each.trial_id, bool(each.user_id)) for each in samples} == {("trial", True)}
    first = samples[0]
    shown = first.observations
    # In the order of the classes: p, d1, d2.
    assert [shown.observations[place].content for place in shown.actors_map] == [b"0", b"0", b"other 0"]
    assert all(each.snapshot for each in shown.observations)
    assert [each.content for each in first.actions] == [b"p at 0", b"d1 at 0", b"d2 at 0"]
    assert [(each.value, len(each.feedbacks)) for each in first.rewards] == [(0, 0), (2, 1), (3, 2)]
    assert [(each.actor_id, each.agent_id, each.value) for each in first.rewards[2].feedbacks] == [(2, 1, 2), (2, 1, 4)]
    assert [[each.receiver_id for each in some.messages] for some in first.messages] == [[0], [1], [2], []]
    assert {each.sender_id for some in first.messages for each in some.messages} == {-1}


async def test_an_old_data_log_that_fails_is_tried_again() -> None:
    """It confirms nothing, so what was under way is lost."""
    server = LogServer(refuses=1)
    async with served(server) as endpoint, platform() as opened:
        await play(opened, endpoint)
    assert len(server.streams) == 2
    assert server.streams[-1][0].WhichOneof("msg") == "trial_params"


# Old orchestrators


def old_trial(trial_id: str = "old", ticks: int = 3, *, deltas: bool = False) -> list[pb.DatalogMsg]:
    """Return what an old orchestrator logs of a trial with the actors drone, plane, drone."""
    params = legacy.TrialParams(max_steps=9)
    params.environment.endpoint = "env:1"
    for actor_class, endpoint in (("drone", "a:1"), ("plane", "human"), ("drone", "a:1")):
        params.actors.add(actor_class=actor_class, endpoint=endpoint)
    messages = [pb.DatalogMsg(trial_params=params)]
    for tick_id in range(ticks):
        sample = pb.DatalogSample(trial_id=trial_id, user_id="eve", timestamp=1000 + tick_id)
        seen = sample.observations
        seen.tick_id = tick_id
        for actor_id in range(3):
            whole = not (deltas and tick_id)
            content = b"%d.%d" % (actor_id, tick_id) if whole else b"+"
            seen.observations.add(content=content, snapshot=whole)
            seen.actors_map.append(actor_id)
            sample.actions.add(content=b"act %d" % actor_id)
            reward = sample.rewards.add(value=actor_id, confidence=1)
            if actor_id:
                reward.feedbacks.add(actor_id=actor_id, tick_id=tick_id, value=actor_id, confidence=1, content=b"why")
        collection = sample.messages.add()
        collection.messages.add(sender_id=-1, receiver_id=0, payload={"type_url": "x/y", "value": b"hello"})
        messages.append(pb.DatalogMsg(sample=sample))
    return messages


async def log(opened: Platform, messages: Sequence[pb.DatalogMsg]) -> None:
    with trio.fail_after(60):
        async with opened.channel.call(LOG) as call:
            for message in messages:
                await call.send(message)
            await call.done_sending()
            assert await call.receive() == pb.LogReply()


async def rows(opened: Platform, trial_id: str) -> list[Any]:
    with trio.fail_after(60):
        async with opened.datastore_client().samples([trial_id]) as samples:
            return [sample async for sample in samples]


async def test_the_log_of_an_old_orchestrator_is_stored() -> None:
    async with platform(store="memory:") as opened:
        await log(opened, [*old_trial(), *old_trial("next", 1)])
        stored = await opened.datastore_client().trial("old")
        assert stored is not None
        assert (stored.user_id, stored.ended) == ("eve", True)
        # Names that are made, in the order of the parameters.
        assert stored.actor_names == ["drone_0", "plane_0", "drone_1"]
        found = await rows(opened, "old")
        assert [sample.tick_id for sample in found] == [0, 1, 2]
        for sample in found:
            assert [each.observation_bytes for each in sample.actors.values()] == [
                b"%d.%d" % (actor_id, sample.tick_id) for actor_id in (1, 0, 2)
            ]
            assert [each.action_bytes for each in sample.actors.values()] == [b"act 1", b"act 0", b"act 2"]
            assert [each.reward for each in sample.actors.values()] == [1, None, 2]
            assert [len(each.received_messages) for each in sample.actors.values()] == [0, 1, 0]
        assert len(await rows(opened, "next")) == 1


async def test_deltas_of_a_log_are_applied() -> None:
    def append(before: bytes | None, delta: bytes) -> bytes:
        return (before or b"") + delta

    deltas: dict[str, ApplyDelta] = {"plane": append, "drone": append}
    async with platform(replace(PROFILE, deltas=deltas), store="memory:") as opened:
        await log(opened, old_trial(deltas=True))
        found = await rows(opened, "old")
        assert [sample.actors["plane_0"].observation_bytes for sample in found] == [b"0.0", b"0.0+", b"0.0++"]


async def test_without_a_datastore_there_is_no_log() -> None:
    async with platform() as opened:
        with pytest.raises(RpcError, match="UNIMPLEMENTED"):
            await log(opened, old_trial())


def no_actors_map(messages: list[pb.DatalogMsg]) -> None:
    messages[1].sample.observations.actors_map.pop()


def no_trial_id(messages: list[pb.DatalogMsg]) -> None:
    messages[1].sample.trial_id = ""


def another_trial(messages: list[pb.DatalogMsg]) -> None:
    messages[2].sample.trial_id = "another"


def fewer_actions(messages: list[pb.DatalogMsg]) -> None:
    messages[1].sample.actions.pop()


def another_class(messages: list[pb.DatalogMsg]) -> None:
    messages[0].trial_params.actors[0].actor_class = "ship"


def no_params(messages: list[pb.DatalogMsg]) -> None:
    messages.pop(0)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (no_params, "sample: expected trial_params first"),
        (no_trial_id, "sample.trial_id: expected the id of the trial"),
        (another_trial, "sample.trial_id: expected 'old', or trial_params before it, got 'another'"),
        (no_actors_map, "actors_map: expected one entry for each of 3 actors, got 2"),
        (fewer_actions, "actions: expected one for each of 3 actors, got 2"),
        (another_class, "got 'ship'"),
    ],
)
async def test_nonsense_in_a_log(spoil: Any, text: str) -> None:
    messages = old_trial()
    spoil(messages)
    async with platform(store="memory:") as opened:
        with pytest.raises(RpcError) as caught:
            await log(opened, messages)
        assert text in caught.value.message
