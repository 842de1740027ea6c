"""Changes after sending: whoever changes what was sent or received, nobody else sees it, small payloads and large ones.

The conformance kit holds the channels themselves to it, gRPC-Web and WebSockets among them (`mutation_is_private`).
Here are the ways above them: the messages of a trial, its samples, versions of models, and the gateways: worlds of
dm_env_rpc, REST, the old API, and OpenEnv.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
from google.protobuf.struct_pb2 import Value
from google.protobuf.wrappers_pb2 import BytesValue
from trio.testing import MockClock

from tests.cli.process import listening, served
from tests.gateways.dm_env_rpc.gateway.games import DONE, joined, playing
from tests.gateways.legacy.playing import parameters, staged
from tests.gateways.legacy.servers import AgentServer, EnvironmentServer
from tests.gateways.openenv.games import Walk
from tests.gateways.openenv.games import served as openenv
from tests.gateways.openenv.test_client import Player
from tests.gateways.openenv.test_client import playing as playing_openenv
from tests.gateways.rest import playing as rest
from tests.servers.model_registry.helpers import METHODS, open_harness
from trio_cogment import connect, open_platform
from trio_cogment.api import model_registry_pb2 as pb
from trio_cogment.gateways.dm_env_rpc import Connection
from trio_cogment.gateways.openenv.client import openenv_environment
from trio_cogment.sdk import (
    ActorSession,
    Controller,
    DatastoreClient,
    EnvironmentSession,
    ModelRegistryClient,
    Participants,
    actor_params,
    trial_params,
)
from trio_cogment.sdk.spec import ActorClass, Spec
from trio_cogment.spaces import Box, Observation, encode_observation

#: Below and above every size from which on less is copied.
SIZES = pytest.mark.parametrize("size", [20, 20_000, 300_000], ids=["small", "large", "larger"])
ACTORS = ("ann", "ben", "cat")
TICKS = 4
SPOILED = b"spoiled"


def content(text: str, size: int) -> bytes:
    return text.encode().ljust(size, b".")


def seen_at(tick: int, size: int) -> bytes:
    return content(f"tick {tick}", size)


def done_at(name: str, tick: int, size: int) -> bytes:
    return content(f"{name} at {tick}", size)


class Spoilers:
    """An environment and actors that change whatever they have sent, and whatever they have received.

    Args:
        size: of each payload.
        alone: every actor gets an observation of its own, and not all the same.

    Attributes:
        acted: what the environment got, by tick.
        observed: what each actor got, by tick.
        told: the messages that the first actor got.
        all_observed: every actor has seen the last observation.
    """

    def __init__(self, size: int, alone: bool) -> None:
        self.size = size
        self.alone = alone
        self.acted: list[list[bytes]] = []
        self.observed: dict[str, list[bytes]] = {name: [] for name in ACTORS}
        self.told: list[bytes] = []
        self.all_observed = trio.Event()
        spec = Spec.of(ActorClass("player", observation=BytesValue, action=BytesValue))
        self.participants = Participants(spec)
        self.participants.register_environment(self.environment)
        self.participants.register_actor(self.actor, "player", ["player"])

    async def environment(self, session: EnvironmentSession) -> None:
        sent: list[BytesValue] = []

        def observations() -> list[tuple[str, BytesValue]]:
            tick = len(self.acted)
            for old in sent:
                old.value = SPOILED
            sent[:] = [BytesValue(value=seen_at(tick, self.size)) for _ in ACTORS]
            return [(name, each) for name, each in zip(ACTORS, sent, strict=True)] if self.alone else [("*", sent[0])]

        await session.start(observations())
        for each in sent:
            each.value = SPOILED
        async for event in session.all_events():
            if event.actions is None:
                continue
            self.acted.append([action.payload.value for action in event.actions])
            for action in event.actions:
                action.payload.value = SPOILED
            note = BytesValue(value=seen_at(len(self.acted), self.size))
            await session.send_message(note, "ann")
            note.value = SPOILED
            if len(self.acted) == TICKS:
                await session.end(observations())
            else:
                await session.produce_observations(observations())
            for each in sent:
                each.value = SPOILED

    async def actor(self, session: ActorSession) -> None:
        await session.start()
        async for event in session.all_events():
            if event.message is not None:
                note = BytesValue()
                assert event.message.payload.Unpack(note)
                self.told.append(note.value)
                event.message.payload.value = SPOILED
            if event.observation is not None:
                payload = event.observation.payload
                self.observed[session.name].append(payload.value)
                if all(len(seen) == TICKS + 1 for seen in self.observed.values()):
                    self.all_observed.set()
                payload.value = SPOILED
                action = BytesValue(value=done_at(session.name, event.tick_id, self.size))
                await session.do_action(action)
                action.value = SPOILED

    async def play(self, controller: Controller, endpoint: str) -> str:
        actors = [actor_params(name, "player", endpoint=endpoint) for name in ACTORS]
        trial_id = await controller.start_trial(trial_params(actors, environment_endpoint=endpoint))
        await controller.wait_trial(trial_id)
        return trial_id

    async def check(self, store: DatastoreClient, trial_id: str) -> None:
        size = self.size
        observed = [seen_at(tick, size) for tick in range(TICKS + 1)]
        acted = [[done_at(name, tick, size) for name in ACTORS] for tick in range(TICKS)]
        assert self.acted == acted
        assert self.observed == dict.fromkeys(ACTORS, observed)
        assert self.told == observed[1:]
        # Who reads may change what it has read, and others read the same as ever.
        for _ in range(2):
            samples = [sample async for sample in store.samples(trial_id)]
            for tick, sample in enumerate(samples):
                for name in ACTORS:
                    actor = sample.actors[name]
                    assert actor.observation.value == observed[tick]
                    actor.observation.value = SPOILED
                    if tick < TICKS:
                        assert actor.action is not None
                        assert actor.action.value == acted[tick][ACTORS.index(name)]
                        actor.action.value = SPOILED
                for index in range(len(sample.message.payloads)):
                    sample.message.payloads[index] = SPOILED
            assert len(samples) == TICKS + 1


@asynccontextmanager
async def everything_here(spoilers: Spoilers, store: str) -> AsyncIterator[tuple[Controller, str, DatastoreClient]]:
    async with open_platform(spoilers.participants, store=store) as platform:
        yield platform.controller, "cogment://discover", platform.datastore_client()


@asynccontextmanager
async def over_sockets(spoilers: Spoilers, store: str) -> AsyncIterator[tuple[Controller, str, DatastoreClient]]:
    async with (
        open_platform(store=store) as platform,
        listening(*platform.services) as endpoint,
        served(spoilers.participants) as participants,
        connect(endpoint, spec=spoilers.participants.spec) as client,
    ):
        yield await client.controller(), participants, await client.datastore()


@SIZES
@pytest.mark.parametrize("alone", [False, True], ids=["shared", "of their own"])
@pytest.mark.parametrize("store", ["memory:", "sqlite"])
@pytest.mark.parametrize("way", [everything_here, over_sockets])
async def test_nobody_in_a_trial_sees_what_others_change(
    way: Any, store: str, alone: bool, size: int, tmp_path: Path
) -> None:
    spoilers = Spoilers(size, alone)
    where = store if store == "memory:" else f"sqlite:{tmp_path / 'trials.db'}"
    with trio.fail_after(60):
        async with way(spoilers, where) as (controller, endpoint, reader):
            trial_id = await spoilers.play(controller, endpoint)
            await spoilers.all_observed.wait()
            await spoilers.check(reader, trial_id)


@SIZES
async def test_nobody_in_a_world_of_dm_env_rpc_sees_what_others_change(size: int, autojump_clock: MockClock) -> None:
    space = Box(0, 255, (size,), "uint8")

    def shown(step: int) -> bytes:
        spaces: dict[str, Any] = {} if step else {"observation_space": space, "action_space": DONE}
        value = np.full(size, step, "uint8")
        encoded: bytes = encode_observation(Observation(value, **spaces), space).SerializeToString()
        value[:] = 99
        return encoded

    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", shown(0))])
        step = 0
        async for event in session.all_events():
            if event.actions is not None:
                step += 1
                await session.produce_observations([("*", shown(step))])

    async def one(agent: Connection, step: int, found: list[Any]) -> None:
        action = np.array(step)
        found.append((await agent.step({"action": action})).observations["observation"])
        action[...] = 7

    async with playing(environment, ACTORS[:2]) as platform, joined(platform, *ACTORS[:2]) as agents:
        for step in range(3):
            found: list[Any] = []
            async with trio.open_nursery() as nursery:
                for agent in agents:
                    nursery.start_soon(one, agent, step, found)
            for each in found:
                assert np.array_equal(each, np.full(size, step, "uint8"))
                if each.flags.writeable:
                    each[:] = 77


@SIZES
@pytest.mark.parametrize("archived", [False, True], ids=["transient", "archived"])
@pytest.mark.parametrize("wire", [False, True], ids=["in process", "http/2"])
async def test_a_version_is_what_was_sent(wire: bool, archived: bool, size: int, autojump_clock: MockClock) -> None:
    pieces = [content(f"piece {number}", size) for number in range(3)]
    async with open_harness(wire=wire) as registry:
        client = ModelRegistryClient(registry.channel)
        await client.create_model("m")
        info = pb.ModelVersionInfo(model_id="m", archived=archived, data_size=3 * size)
        chunk = pb.CreateVersionRequestChunk(header=pb.CreateVersionRequestChunk.Header(version_info=info))
        async with registry.channel.call(METHODS["CreateVersion"]) as call:
            await call.send(chunk)
            for piece in pieces:
                chunk.body.data_chunk = piece  # one message for all of them
                await call.send(chunk)
                chunk.body.data_chunk = SPOILED
            await call.done_sending()
            number = (await call.receive()).version_info.version_number
        for _ in range(2):
            got = b""
            async with registry.channel.call(METHODS["RetrieveVersionData"]) as call:
                await call.send(pb.RetrieveVersionDataRequest(model_id="m", version_number=number))
                await call.done_sending()
                async for reply in call:
                    got += reply.data_chunk
                    reply.data_chunk = SPOILED
            assert got == b"".join(pieces)


@SIZES
@pytest.mark.parametrize("view", [False, True], ids=["bytearray", "memoryview"])
@pytest.mark.parametrize("wire", [False, True], ids=["in process", "http/2"])
async def test_a_buffer_may_be_used_again_for_each_piece(
    wire: bool, view: bool, size: int, autojump_clock: MockClock
) -> None:
    async with open_harness(wire=wire) as registry:
        client = ModelRegistryClient(registry.channel)
        buffer = bytearray(size)

        async def pieces() -> AsyncIterator[Any]:
            for number in range(20):
                buffer[:] = bytes([number]) * size
                yield memoryview(buffer) if view else buffer
                buffer[:] = b"!" * size

        info = await client.store("m", pieces(), size=20 * size)
        expected = b"".join(bytes([number]) * size for number in range(20))
        assert await client.retrieve("m") == (info, expected)


@SIZES
async def test_nobody_behind_requests_sees_what_others_change(size: int, autojump_clock: MockClock) -> None:
    """The JSON that one caller got is its own, and the environment changes what it has sent and received."""
    heard: list[str] = []

    async def environment(session: EnvironmentSession) -> None:
        shown = rest.observation(0)
        await session.start([("*", shown)])
        shown.step = 99
        async for event in session.all_events():
            if event.message is not None:
                note = Value()
                event.message.payload.Unpack(note)
                event.message.payload.value = SPOILED
                heard.append(note.string_value)
                await session.send_message(note, "*")
                note.string_value = "spoiled"
            if event.actions is not None:
                assert [action.payload.number for action in event.actions] == [event.tick_id, event.tick_id + 10]
                for action in event.actions:
                    action.payload.number = 99
                shown.step = event.tick_id + 1
                await session.produce_observations([("*", shown)])
                shown.step = 99

    def note(tick: int) -> str:
        return seen_at(tick, size).decode()

    actors = [{"name": name, "actor_class": "player", "implementation": "web"} for name in ACTORS[:2]]
    async with rest.opened_proxy(environment) as (proxy, _):
        await proxy.start_trial(rest.ME, rest.start_body(trial_id="t", actors=actors))
        joined: dict[str, Any] = {}

        async def join(name: str) -> None:
            joined[name] = await proxy.join(rest.ME, "t", name)

        async with trio.open_nursery() as nursery:
            for name in ACTORS[:2]:
                nursery.start_soon(join, name)
        tokens = {name: each["token"] for name, each in joined.items()}
        for tick in range(TICKS):
            found: dict[str, Any] = {}

            async def act(name: str, tick: int = tick, found: dict[str, Any] = found) -> None:
                said = [{"receiver": "env", "payload": note(tick)}] if name == "ann" else []
                body = rest.act_body(tick + 10 * (name == "ben"), messages=said)
                found[name] = await proxy.act(rest.holding(tokens[name]), "t", name, tick, body)

            for reply in joined.values():
                assert reply["observation"] == {"step": tick}
                reply["observation"]["step"] = 99
            async with trio.open_nursery() as nursery:
                for name in ACTORS[:2]:
                    nursery.start_soon(act, name)
            for reply in found.values():
                for message in reply.get("messages", ()):
                    assert message["payload"] in map(note, range(TICKS))
                    message["payload"] = "spoiled"
            joined = found
        assert heard == [note(tick) for tick in range(TICKS)]


@SIZES
async def test_nobody_beside_old_participants_sees_what_they_change(size: int, autojump_clock: MockClock) -> None:
    """Old servers change what they got as soon as they have seen it, and what they have sent."""
    seen: list[bytes] = []
    acted: list[list[bytes]] = []
    sent: list[Any] = []

    async def agent(method: str, request: Any) -> None:
        if method == "Decide":
            seen.append(request.observation.data.content)
            request.observation.data.content = done_at("p", len(seen) - 1, size)

    async def ground(method: str, request: Any) -> None:
        for reply in sent:
            for shown in reply.observation_set.observations:
                shown.content = SPOILED
        sent.clear()
        if method == "Update":
            acted.append(list(request.action_set.actions))
            for index in range(len(request.action_set.actions)):
                request.action_set.actions[index] = SPOILED

    def alter(reply: Any, trial_id: str) -> None:
        for shown in reply.observation_set.observations:
            shown.content = seen_at(reply.observation_set.tick_id, size)
        sent.append(reply)

    agents = AgentServer(before=agent)
    environments = EnvironmentServer(ends_at=TICKS, alter=alter, before=ground)
    async with staged(agents, environments) as stage:
        await stage.play(parameters(old=("p",), environment="old"))
        for name in ("d1", "d2"):
            assert stage.newcomer.observations(name) == [seen_at(tick, size) for tick in range(TICKS + 1)]
    assert seen == [seen_at(tick, size) for tick in range(TICKS)]
    assert acted == [
        [done_at("p", tick, size).upper(), *(b"%s at %d" % (name, tick) for name in (b"d1", b"d2"))]
        for tick in range(TICKS)
    ]


class OneBuffer(Walk):
    """A game whose observations are all one array, and that changes the actions it gets."""

    def __init__(self, size: int, acted: list[bytes]) -> None:
        super().__init__()
        self.acted = acted
        self.shown = np.zeros(size, "uint8")
        self.observation_spaces = {"player_0": Box(0, 255, (size,), "uint8")}
        self.action_spaces = {"player_0": Box(0, 255, (size,), "uint8")}

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        self.shown[:] = 0
        return {"player_0": Observation(self.shown)}

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        action = actions["player_0"]
        self.acted.append(bytes(action))
        if action.flags.writeable:
            action[:] = 66
        self.shown[:] = len(self.acted)
        self.over = len(self.acted) == TICKS
        return {"player_0": Observation(self.shown, terminated=self.over)}


@SIZES
async def test_nobody_at_openenv_sees_what_others_change(size: int) -> None:
    acted: list[bytes] = []
    told: list[bytes] = []

    def act(observation: Observation) -> Any:
        told.append(bytes(observation.value))
        answer[:] = len(told)
        if observation.value.flags.writeable:
            observation.value[:] = 77
        return answer

    answer = np.zeros(size, "uint8")
    player = Player(act)
    async with (
        openenv(partial(OneBuffer, size, acted)) as (server, _),
        playing_openenv(openenv_environment(server.url), player) as play,
    ):
        await play()
    assert told == [bytes([tick]) * size for tick in range(TICKS)]
    assert acted == [bytes([tick + 1]) * size for tick in range(TICKS)]
    assert bytes(player.observations[-1].value) == bytes([TICKS]) * size
