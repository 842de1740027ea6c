"""Trials whose parameters name no endpoint, over processes that only know a directory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.cli.process import NOTHING_ELSE, PATIENCE_SECONDS, environment_variables, run_here, run_main, server
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import Channel
from trio_cogment.sdk import (
    ActorSession,
    Controller,
    DatastoreClient,
    Participants,
    actor_params,
    serve_participants,
    trial_params,
)
from trio_cogment.servers.discovery import DirectoryClient, open_directory

HERE = "--host=127.0.0.1"
#: docs/directory.md: what a server whose process died takes from trials that start meanwhile.
DOCUMENTED_SECONDS = 11
#: Where the trial ends at once, or its start is refused.
LOST = {StatusCode.UNAVAILABLE}
PARAMS = trial_params([actor_params("ann", "talker")])


class Actors:
    """Actors of this process, registered in the directory; they remember which world each trial was in."""

    def __init__(self) -> None:
        self.worlds: dict[str, str] = {}

    async def act(self, session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                self.worlds[session.trial_id] = event.observation.payload.decode()
                await session.do_action(b"")

    @asynccontextmanager
    async def served(self, directory: DirectoryClient) -> AsyncIterator[None]:
        participants = Participants()
        participants.register_actor(self.act, "talk", ["talker"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(serve_participants, participants, address="127.0.0.1", directory=directory))
            yield
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def worlds(endpoint: str, names: Iterable[str]) -> AsyncIterator[dict[str, trio.Process]]:
    command = [sys.executable, "-m", "tests.cli.worlds", endpoint]
    found = {}
    try:
        for name in names:
            found[name] = await trio.lowlevel.open_process(
                [*command, name], env=environment_variables(), stderr=subprocess.DEVNULL
            )
        yield found
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE_SECONDS):
            for process in found.values():
                process.kill()
                await process.wait()


async def wait_for(directory: DirectoryClient, kind: ServiceKind, count: int) -> list[int]:
    """Wait until the directory shows this many of a kind; return their numbers."""
    while True:
        numbers = [service.service_id for service in await directory.inquire(kind)]
        if len(numbers) == count:
            return numbers
        await trio.sleep(0.05)


async def wait_for_all(directory: DirectoryClient, count: int, but: Collection[int] = ()) -> set[int]:
    """Wait until the directory has this many registrations and shows them, and none of some; return their numbers."""
    while True:
        numbers = {service.service_id for service in await directory.inquire()}
        registered = int((await directory.status(["nb_entries"]))["nb_entries"])
        if len(numbers.difference(but)) == registered == count:
            return numbers
        await trio.sleep(0.05)


async def world_of_a_trial(controller: Controller, actors: Actors) -> str:
    """Run a trial; return which world it was in, or nothing if that was gone."""
    try:
        trial_id = await controller.start_trial(PARAMS)
    except RpcError as error:
        if error.code not in LOST:
            raise
        return ""
    await controller.wait_trial_state(trial_id)
    return actors.worlds.get(trial_id, "")


async def moves_to_the_other(seconds: float, *flags: str) -> None:
    """Kill the environment server that has the trials, and see that within `seconds` the other one has them."""
    actors = Actors()
    async with AsyncExitStack() as opened:
        found = await opened.enter_async_context(
            server("services", "directory", HERE, "--port=0", "--persistence_file=", *flags)
        )
        endpoint = f"grpc://127.0.0.1:{found.port}"
        ports = ("--lifecycle_port=0", "--actor_port=0", f"--directory_endpoint={endpoint}")
        orchestrator = await opened.enter_async_context(server("services", "orchestrator", HERE, *ports))
        directory = await opened.enter_async_context(open_directory(endpoint))
        await opened.enter_async_context(actors.served(directory))
        running = await opened.enter_async_context(worlds(endpoint, ["one", "other"]))
        controller = Controller(await opened.enter_async_context(Channel("127.0.0.1", orchestrator.port)))
        with trio.fail_after(PATIENCE_SECONDS):
            await wait_for(directory, ServiceKind.ENVIRONMENT, 2)
            await wait_for(directory, ServiceKind.ACTOR, 1)
            first = await world_of_a_trial(controller, actors)
            assert first in running
            assert await world_of_a_trial(controller, actors) == first
        running[first].kill()
        with trio.fail_after(seconds):
            second = ""
            while not second:
                second = await world_of_a_trial(controller, actors)
        assert {first, second} == {"one", "other"}
        with trio.fail_after(PATIENCE_SECONDS):
            for _ in range(3):
                assert await world_of_a_trial(controller, actors) == second
        await orchestrator.stop()
        assert "Traceback" not in orchestrator.err


async def test_new_trials_move_to_the_other_environment_server(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("directory_server: {check_interval_seconds: 0.5, scan_interval_seconds: 0.05}\n")
    await moves_to_the_other(PATIENCE_SECONDS, f"--config={config}")


@pytest.mark.soak
async def test_new_trials_move_within_the_documented_time() -> None:
    await moves_to_the_other(DOCUMENTED_SECONDS)


# A server of everything


async def test_serve_has_everything_and_discovery_works_out_of_the_box(tmp_path: Path) -> None:
    actors, defaults = Actors(), dict.fromkeys(NOTHING_ELSE, "")
    defaults["COGMENT_DIRECTORY_PERSISTENCE_FILE"] = "registrations"
    params = trial_params([actor_params("ann", "talker")], datalog_endpoint="cogment://discover")
    async with server("serve", HERE, "--port=0", variables=defaults, folder=tmp_path) as found:
        assert await found.parts() == "orchestrator, trial_datastore, model_registry, directory"
        endpoint = f"grpc://127.0.0.1:{found.port}"
        async with (
            open_directory(endpoint) as directory,
            actors.served(directory),
            worlds(endpoint, ["one"]),
            Channel("127.0.0.1", found.port) as channel,
        ):
            with trio.fail_after(PATIENCE_SECONDS):
                for kind in (
                    ServiceKind.LIFECYCLE,
                    ServiceKind.CLIENT_ACTOR,
                    ServiceKind.DATASTORE,
                    ServiceKind.DATALOG,
                    ServiceKind.MODEL_REGISTRY,
                    ServiceKind.ENVIRONMENT,
                    ServiceKind.ACTOR,
                ):
                    await wait_for(directory, kind, 1)
                assert not await directory.inquire(ServiceKind.DIRECTORY)
                lifecycle = await directory.find("cogment://discover", ServiceKind.LIFECYCLE)
                assert str(lifecycle.endpoint) == endpoint
                controller = Controller(channel)
                trial_id = await controller.start_trial(params)
                await controller.wait_trial_state(trial_id)
                assert actors.worlds == {trial_id: "one"}
                samples = [sample async for sample in DatastoreClient(channel).samples(trial_id, follow=True)]
                assert samples[-1].trial_id == trial_id
        for arguments in (
            ("client", "model_registry", "put", "m", f"--endpoint={endpoint}"),
            ("client", "directory", "WaitForReady", f"--directory_endpoint={endpoint}"),
            ("status", f"--directory_endpoint={endpoint}", "*"),
        ):
            output = await run_here(*arguments, data=b"x")
            assert (output.code, output.err) == (0, "")
        assert await found.stop() == 0, found.err
    assert "Traceback" not in found.err
    for path in (".cogment/trial_datastore.db", ".cogment/model_registry/m/m-v000001.data", "registrations"):
        assert (tmp_path / path).exists()
    # What it registered itself, it took back; the world was killed, and is there still.
    registrations = (tmp_path / "registrations").read_text()
    assert ("PythonSDK-Implicit" in registrations, "Self-Implicit" in registrations) == (True, False)


async def test_with_a_directory_elsewhere_serve_has_none_of_its_own(tmp_path: Path) -> None:
    variables = {"COGMENT_DIRECTORY_PERSISTENCE_FILE": "registrations"}
    async with server("services", "directory", HERE, "--port=0", "--persistence_file=") as elsewhere:
        endpoint = f"grpc://127.0.0.1:{elsewhere.port}"
        flags = (HERE, "--port=0", f"--directory_endpoint={endpoint}")
        async with (
            server("serve", *flags, variables=variables, folder=tmp_path) as found,
            open_directory(endpoint) as directory,
        ):
            assert await found.parts() == "orchestrator"
            with trio.fail_after(PATIENCE_SECONDS):
                await wait_for(directory, ServiceKind.LIFECYCLE, 1)
            await found.stop()
            assert not await directory.inquire()
    assert not (tmp_path / "registrations").exists()


def test_what_serve_cannot_open_ends_it_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for flag, path in (("--archive_dir", tmp_path / "file"), ("--persistence_file", tmp_path / "no" / "file")):
        output = run_main("serve", "--port=0", f"{flag}={path}")
        assert output.code == 1
        assert output.err.splitlines()[-1].startswith(f"trio-cogment: {flag}: {path}: ")
        assert "Traceback" not in output.err


async def test_serve_that_was_killed_is_there_once_when_it_is_back(tmp_path: Path) -> None:
    variables = {"COGMENT_DIRECTORY_PERSISTENCE_FILE": "registrations"}
    port = 0
    known: set[int] = set()
    for _ in range(3):
        async with server("serve", HERE, f"--port={port}", variables=variables, folder=tmp_path) as found:
            assert await found.parts() == "orchestrator, directory"
            port = found.port
            async with open_directory(f"grpc://127.0.0.1:{port}") as directory:
                with trio.fail_after(PATIENCE_SECONDS):
                    if not known:
                        # What others have said about our endpoint is not ours to forget.
                        by_hand = await directory.register(
                            ServiceKind.OTHER, GrpcEndpoint("127.0.0.1", port), permanent=True
                        )
                    shown = await wait_for_all(directory, 3, known)
                assert by_hand.service_id in shown
                known = shown - {by_hand.service_id}
            found.process.kill()
            await found.process.wait()
            assert "Traceback" not in found.err


async def test_serve_that_shall_not_register_forgets_all_the_same_what_it_was(tmp_path: Path) -> None:
    start = ("serve", HERE, f"--persistence_file={tmp_path}/registrations")
    async with server(*start, "--port=0") as found, open_directory(f"grpc://127.0.0.1:{found.port}") as directory:
        with trio.fail_after(PATIENCE_SECONDS):
            await wait_for(directory, ServiceKind.LIFECYCLE, 1)
        found.process.kill()
        await found.process.wait()
    again = (*start, f"--port={found.port}", "--directory_auto_register=false")
    async with server(*again) as found, open_directory(f"grpc://127.0.0.1:{found.port}") as directory:
        with trio.fail_after(PATIENCE_SECONDS):
            await wait_for_all(directory, 0)
        assert await found.stop() == 0
