"""A gateway for clients of dm_env_rpc as a server process, and in the process of everything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Server, listening, run, run_here, run_main, server
from tests.cli.test_configuration import settings_of
from tests.gateways.dm_env_rpc.servers import Catch, served
from trio_cogment.cli.serve import serve
from trio_cogment.cli.services.dm_env_rpc import dm_env_rpc
from trio_cogment.cli.services.gateway import GatewaySettings
from trio_cogment.cli.services.orchestrator import OrchestratorSettings
from trio_cogment.gateways.dm_env_rpc import DM_ENV_RPC_SPEC, dm_env_rpc_environment, open_connection
from trio_cogment.platform import open_platform
from trio_cogment.sdk import Participants

PROFILE = """
dm_env_rpc: {spec: dm_env_rpc, policies: {step_timeout_seconds: 30}}
trial_params:
  actors: [{name: ann, actor_class: player, endpoint: "cogment://client"}]
"""
HERE = "--host=127.0.0.1"


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "profile.yaml"
    path.write_text(PROFILE)
    return path


async def length(port: int) -> int:
    """Play a sequence; return how many steps it had."""
    async with open_connection(f"grpc://127.0.0.1:{port}") as connection:
        await connection.join_world(await connection.create_world())
        steps = [await connection.step()]
        while not steps[-1].last:
            steps.append(await connection.step({"paddle": 0}))
        await connection.leave_world()
        return len(steps)


async def test_a_process_in_front_of_an_orchestrator(profile: Path) -> None:
    participants = Participants(DM_ENV_RPC_SPEC)
    async with served() as (url, _, _):
        participants.register_environment(dm_env_rpc_environment(url))
        async with open_platform(participants) as platform, listening(*platform.services) as orchestrator:
            arguments = ("services", "dm_env_rpc", HERE, "--port=0", f"--profile={profile}")
            async with server(*arguments, f"--orchestrator={orchestrator}") as gateway:
                assert gateway.addresses[0][2] == "Environment"
                assert gateway.out.startswith("dm_env_rpc listening on ")
                await gateway.said(
                    re.compile(rf"^trials  run by the orchestrator at {orchestrator}, which", re.MULTILINE)
                )
                with trio.fail_after(PATIENCE_SECONDS):
                    assert await length(gateway.port) == Catch.ROWS
                    output = await run_here("dm_env_rpc", "probe", f"127.0.0.1:{gateway.port}")
                    assert (output.code, output.err) == (0, "")
                    assert output.out.splitlines()[1].split() == ["1", "paddle", "int8", "min", "-1,", "max", "1"]
                assert await gateway.stop() == 0
                assert gateway.err == ""


async def registered(port: int) -> str:
    """Wait until the directory has a gateway; return what is printed about it."""
    inquire = ("client", "directory", "inquire", "--type=other", f"--endpoint=grpc://127.0.0.1:{port}")
    while True:
        output = await run_here(*inquire)
        if "[0] Services" not in output.out:
            return output.out


async def test_everything_in_one_process_and_a_gateway_that_finds_it(profile: Path) -> None:
    own_directory = {"COGMENT_DIRECTORY_PERSISTENCE_FILE": ""}
    arguments = ("serve", HERE, "--port=0", f"--dm_env_rpc={profile}")
    async with server(*arguments, variables=own_directory) as everything:
        assert await everything.parts() == "orchestrator, dm_env_rpc, directory"
        with trio.fail_after(PATIENCE_SECONDS):
            assert "[__protocol] = [dm_env_rpc]" in await registered(everything.port)
            await world_is_made(everything)
            directory = f"--directory_endpoint=grpc://127.0.0.1:{everything.port}"
            gateway_of = ("services", "dm_env_rpc", HERE, "--port=0", f"--profile={profile}", directory)
            async with server(*gateway_of) as gateway:
                await world_is_made(gateway)
                assert await gateway.stop() == 0
        assert await everything.stop() == 0
        assert "Traceback" not in everything.err


async def world_is_made(of: Server) -> None:
    async with open_connection(f"grpc://127.0.0.1:{of.port}") as connection:
        name = await connection.create_world({"world_name": "one"})
        assert (await connection.read_property("worlds")).tolist() == [name]
        await connection.destroy_world(name)


# Settings


def settings(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> GatewaySettings:
    found = settings_of(monkeypatch, "run_dm_env_rpc", dm_env_rpc, *arguments)
    assert isinstance(found, GatewaySettings)
    return found


def test_flags_variables_and_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = settings(monkeypatch)
    assert (found.port, found.profile, found.orchestrator) == (9010, Path("cogment.yaml"), "grpc://localhost:9000")
    found = settings(monkeypatch, "--directory_endpoint=grpc://d:1")
    assert found.orchestrator == "cogment://discover"
    monkeypatch.setenv("COGMENT_DM_ENV_RPC_ORCHESTRATOR", "grpc://o:2")
    found = settings(monkeypatch, "--directory_endpoint=grpc://d:1")
    assert found.orchestrator == "grpc://o:2"
    file = tmp_path / "config.yaml"
    file.write_text("dm_env_rpc: {max_worlds: 3, max_connections: 4, leave_seconds: 5}\n")
    limits = settings(monkeypatch, f"--config={file}", "--max_worlds=7").configuration.dm_env_rpc
    assert (limits.max_worlds, limits.max_connections, limits.leave_seconds) == (7, 4, 5.0)


def test_the_profile_of_a_server_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGMENT_DM_ENV_RPC_PROFILE", "a.yaml")
    found = settings_of(monkeypatch, "run_orchestrator", serve)
    assert isinstance(found, OrchestratorSettings)
    assert found.profile == Path("a.yaml")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--orchestrator=cogment://discover",), "--orchestrator: cogment://discover: discovery needs a directory"),
        (("--orchestrator=here",), "--orchestrator: 'here': "),
        (("--orchestrator=cogment://client",), "--orchestrator: 'cogment://client': "),
        (("--profile=",), "--profile: expected a path, got ''"),
        (("--profile=nowhere.yaml",), "--profile: nowhere.yaml: No such file or directory"),
        (("--max_worlds=0",), "--max_worlds: expected 1 to 2147483647, got 0"),
        (("--port=x",), "--port: expected a port"),
    ],
)
def test_values_that_cannot_be(arguments: tuple[str, ...], expected: str) -> None:
    output = run_main("services", "dm_env_rpc", HERE, *arguments)
    assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
    assert output.err.startswith(f"trio-cogment: {expected}")


@pytest.mark.parametrize("command", [("services", "dm_env_rpc", "--profile"), ("serve", "--dm_env_rpc")])
async def test_a_profile_with_a_mistake_is_never_announced(command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(PROFILE.replace("policies", "policy"))
    output = await run(*command, str(path), HERE, "--port=0")
    assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
    assert output.err.startswith(f"trio-cogment: {command[-1]}: {path}: line 2: dm_env_rpc: unknown key 'policy'")
