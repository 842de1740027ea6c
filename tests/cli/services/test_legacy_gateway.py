"""A gateway for the legacy API as a process in front of an orchestrator."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, listening, run_main, server
from tests.cli.services.test_legacy import play
from tests.cli.test_configuration import settings_of
from tests.gateways.legacy.clients import OldClient, with_clients
from tests.gateways.legacy.playing import Field, Newcomer, parameters
from tests.gateways.legacy.servers import AgentServer, EnvironmentServer, served
from tests.gateways.legacy.test_data_log import LogServer
from tests.gateways.legacy.test_data_log import served as logging
from tests.gateways.legacy.test_hook import HookServer, hooked
from tests.ports import free_port
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.errors import RpcError
from trio_cogment.base.host import Host
from trio_cogment.base.outcome import EndCause
from trio_cogment.cli.services.gateway import GatewaySettings
from trio_cogment.cli.services.legacy_gateway import legacy_gateway
from trio_cogment.platform import open_platform
from trio_cogment.rpc import open_channel
from trio_cogment.sdk import Participants

PROFILE = """
legacy: {{classes: [plane, drone]}}
trial_params:
  trial_config: {{content: Z2l2ZW4=}}
  environment: {{endpoint: "grpc://127.0.0.1:{gateway}", implementation: "legacy://127.0.0.1:{worlds}"}}
  actors:
    - actor_class: drone
      endpoint: "grpc://127.0.0.1:{gateway}"
      implementation: "legacy://127.0.0.1:{agents}"
    - {{actor_class: plane, endpoint: "cogment://client"}}
"""
#: What a hook gives to the environment.
CONFIG = legacy.EnvironmentConfig(content=b"made by the hook")
HERE = "--host=127.0.0.1"


def limit_steps(params: legacy.TrialParams) -> None:
    params.max_steps = 2


async def test_in_front_of_an_orchestrator(tmp_path: Path) -> None:
    """It knows nothing of this process: what it has to know it asks."""
    agents, environments = AgentServer(), EnvironmentServer(ends_at=3)
    path = tmp_path / "legacy.yaml"
    port = free_port()
    async with served(agents) as (agents_port, _), served(environments) as (worlds_port, _):
        path.write_text(PROFILE.format(gateway=port, agents=agents_port, worlds=worlds_port))
        async with open_platform() as platform, listening(*platform.services) as orchestrator:
            command = ("services", "legacy_gateway", HERE, f"--port={port}", f"--profile={path}")
            async with server(*command, f"--orchestrator={orchestrator}") as gateway:
                await gateway.said(
                    re.compile(rf"^trials  run by the orchestrator at {orchestrator}, which", re.MULTILINE)
                )
                assert gateway.addresses[0][2] == "Trial, EnvironmentSP, ServiceActorSP, DatalogSP, TrialHooksSP"
                with trio.fail_after(PATIENCE_SECONDS):
                    client = await play(gateway.port, 3, orchestrator)
                assert await gateway.stop() == 0
                assert "Traceback" not in gateway.err
            assert platform.orchestrator.trials.get(client.trial_id) is not None
    for old in (agents, environments):
        starts = old.requests("Start")
        assert [(list(each.actor_counts), each.trial_config.content) for each in starts] == [([1, 1], b"given")]
        assert not old.playing
    assert [list(each.action_set.actions) for each in environments.requests("Update")] == [
        [b"act %d" % tick_id, b"SEEN BY 1 AT %d" % tick_id] for tick_id in range(3)
    ]


async def test_the_clients_of_the_profile_where_others_start_trials(tmp_path: Path) -> None:
    path = tmp_path / "legacy.yaml"
    path.write_text("legacy: {classes: [plane, drone], clients: [p]}\n")
    found = Participants()
    found.register_actor(Newcomer().play, "today")
    found.register_environment(Field(ends_at=1).play, "today")
    async with open_platform(found) as platform, listening(*platform.services) as orchestrator:
        command = ("services", "legacy_gateway", HERE, "--port=0", f"--profile={path}")
        async with server(*command, f"--orchestrator={orchestrator}") as gateway:
            with trio.fail_after(PATIENCE_SECONDS):
                await platform.controller.start_trial(with_clients("p"), trial_id="theirs")
                async with open_channel(Host(), "127.0.0.1", gateway.port) as channel:
                    client = OldClient(channel)
                    reply = await client.join("theirs", 0)
                    assert reply.observation.data.content == b"see 0"
                    assert (await client.act(b"1")).trial_is_over
            assert await gateway.stop() == 0


async def test_old_hooks_and_an_old_data_log(tmp_path: Path) -> None:
    """To the orchestrator the gateway is its hook and its data log."""
    hooks = [HookServer(lambda params: params.environment.config.MergeFrom(CONFIG)), HookServer(limit_steps)]
    log = LogServer()
    found = Participants()
    found.register_actor(Newcomer().play, "today")
    found.register_environment(Field(ends_at=9).play, "today")
    path = tmp_path / "legacy.yaml"
    port = free_port()
    defaults = parameters(datalog_endpoint=f"grpc://127.0.0.1:{port}")
    config = PlatformConfig(default_params=defaults, pre_trial_hooks=(f"grpc://127.0.0.1:{port}",))
    async with hooked(hooks[0]) as first, hooked(hooks[1]) as second, logging(log) as datalog:
        path.write_text(
            f"legacy: {{classes: [plane, drone], pre_trial_hooks: ['{first}', '{second}'], datalog: '{datalog}'}}\n"
        )
        async with (
            open_platform(found, config=config) as platform,
            listening(*platform.services) as orchestrator,
            server(
                *("services", "legacy_gateway", HERE, f"--port={port}", f"--profile={path}"),
                f"--orchestrator={orchestrator}",
            ) as gateway,
        ):
            with trio.fail_after(PATIENCE_SECONDS):
                await platform.controller.start_trial(trial_id="trial")
                outcome = await platform.controller.wait_trial("trial")
                await log.finished.wait()
            assert await gateway.stop() == 0
            assert "Traceback" not in gateway.err
    assert outcome.cause is EndCause.STEP_LIMIT
    assert [[(each.trial_id, bool(each.user_id)) for each in hook.asked] for hook in hooks] == [[("trial", True)]] * 2
    # The second one is asked with what the first one has made.
    assert hooks[1].asked[0].params.environment.config == CONFIG
    assert log.streams[0][0].trial_params.environment.config == CONFIG
    assert [each.sample.observations.tick_id for each in log.streams[0][1:]] == list(range(outcome.ticks))
    # In the order of the classes.
    assert [each.content for each in log.streams[0][1].sample.actions] == [b"p at 0", b"d1 at 0", b"d2 at 0"]


async def test_a_profile_without_old_hooks(tmp_path: Path) -> None:
    path = tmp_path / "legacy.yaml"
    path.write_text("legacy: {classes: [plane, drone]}\n")
    port = free_port()
    config = PlatformConfig(default_params=parameters(), pre_trial_hooks=(f"grpc://127.0.0.1:{port}",))
    async with (
        open_platform(config=config) as platform,
        listening(*platform.services) as orchestrator,
        server(
            *("services", "legacy_gateway", HERE, f"--port={port}", f"--profile={path}"),
            f"--orchestrator={orchestrator}",
        ) as gateway,
    ):
        with (
            trio.fail_after(PATIENCE_SECONDS),
            pytest.raises(RpcError, match="pre_trial_hooks: expected an old hook in the profile, there is none"),
        ):
            await platform.controller.start_trial(trial_id="trial")
        assert await gateway.stop() == 0


def test_flags_variables_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings_of(monkeypatch, "run_legacy_gateway", legacy_gateway)
    assert isinstance(found, GatewaySettings)
    assert (found.port, found.profile, found.orchestrator) == (9011, Path("cogment.yaml"), "grpc://localhost:9000")
    monkeypatch.setenv("COGMENT_LEGACY_GATEWAY_PROFILE", "a.yaml")
    monkeypatch.setenv("COGMENT_LEGACY_GATEWAY_PORT", "1")
    found = settings_of(monkeypatch, "run_legacy_gateway", legacy_gateway, "--directory_endpoint=grpc://d:1")
    assert isinstance(found, GatewaySettings)
    assert (found.port, found.profile, found.orchestrator) == (1, Path("a.yaml"), "cogment://discover")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--orchestrator=cogment://discover",), "--orchestrator: cogment://discover: discovery needs a directory"),
        (("--orchestrator=legacy://h:1",), "--orchestrator: 'legacy://h:1': "),
        (("--profile=nowhere.yaml",), "--profile: nowhere.yaml: No such file or directory"),
    ],
)
def test_values_that_cannot_be(arguments: tuple[str, ...], expected: str) -> None:
    output = run_main("services", "legacy_gateway", HERE, *arguments)
    assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
    assert output.err.startswith(f"trio-cogment: {expected}")
