"""Worlds of the gateway, as the published library of dm_env_rpc sees them; its server, and its tests of servers."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import trio
from google.protobuf.wrappers_pb2 import StringValue

from tests.gateways.dm_env_rpc.servers import served
from tests.interop.dm_env_rpc_worlds import Catch, Everything, Numbers
from tests.interop.processes import HERE, Stage, check_errors
from trio_cogment._version import __version__
from trio_cogment.api.common_pb2 import ActorParams
from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.environments.serving import environment
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.gateways.dm_env_rpc import DM_ENV_RPC_SPEC, dm_env_rpc_environment
from trio_cogment.gateways.dm_env_rpc.gateway.gateway import DmEnvRpcGateway
from trio_cogment.gateways.dm_env_rpc.gateway.profile import Profile
from trio_cogment.gateways.dm_env_rpc.gateway.templates import WorldTemplate
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.sdk import (
    ActorImplementation,
    ActorSession,
    EnvironmentImplementation,
    Participants,
    actor_params,
    trial_params,
)
from trio_cogment.sdk.spec import Spec
from trio_cogment.spaces import decode_action, decode_observation, encode_action

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

PROGRAMS = HERE / "dm_env_rpc"
#: The library's tests: 5 of creating and destroying worlds, 11 of joining and leaving, 3 and 3 of resets, 18 of steps;
#: then dm_env's 4, and one of this project.
COMPLIANCE_TESTS = 40
ALL_TESTS = COMPLIANCE_TESTS + 5
SEEDS = 10


@pytest.fixture(scope="module")
def python() -> str:
    found = os.environ.get("TRIO_COGMENT_DM_ENV_RPC_PYTHON")
    if found is None:
        pytest.fail("TRIO_COGMENT_DM_ENV_RPC_PYTHON is not set; `nox -s interop` makes the environment and sets it")
    return found


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as found:
        yield found


def ran(stage: Stage, python: str, program: str, *arguments: str) -> Any:
    """Run a program of the published library; return what it has recorded."""
    name = Path(program).stem
    file = stage.folder / f"{name}.json"
    file.unlink(missing_ok=True)
    process = stage.start(name, python, str(PROGRAMS / program), *arguments, str(file))
    process.may_end = True
    stage.until(f"the record of {program}", lambda: file.exists() or process.returncode, 60)
    if not file.exists():
        stage.fail(f"{program} ended with {process.returncode}")
    return json.loads(file.read_text())


@asynccontextmanager
async def gateway(
    world: EnvironmentImplementation,
    spec: Spec = RL_SPEC,
    *,
    clients: Collection[str] = (SINGLE_AGENT,),
    friend: ActorImplementation | None = None,
    others: Sequence[ActorParams] = (),
    required_settings: Collection[str] = (),
    **policies: Any,
) -> AsyncIterator[tuple[Platform, int]]:
    """Serve a gateway on a real socket, with clients and maybe service actors in its trials; yield platform, port."""
    participants = Participants(spec)
    participants.register_environment(world)
    actors = [actor_params(name, PLAYER, endpoint="cogment://client", spec=spec) for name in clients]
    if friend is not None:
        participants.register_actor(friend, "friend")
        actors.append(actor_params("friend", PLAYER, implementation="friend", spec=spec))
    params = trial_params([*actors, *others], datalog_endpoint="cogment://discover", spec=spec)
    template = WorldTemplate(params=params, **policies)
    profile = Profile(templates={"default": template}, spec=spec, required_settings=required_settings)
    async with (
        open_platform(participants, store="memory:", extensions=[DmEnvRpcGateway(profile)]) as platform,
        trio.open_nursery() as nursery,
    ):
        server: Any = await nursery.start(serve, platform.services, await open_listeners("127.0.0.1"))
        yield platform, server.port
        nursery.cancel_scope.cancel()


def test_the_compliance_tests_notice_what_a_server_lacks(stage: Stage, python: str) -> None:
    stage.start("catch", python, str(PROGRAMS / "catch_server.py"), str(stage.folder))
    found = ran(stage, python, "compliance.py", str(stage.port("catch")), '{"invalid_create": {"nonsense": 1}}')
    # It takes any setting, has one world, knows no reset of a world, and does not mind who has joined.
    assert sorted(found["failed"]) == [
        "CreateDestroyWorld.test_cannot_create_world_with_invalid_settings",
        "CreateDestroyWorld.test_world_name_is_unique",
        "JoinLeaveWorld.test_cannot_join_world_twice",
        "Reset.test_cannot_reset_if_not_joined_to_world",
        "ResetWorld.test_can_reset_world_not_joined_to",
        "ResetWorld.test_can_reset_world_when_joined_to_it",
    ]
    assert len(found["passed"]) == ALL_TESTS - 6


@pytest.mark.parametrize("game", [Catch, Everything])
async def test_compliance(stage: Stage, python: str, game: type[Catch | Everything]) -> None:
    options = {
        "create": {"seed": 3},
        "invalid_create": {"nonsense": 1, "max_steps": "many", "start_when": 7, "world_name": ""},
        "invalid_join": {"actor_name": "nobody", "actor_class": "judge", "nonsense": 1.5},
        "reset": {"seed": 4},
        "reset_world": {"seed": 5},
    }
    async with gateway(environment(game), required_settings=["seed"]) as (platform, port):
        found = await trio.to_thread.run_sync(ran, stage, python, "compliance.py", str(port), json.dumps(options))
        assert found["failed"] == {}
        assert len(found["passed"]) == ALL_TESTS
        for info in await platform.controller.trial_infos():
            await platform.controller.wait_trial(info.trial_id, check=False)


async def test_a_thousand_steps_are_pipelined(stage: Stage, python: str) -> None:
    stage.start("catch", python, str(PROGRAMS / "catch_server.py"), str(stage.folder))
    steps = "1000"

    def played(port: int) -> Any:
        return ran(stage, python, "pipelined.py", str(port), steps)

    expected = await trio.to_thread.run_sync(played, stage.port("catch"))
    async with gateway(environment(Catch)) as (_, port):
        found = await trio.to_thread.run_sync(played, port)
    assert len(found["replies"]) == 1000
    assert found["replies"] == expected["replies"]
    assert found["most waiting"] > 64


async def test_properties(stage: Stage, python: str) -> None:
    heard: list[object] = []

    async def friend(session: ActorSession[Any, Any, Any]) -> None:
        async for event in session.all_events():
            if event.reward is not None:
                # Those of the environment are of no interest here.
                senders = {source.sender_name: source.value for source in event.reward.sources}
                heard.extend([senders[SINGLE_AGENT]] if SINGLE_AGENT in senders else [])
            if event.message is not None:
                text = StringValue()
                assert event.message.payload.Unpack(text)
                heard.append(text.value)
                await session.send_message(StringValue(value="hello yourself"), SINGLE_AGENT)
            if event.observation is not None:
                await session.do_action(encode_action({"paddle": np.asarray(np.int8(0))}))

    def made() -> Catch:
        return Catch((SINGLE_AGENT, "friend"))

    async with gateway(environment(made), friend=friend) as (_, port):
        found = await trio.to_thread.run_sync(ran, stage, python, "properties.py", str(port))
    assert found == {
        "version": __version__,
        "before": ["server", "worlds"],
        "world": "plaza",
        "worlds": ["plaza"],
        "joined": ["feedback", "messages", "reward", "server", "trial", "worlds"],
        "trial": "plaza.1",
        "actors": [SINGLE_AGENT, "friend"],
        "feedback": [False, True, False, "float32"],
        "ticks": [1, 2, 3],
        "message": "type.googleapis.com/cogmentAPI.Message",
        "unknown": "KeyError",
        "not readable": "PermissionError",
        "not writable": "PermissionError",
        "not listable": "ValueError",
        "wrong value": "ValueError",
    }
    assert sorted(heard, key=str) == [2.0, "hello"]


class Heard(NamedTuple):
    """What an agent of `Numbers` saw at a tick, what it did, and its rewards since the last one, with their ticks."""

    seen: list[int]
    number: int | None
    rewards: list[list[float]]


def of_library(played: Any) -> dict[tuple[str, int], Heard]:
    """Return what `play_numbers.py` has recorded, by trial and tick."""
    return {
        (sequence["trial"], tick): Heard(step["seen"], step["number"], [[tick - 1, step["reward"]]] if tick else [])
        for sequence in played
        for tick, step in enumerate(sequence["steps"])
    }


async def test_agents_of_three_kinds_and_the_datastore_agree(
    stage: Stage, python: str, foreign_python: str, rl_project: Path
) -> None:
    """One of dm_env_rpc, one of the published SDK and one of this project, in processes of their own."""
    heard: dict[tuple[str, int], Heard] = {}

    async def friend(session: ActorSession[Any, Any, Any]) -> None:
        rewards: list[list[float]] = []
        async for event in session.all_events():
            if event.reward is not None:
                rewards.append([event.reward.tick_id, event.reward.value])
            if event.observation is None:
                continue
            seen = decode_observation(event.observation.payload, copy=True).value.tolist()
            number = None if event.type.name == "ENDING" else (sum(seen) * 9 + 4) % 10
            heard[session.trial_id, event.observation.tick_id] = Heard(seen, number, rewards)
            rewards = []
            if number is not None:
                # What others give is part of the reward, too.
                await session.add_reward(number / 4, 1.0, [SINGLE_AGENT, "foreign"], tick_id=event.observation.tick_id)
                await session.do_action(encode_action(np.int64(number)))

    process = stage.start("numbers", foreign_python, str(rl_project / "numbers_agent.py"), str(stage.folder))
    endpoint = f"grpc://127.0.0.1:{await trio.to_thread.run_sync(stage.port, 'numbers')}"
    foreign = actor_params("foreign", PLAYER, endpoint=endpoint, implementation="numbers", spec=RL_SPEC)
    names = (SINGLE_AGENT, "friend", "foreign")
    async with gateway(environment(lambda: Numbers(*names)), friend=friend, others=[foreign]) as (platform, port):
        played = await trio.to_thread.run_sync(ran, stage, python, "play_numbers.py", str(port), "3")
        assert [sequence["trial"] for sequence in played] == ["numbers.1", "numbers.2", "numbers.3"]
        stored: dict[tuple[str, int], Any] = {}
        for trial in [sequence["trial"] for sequence in played]:
            await platform.controller.wait_trial(trial)
            with trio.fail_after(10):
                stored |= {
                    (trial, each.tick_id): each
                    async for each in platform.datastore_client().samples(trial, follow=True)
                }
    check_errors(stage, process)
    lines = [json.loads(line) for line in (stage.folder / "numbers.lines").read_text().splitlines()]
    told = {
        SINGLE_AGENT: of_library(played),
        "friend": heard,
        "foreign": {(trial, tick): Heard(seen, number, rewards) for trial, tick, seen, number, rewards in lines},
    }
    # Each trial has one tick more than the one before: they are episodes of one environment object.
    assert [tick for _, tick in stored] == [*range(6), *range(7), *range(8)]
    assert {len({each.number for each in found.values()}) > 3 for found in told.values()} == {True}
    spaces = Numbers(*names)
    for name in names:
        expected = {}
        for (trial, tick), sample in stored.items():
            actor = sample.actors[name]
            seen = decode_observation(actor.observation, spaces.observation_spaces[name]).value.tolist()
            number = None if actor.action is None else int(decode_action(actor.action, spaces.action_spaces[name]))
            rewards = [[tick - 1, stored[trial, tick - 1].actors[name].reward]] if tick else []
            expected[trial, tick] = Heard(seen, number, rewards)
        assert told[name] == expected, name


def bridged(port: int, **settings: Any) -> EnvironmentImplementation:
    return dm_env_rpc_environment(f"grpc://127.0.0.1:{port}", **settings)


async def test_a_gateway_over_a_bridge_loses_nothing(stage: Stage, python: str) -> None:
    stage.start("catch", python, str(PROGRAMS / "catch_server.py"), str(stage.folder))
    catch = stage.port("catch")

    def played(port: int) -> Any:
        return ran(stage, python, "play_alone.py", str(port), str(SEEDS))

    expected = await trio.to_thread.run_sync(played, catch)
    async with gateway(bridged(catch), DM_ENV_RPC_SPEC) as (_, port):
        found = await trio.to_thread.run_sync(played, port)
    # Each sequence of the server has another seed.
    assert len({str(sequence[0]["board"]) for sequence in expected}) > 1
    assert [len(sequence) for sequence in expected] == [10] * SEEDS
    assert found == expected


async def test_two_agents_on_a_server_for_two(stage: Stage, python: str) -> None:
    async def played(port: str, create: Any, join: Any) -> Any:
        common = {"actions": [{"number": 5}, {"number": 2}], "observations": ["last", "reward"], "sequences": 3}
        options = json.dumps({**common, "create": create, "join": join})
        return await trio.to_thread.run_sync(ran, stage, python, "play_together.py", port, options)

    async def through_a_gateway(url: str, create: dict[str, Any]) -> Any:
        slots = {name: {"slot": slot} for slot, name in enumerate(("left", "right"))}
        bridge = dm_env_rpc_environment(url, create_settings=create, actor_join_settings=slots)
        async with gateway(bridge, DM_ENV_RPC_SPEC, clients=("left", "right")) as (_, port):
            return await played(str(port), {}, [{"actor_name": "left"}, {"actor_name": "right"}])

    async with served() as (url, _, _):
        create = {"game": "duel", "options.length": 3}
        expected = await played(url.rpartition(":")[2], create, [{"slot": 0}, {"slot": 1}])
        assert await through_a_gateway(url, create) == expected
        # Here the one is out before the other, which the server's own clients have to wait for.
        left, right = await through_a_gateway(url, {"game": "duel"})
    for player, (seen, end) in enumerate(zip(expected, ("INTERRUPTED", "TERMINATED"), strict=True)):
        rewards = [0.0, *[(3.0, -3.0)[player]] * 3]
        assert [state for state, _ in seen] == ["RUNNING", "RUNNING", "RUNNING", end] * 3
        assert [observation["reward"] for _, observation in seen] == rewards * 3
    assert [state for state, _ in left] == ["RUNNING", "RUNNING", "INTERRUPTED"] * 3
    assert [state for state, _ in right] == [*["RUNNING"] * 4, "TERMINATED"] * 3
    assert [observation["last"] for _, observation in left] == [[0, 0], [5, 2], [5, 2]] * 3
    assert [observation["last"] for _, observation in right] == [[0, 0], [5, 2], [5, 2], [0, 2], [0, 2]] * 3
