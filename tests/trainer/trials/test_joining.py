"""Trials of other protocols that join external runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio
from google.protobuf.json_format import ParseDict

from tests.gateways.dm_env_rpc.gateway.worlds import game_params
from tests.gateways.dm_env_rpc.servers import served
from tests.gateways.legacy.clients import OldClient, with_clients
from tests.gateways.legacy.playing import Field, Newcomer
from tests.gateways.legacy.servers import PROFILE
from tests.rl.runner.worlds import countdown
from tests.trainer.bench import INLINE, Client
from tests.trainer.dispatch.programs import until
from tests.trainer.trials.test_starter import people
from tests.trainer.trials.worlds import PARAMS
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.spaces_pb2 import Observation
from trio_cogment.api.trainer.trainer_pb2 import RunStep
from trio_cogment.base.config import TrainerConfig
from trio_cogment.gateways.dm_env_rpc import DM_ENV_RPC_SPEC, dm_env_rpc_environment, open_connection
from trio_cogment.gateways.dm_env_rpc.gateway.gateway import DmEnvRpcGateway
from trio_cogment.gateways.dm_env_rpc.gateway.profile import Profile
from trio_cogment.gateways.legacy import LegacyGateway
from trio_cogment.platform import open_platform
from trio_cogment.rpc import InProcessChannel
from trio_cogment.sdk import EnvironmentSession, Participants
from trio_cogment.trainer import PlatformTrainer, Where

EXTERNAL: dict[str, Any] = {"entry_point": "external"}


async def episodes_of(client: Client, run_id: str, count: int) -> list[Any]:
    """Return the first episodes of a run, as they come."""
    found: list[Any] = []
    with trio.fail_after(20):
        async with client.stream(run_id, kind="Episodes") as call:
            while len(found) < count:
                found.append(await call.receive())
    return found


def a_trainer(folder: Path) -> PlatformTrainer:
    return PlatformTrainer(folder, full=False, host=INLINE)


async def test_a_world_of_dm_env_rpc_joins_a_run(tmp_path: Path) -> None:
    params = game_params()
    params.datalog.endpoint = "cogment://discover"
    gateway = DmEnvRpcGateway(Profile.of(params, spec=DM_ENV_RPC_SPEC))
    async with served() as (url, _, _):
        participants = Participants(DM_ENV_RPC_SPEC)
        participants.register_environment(dm_env_rpc_environment(url))
        async with (
            open_platform(participants, store="memory:", extensions=[gateway, a_trainer(tmp_path)]) as platform,
            open_connection(platform.channel) as connection,
        ):
            client = Client(platform.channel)
            await client.submit("r", **EXTERNAL)
            world = await connection.create_world({"run_id": "r"})
            await connection.join_world(world)
            rewards = []
            for _ in range(2):
                total, step = 0.0, await connection.step()
                while not step.last:
                    step = await connection.step({"paddle": 1})
                    total += float(step.observations["reward"])
                rewards.append(total)
            await connection.leave_world()
            await connection.destroy_world(world)
            episodes = await episodes_of(client, "r", 2)
            assert [json.loads(one.metadata_json)["trial_id"] for one in episodes] == [f"{world}.1", f"{world}.2"]
            assert [one.total_reward for one in episodes] == rewards
            assert await client.status("r") == "EXEC"
            await client.cancel("r")
            async with client.stream("r") as call:
                steps = [step async for step in call]
            for number, episode in enumerate(episodes):
                mine = [step for step in steps if step.episode_index == number]
                assert sum(step.reward for step in mine) == episode.total_reward
                assert len(mine) == episode.steps + 1 > 2


async def test_a_trial_of_an_old_client_joins_a_run(tmp_path: Path) -> None:
    newcomer, ground = Newcomer(), Field(3)
    participants = Participants()
    participants.register_actor(newcomer.play, "today")
    participants.register_environment(ground.play, "today")
    params = with_clients()
    params.datalog.endpoint = "cogment://discover"
    params.properties["run_id"] = "r"
    gateway = LegacyGateway(replace(PROFILE, params=params))
    async with open_platform(participants, store="memory:", extensions=[gateway, a_trainer(tmp_path)]) as platform:
        client = Client(platform.channel)
        await client.submit("r", **EXTERNAL)
        old = OldClient(platform.channel)
        with trio.fail_after(20):
            trial_id = (await old.start()).trial_id
        episodes = await episodes_of(client, "r", 3)
        assert {json.loads(one.metadata_json)["trial_id"] for one in episodes} == {trial_id}
        assert {one.agent_id for one in episodes} == {actor.name for actor in params.actors}
        await client.cancel("r")
        assert len(await client.all_of("r")) == sum(one.steps + 1 for one in episodes)


async def test_a_worker_of_an_external_run_keeps_its_session(tmp_path: Path) -> None:
    async with open_platform(people(), store="memory:", extensions=[a_trainer(tmp_path)]) as platform:
        client = Client(platform.channel)
        await client.submit("r", **EXTERNAL)
        token = await client.register("r", worker_id="")
        await platform.controller.start_trial(joining(), trial_id="r-ep000004")
        (episode,) = await episodes_of(client, "r", 1)
        assert episode.episode_index == 4
        assert (await client.publish([RunStep(run_id="r")], token=token)).accepted == 1


async def test_the_trials_of_an_external_run_end_with_it(tmp_path: Path) -> None:
    endless = people(countdown(10_000_000))
    async with open_platform(endless, store="memory:", extensions=[a_trainer(tmp_path)]) as platform:
        client = Client(platform.channel)
        await client.submit("r", **EXTERNAL)
        await platform.controller.start_trial(joining(), trial_id="r-ep0")
        await platform.controller.start_trial(joining(), trial_id="other")
        await until(client, "r", "EXEC")
        with trio.fail_after(20):
            await client.cancel("r")
        infos: Any = await platform.controller.trial_infos()
        assert {info.trial_id: info.state == TrialState.ENDED for info in infos} == {"r-ep0": True, "other": False}


async def test_a_run_is_alive_while_a_trial_of_it_goes_on(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async def waits(session: EnvironmentSession[Any, Any, Any]) -> None:
        await session.start([("*", Observation(active=True, alive=True))])
        await trio.sleep(300)
        await session.end([("*", Observation(terminated=True))])

    trainer = PlatformTrainer(tmp_path, full=False, config=TrainerConfig(heartbeat_timeout_seconds=30), host=INLINE)
    async with open_platform(people(waits), store="memory:", extensions=[trainer]) as platform:
        client = Client(platform.channel)
        await client.submit("r", **EXTERNAL)
        await platform.controller.start_trial(joining(), trial_id="r-ep0")
        await trio.sleep(250)
        assert await client.status("r") in ("RDY", "EXEC")
        await trio.sleep(150)
        assert (await client.record("r")).failure_reason == "worker_timeout"


async def test_after_a_restart_only_new_trials_join(tmp_path: Path) -> None:
    async with open_platform(people(), store="memory:") as platform:
        where = Where(platform.channel, platform.datastore_client(), "cogment://discover", platform.participants.spec)
        for start in (0, 1):
            async with a_trainer(tmp_path).opened(where) as opened, InProcessChannel(opened.services) as channel:
                client = Client(channel)
                if not start:
                    await client.submit("r", **EXTERNAL)
                await trio.testing.wait_all_tasks_blocked(0.01)  # trials that are there now are known
                await platform.controller.start_trial(joining(), trial_id=f"r-ep{start}")
                episodes = await episodes_of(client, "r", start + 1)
                assert [one.episode_index for one in episodes] == [*range(start + 1)]
                await opened.stop()


def joining() -> TrialParams:
    return ParseDict({**PARAMS, "datalog": {"endpoint": "cogment://discover"}}, TrialParams())
