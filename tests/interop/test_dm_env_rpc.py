"""The published library of dm_env_rpc, in an environment of its own: its server, and its client beside ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from tests.interop.processes import HERE, Stage
from trio_cogment.api.dm_env_rpc_bridge_pb2 import BridgeConfig
from trio_cogment.base.errors import StatusCode
from trio_cogment.environments.spec import PLAYER
from trio_cogment.gateways.dm_env_rpc import (
    DM_ENV_RPC_SPEC,
    DmEnvRpcEnvironment,
    DmEnvRpcError,
    State,
    dm_env_rpc_environment,
    open_connection,
)
from trio_cogment.platform import open_platform
from trio_cogment.sdk import ActorSession, Participants, actor_params, trial_params
from trio_cogment.spaces import Observation, decode_observation, encode_action

pytestmark = pytest.mark.interop

SEQUENCES = 10
PROGRAMS = HERE / "dm_env_rpc"


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


@pytest.fixture
def port(stage: Stage, python: str) -> int:
    stage.start("catch", python, str(PROGRAMS / "catch_server.py"), str(stage.folder))
    return stage.port("catch")


def alone(stage: Stage, python: str, port: int) -> list[list[dict[str, Any]]]:
    """Play with the published client; return the time steps of each sequence."""
    file = stage.folder / "alone.json"
    program = [str(PROGRAMS / "play_alone.py"), str(port), str(SEQUENCES), str(file)]
    stage.start("alone", python, *program).may_end = True
    found: list[list[dict[str, Any]]] = stage.record("alone")  # type: ignore[assignment]  # this one is a list
    return found


def paddle(sequence: int, step: int) -> np.int8:
    return np.int8((sequence + step) % 3 - 1)


def test_trials_are_what_the_published_client_sees(stage: Stage, python: str, port: int) -> None:
    seen: list[list[Observation]] = []
    rewards: list[list[float]] = []

    async def play(session: ActorSession[Any, Any, Any]) -> None:
        seen.append([])
        rewards.append([])
        async for event in session.all_events():
            if event.reward is not None:
                rewards[-1].append(event.reward.value)
            if event.observation is None:
                continue
            seen[-1].append(decode_observation(event.observation.payload, copy=True))
            if event.type.name != "ENDING":
                action = paddle(len(seen) - 1, len(seen[-1]))
                await session.do_action(encode_action({"paddle": np.asarray(action)}))

    async def main() -> None:
        participants = Participants(DM_ENV_RPC_SPEC)
        participants.register_environment(dm_env_rpc_environment())
        participants.register_actor(play, "player")
        async with open_platform(participants) as platform:
            params = trial_params(
                [actor_params("catcher", PLAYER, implementation="player", spec=DM_ENV_RPC_SPEC)],
                environment_config=BridgeConfig(server=f"grpc://127.0.0.1:{port}"),
                spec=DM_ENV_RPC_SPEC,
            )
            for _ in range(SEQUENCES):
                with trio.fail_after(30):
                    await platform.controller.wait_trial(await platform.controller.start_trial(params))

    expected = alone(stage, python, port)
    trio.run(main)
    assert [len(steps) for steps in expected] == [10] * SEQUENCES
    for sequence, observations, given in zip(expected, seen, rewards, strict=True):
        assert [found.value["board"].tolist() for found in observations] == [step["board"] for step in sequence]
        assert [found.reward for found in observations] == [step["reward"] for step in sequence]
        assert given == [step["reward"] for step in sequence[1:]]
        kinds = ["LAST" if found.terminated else "MID" for found in observations]
        assert ["FIRST", *kinds[1:]] == [step["type"] for step in sequence]
        assert not any(found.truncated for found in observations)
    assert {sequence[-1]["reward"] for sequence in expected} == {1.0, -1.0}


def test_the_environment_of_dm_env_is_the_adaptor(stage: Stage, python: str, port: int) -> None:
    expected = alone(stage, python, port)
    with DmEnvRpcEnvironment(f"grpc://127.0.0.1:{port}") as environment:
        for number, sequence in enumerate(expected):
            for position, step in enumerate(sequence):
                found = environment.step({"paddle": paddle(number, position)})
                assert found.step_type.name == step["type"]
                assert (found.reward, found.discount) == (step["reward"], step["discount"])
                assert found.observation["board"].tolist() == step["board"]
        assert environment.reset().first()


async def test_requests_of_the_client(port: int) -> None:
    async with open_connection(f"grpc://127.0.0.1:{port}") as connection:
        with pytest.raises(DmEnvRpcError, match="join_world: UNKNOWN: there is no world 'hall'") as refused:
            await connection.join_world("hall")
        assert refused.value.code is StatusCode.UNKNOWN
        world = await connection.create_world()
        specs = await connection.join_world(world)
        assert specs.actions.specs["paddle"].type.name == "int8"
        replies = [await connection.begin_step({"paddle": 1}) for _ in range(1000)]
        states = [(await reply).state for reply in replies]
        assert states == ([State.RUNNING] * 9 + [State.TERMINATED]) * 100
        assert await connection.reset() is specs
        await connection.step()
        await connection.leave_world()
        await connection.destroy_world(world)
