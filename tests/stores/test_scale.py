"""The servers of `compose.scale.yaml` as processes of this machine, over a real PostgreSQL and a real server of S3."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio
import yaml

from tests.cli.process import served
from tests.ports import free_port
from tests.stores import s3
from trio_cogment import ActorSession, EnvironmentSession, Participants, actor_params, connect, trial_params
from trio_cogment.sdk import Controller

pytestmark = [pytest.mark.stores, pytest.mark.postgresql]

COMPOSE = yaml.safe_load((Path(__file__).parents[2] / "compose.scale.yaml").read_text())
COMMANDS = {name: one["command"] for name, one in COMPOSE["services"].items() if "command" in one}
#: Of all of them; those of the server of S3 are this machine's.
VARIABLES = {
    name: value
    for one in COMPOSE["services"].values()
    if "command" in one
    for name, value in one["environment"].items()
}


class Servers:
    """Processes of the compose file by their names; each on a port of its own, in an empty folder of its own."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.ports = {name: free_port() for name in COMMANDS}
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("COGMENT", "TRIO_COGMENT"))},
            **variables,
            "COGMENT_DIRECTORY_ENDPOINT": f"grpc://127.0.0.1:{self.ports['directory']}",
        }

    def start(self, name: str) -> None:
        """Start a server, and wait until it listens."""
        folder = self.folder / f"{name}-{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        port = self.ports[name]
        changed = {
            "--host=0.0.0.0": "--host=127.0.0.1",
            f"--directory_registration_host={name}": "--directory_registration_host=127.0.0.1",
            **{f"--{kind}={9000}": f"--{kind}={port}" for kind in ("port", "lifecycle_port", "actor_port")},
        }
        arguments = [changed.get(argument, argument) for argument in COMMANDS[name]]
        process = self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "trio_cogment", *arguments],
            cwd=folder,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "listening" in line:
                return
        raise AssertionError("".join(said))

    def kill(self, name: str) -> None:
        """Kill a server."""
        process = self.processes.pop(name)
        process.kill()
        process.communicate()

    def endpoint(self, name: str) -> str:
        return f"grpc://127.0.0.1:{self.ports[name]}"


@contextmanager
def servers(folder: Path, database: str) -> Iterator[Servers]:
    with ExitStack() as stack:
        logs, own = folder / "logs", folder / "servers"
        logs.mkdir()
        own.mkdir()
        port = stack.enter_context(s3.s3_server(logs))
        one = Servers(
            own,
            {
                **{name: database for name, value in VARIABLES.items() if value.startswith("postgresql:")},
                **{name: value for name, value in VARIABLES.items() if value.startswith("s3:")},
                **s3.environment(f"http://127.0.0.1:{port}"),
            },
        )
        try:
            for name in COMMANDS:
                one.start(name)
            yield one
        finally:
            for name in list(one.processes):
                one.kill(name)


async def world(session: EnvironmentSession) -> None:
    await session.start([("*", b"0")])
    async for event in session.all_events():
        if event.actions is not None:
            await session.produce_observations([("*", b"1")])


async def agent(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"")


async def test_they_work_together_and_start_again_elsewhere(tmp_path: Path, database: str) -> None:
    participants = Participants()
    participants.register_environment(world)
    participants.register_actor(agent, "agent")
    with trio.fail_after(100), servers(tmp_path, database) as started:
        async with (
            served(participants) as place,
            connect(directory=started.endpoint("directory"), variables={}) as client,
        ):
            for number in (1, 2):
                orchestrator = started.endpoint(f"orchestrator-{number}")
                controller: Controller = await client.controller(orchestrator)
                params = trial_params(
                    [actor_params("ann", "player", endpoint=place)],
                    environment_endpoint=place,
                    datalog_endpoint="cogment://discover",
                    max_steps=10,
                )
                trial_id = await controller.start_trial(params)
                await controller.wait_trial(trial_id)
                found = await client.find_trial(trial_id)
                assert (found.endpoint, found.is_stored, found.ended) == (orchestrator, True, True)
                for name in ("datastore-1", "datastore-2"):
                    datastore = await client.datastore(started.endpoint(name))
                    [stored] = await datastore.trials([trial_id], wait_seconds=20)
                    assert stored.is_complete
            registry = await client.model_registry()
            assert (await registry.store("walker", b"weights")).version_number == 1
            for name in ("model-registry", "directory"):
                started.kill(name)
                started.start(name)
            info, weights = await (await client.model_registry()).retrieve("walker")
            assert (info.version_number, weights) == (1, b"weights")
            assert (await client.find_trial(trial_id)).endpoint == orchestrator
    assert not [file for file in (tmp_path / "servers").rglob("*") if file.is_file()]
