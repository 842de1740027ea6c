"""Participants of the legacy API in server processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, run, server
from tests.cli.test_configuration import settings_of
from tests.gateways.legacy.clients import OldClient
from tests.gateways.legacy.servers import AgentServer, EnvironmentServer, served
from trio_cogment.base.host import Host
from trio_cogment.cli.serve import serve
from trio_cogment.cli.services.orchestrator import OrchestratorSettings, orchestrator
from trio_cogment.rpc import open_channel
from trio_cogment.sdk import Controller

#: A project file of that time, but for its types.
OLD = """
legacy: {{classes: [plane, drone]}}
trial_params:
  max_inactivity: 60
  environment: {{endpoint: "legacy://127.0.0.1:{worlds}"}}
  actors:
    - {{actor_class: drone, endpoint: "legacy://127.0.0.1:{agents}"}}
    - {{actor_class: plane, endpoint: "cogment://client"}}
"""
HERE = "--host=127.0.0.1"


async def play(port: int, ticks: int, orchestrator: str = "") -> OldClient:
    """Play a trial; an orchestrator at another endpoint is asked how it ended."""
    elsewhere = int(orchestrator.rpartition(":")[2]) if orchestrator else port
    async with (
        open_channel(Host(), "127.0.0.1", port) as channel,
        open_channel(Host(), "127.0.0.1", elsewhere) as other,
    ):
        client = OldClient(channel)
        reply = await client.start(b"given")
        assert (reply.actor_id, reply.observation.data.content) == (0, b"seen by 0 at 0")
        replies = [await client.act(b"act %d" % number) for number in range(ticks)]
        assert [each.trial_is_over for each in replies] == [*[False] * (ticks - 1), True]
        await client.end()
        outcome = await Controller(other).wait_trial(client.trial_id)
        assert outcome.ticks == ticks + 1
        return client


@pytest.mark.parametrize("command", [("serve", "--port=0"), ("services", "orchestrator", "--lifecycle_port=0")])
async def test_old_clients_agents_and_environments(command: tuple[str, ...], tmp_path: Path) -> None:
    agents, environments = AgentServer(), EnvironmentServer(ends_at=3)
    path = tmp_path / "legacy.yaml"
    none = ["--actor_port=0"] if command[0] == "services" else ["--storage=memory:", "--archive_dir=none"]
    variables = {"COGMENT_DIRECTORY_PERSISTENCE_FILE": "none"}
    async with served(agents) as (agents_port, _), served(environments) as (worlds_port, _):
        path.write_text(OLD.format(agents=agents_port, worlds=worlds_port))
        async with server(*command, *none, HERE, f"--legacy={path}", variables=variables) as process:
            if command[0] == "serve":
                assert (await process.parts()).endswith("legacy")
            else:
                assert process.out.startswith("orchestrator, legacy listening on ")
                assert ", Trial" in process.addresses[0][2]
            with trio.fail_after(PATIENCE_SECONDS):
                await play(process.port, 3)
            assert await process.stop() == 0
            assert "Traceback" not in process.err
    (start,) = environments.requests("Start")
    assert (list(start.actor_counts), start.trial_config.content) == ([1, 1], b"given")
    assert [list(each.action_set.actions) for each in environments.requests("Update")] == [
        [b"act %d" % tick_id, b"SEEN BY 1 AT %d" % tick_id] for tick_id in range(3)
    ]
    assert not agents.playing
    assert not environments.playing


def test_the_profile_of_both_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGMENT_LEGACY_PROFILE", "a.yaml")
    for command in (serve, orchestrator):
        found = settings_of(monkeypatch, "run_orchestrator", command)
        assert isinstance(found, OrchestratorSettings)
        assert found.legacy == Path("a.yaml")


@pytest.mark.parametrize("command", [("serve",), ("services", "orchestrator")])
async def test_a_profile_with_a_mistake_is_never_announced(command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "legacy.yaml"
    path.write_text("legacy:\n  clases: [plane]\n")
    output = await run(*command, f"--legacy={path}", HERE)
    assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
    assert output.err.startswith(f"trio-cogment: --legacy: {path}: line 2: legacy: unknown key 'clases'")


async def test_default_parameters_that_need_a_profile_are_told_of(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(OLD.format(agents=1, worlds=2).replace("- {", "- {name: a, ", 1).replace("- {a", "- {name: b, a"))
    variables = {"COGMENT_DIRECTORY_PERSISTENCE_FILE": "none"}
    none = ["--storage=none", "--archive_dir=none"]
    async with server("serve", "--port=0", *none, HERE, f"--params={path}", variables=variables) as process:
        await process.stop()
        assert "environment.endpoint: legacy://127.0.0.1:2: a server of the legacy API needs a profile" in process.err


async def test_parameters_of_a_file_come_first(tmp_path: Path) -> None:
    agents, environments = AgentServer(), EnvironmentServer(ends_at=1)
    async with served(agents) as (agents_port, _), served(environments) as (worlds_port, _):
        legacy = tmp_path / "legacy.yaml"
        legacy.write_text(OLD.format(agents=1, worlds=1))
        params = tmp_path / "params.yaml"
        text = OLD.format(agents=agents_port, worlds=worlds_port)
        params.write_text(text.replace("- {", "- {name: a, ", 1).replace("- {a", "- {name: b, a"))
        variables = {"COGMENT_DIRECTORY_PERSISTENCE_FILE": "none"}
        none = ["--storage=none", "--archive_dir=none", f"--params={params}"]
        async with server("serve", "--port=0", *none, HERE, f"--legacy={legacy}", variables=variables) as process:
            with trio.fail_after(PATIENCE_SECONDS):
                await play(process.port, 1)
            assert await process.stop() == 0
