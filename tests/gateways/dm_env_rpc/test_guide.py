"""The guide's code runs as it is printed."""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.gateways.dm_env_rpc.servers import Catch, served, serving
from trio_cogment.api.dm_env_rpc_bridge_pb2 import BridgeConfig
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.cli.services.default_params import ParamsSettings, load_default_params
from trio_cogment.gateways.dm_env_rpc import FieldAnnotation, State, load_profile, open_connection
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.choice import make_mapping
from trio_cogment.gateways.dm_env_rpc.gateway.properties import TABLE
from trio_cogment.gateways.dm_env_rpc.gateway.templates import POLICIES
from trio_cogment.platform import open_platform
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.sdk import actor_params, trial_params

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "dm-env-rpc.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == GUIDE.count("```") // 2 - GUIDE.count("```yaml") == 6
    for block in blocks:
        exec(block, found)
    return found


async def test_the_client(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    async with served() as (url, server, _):
        assert abs(await names["play"](url)) == 0.1
        assert capsys.readouterr().out == "['paddle'] ['board', 'ball.column', 'reward']\n"
        assert server.worlds == {}
        async with open_connection(url) as connection:
            await connection.join_world(await connection.create_world())
            steps = await names["open_loop"](connection, [{"paddle": 0}] * 3)
            assert [step.state for step in steps] == [State.RUNNING] * 3


def test_the_environment_of_dm_env(names: dict[str, Any]) -> None:
    with serving() as (url, _):
        assert abs(names["score"](url)) == 0.1


async def test_the_gateway(names: dict[str, Any]) -> None:
    async with served() as (url, server, _):
        participants = names["participants_of"](url)
        assert await names["length"](participants) == Catch.ROWS
        assert server.log[:3] == ["create_world", "join_world", "reset"]


def test_the_parameter_file(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)[0])
    settings = ParamsSettings(params=path, legacy=None, hooks=False, discovery=False, datastore=False)
    params = load_default_params(settings, None)
    assert params is not None
    found = BridgeConfig.FromString(params.environment.config.content)
    assert found == BridgeConfig(server="grpc://localhost:9010", seed=7, end_when=BridgeConfig.ANY)
    path.write_text("spec: rl\ntrial_params: {environment: {config: {seed: 8}}}\n")
    params = load_default_params(settings, None)
    assert params is not None
    assert EnvironmentConfig.FromString(params.environment.config.content).seed == 8


def test_the_profile(tmp_path: Path) -> None:
    text = re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)[1]
    (tmp_path / "profile.yaml").write_text(text)
    client = '{name: ann, actor_class: player, endpoint: "cogment://client"}'
    (tmp_path / "duel.yaml").write_text(f"trial_params: {{actors: [{client}]}}")
    (tmp_path / "rooms.proto").write_text('syntax = "proto3"; message Rooms { int32 rooms = 1; uint64 seed = 2; }')
    (tmp_path / "cogment.yaml").write_text("import: {proto: [rooms.proto]}\nenvironment: {config_type: Rooms}\n")
    profile = load_profile(tmp_path / "profile.yaml")
    assert [list(template.slots) for template in profile.templates.values()] == [["ann"], ["hero"]]
    assert {template.step_timeout_seconds for template in profile.templates.values()} == {30}


def test_annotations(tmp_path: Path) -> None:
    text = re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)[2]
    (tmp_path / "pilot.proto").write_text(
        """syntax = "proto3";
        message Picture { bytes pixels = 1; }
        message Seen { Picture camera = 1; repeated float lidar = 2; bytes depth = 3; string debug = 4; }
        message Done { float thrust = 1; }
        """
    )
    (tmp_path / "cogment.yaml").write_text(
        text
        + "import: {proto: [pilot.proto]}\n"
        + "actor_classes: [{name: pilot, observation: {space: Seen}, action: {space: Done}}]\n"
        + 'trial_params: {actors: [{name: ann, actor_class: pilot, endpoint: "cogment://client"}]}\n'
    )
    profile = load_profile(tmp_path / "cogment.yaml")
    template = profile.templates["default"]
    specs = make_mapping(profile.spec, template, "pilot", None).specs
    assert [(spec.name, list(spec.shape)) for _, spec in sorted(specs.observations.items())] == [
        ("camera.pixels", [84, 84, 3]),
        ("lidar", [360]),
        ("depth", [84, 84]),
        ("reward", []),
    ]
    assert list(specs.actions[1].max.floats.array) == [1.0]
    assert {field.name for field in dataclasses.fields(FieldAnnotation)} <= set(re.findall(r"`(\w+)`", GUIDE))


def test_every_setting_policy_and_property_is_in_the_guide() -> None:
    named = set(re.findall(r"`([\w.<>*]+)`", GUIDE))
    assert {name.replace("*", "<name>") for name, row in TABLE.items() if row.dtype} <= named
    assert {*POLICIES, "template", "world_name", "seed", "max_steps", "env_config", "actor_name"} <= named


def test_the_bridge(names: dict[str, Any]) -> None:
    assert names["participants_of"]("grpc://localhost:1").offers


async def test_a_client_of_the_trials(names: dict[str, Any]) -> None:
    params = trial_params([actor_params("player_0", "player", endpoint="cogment://client")])
    async with served() as (url, server, _), trio.open_nursery() as nursery:
        async with open_platform(names["participants_of"](url)) as platform:
            serving = await nursery.start(partial(serve, platform.services, await open_listeners("127.0.0.1")))
            nursery.start_soon(names["join"], f"grpc://127.0.0.1:{serving.port}")
            await platform.controller.wait_trial(await platform.controller.start_trial(params))
            nursery.cancel_scope.cancel()
        assert server.log.count("step") == Catch.ROWS
