"""Our own client against our own directory: in process, and over sockets with real services."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.helpers import Script, actor_that_acts, environment_of, params_of, wait_ended, wire_channel
from tests.servers.directory.bench import ENVIRONMENT, Told, directory, new_server, service_of
from trio_cogment.base.config import DirectoryConfig, DirectoryServerConfig
from trio_cogment.base.endpoints import ClientEndpoint, GrpcEndpoint
from trio_cogment.base.errors import FailedPreconditionError, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import InProcessChannel, RunningServer, open_listeners, serve, standard_services
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.servers.discovery import DirectoryClient, Offer, Registrations, keep_registered, open_directory
from trio_cogment.servers.orchestrator import Orchestrator

Clock = trio.testing.MockClock
PATIENCE_SECONDS = 60
PLAYER = {"__actor_class": "player"}


@pytest.mark.parametrize("open_channel", [InProcessChannel, wire_channel])
async def test_the_whole_client(open_channel: Any, autojump_clock: Clock) -> None:
    async with directory() as at, open_channel(directory_services(at.server)) as channel:
        client = DirectoryClient(channel, token="t")
        at.net.host("here")
        here, properties = GrpcEndpoint("here", 9000), {"__implementation": "grid"}
        registration = await client.register(ServiceKind.ENVIRONMENT, here, properties)
        found = await client.find("cogment://discover", ServiceKind.ENVIRONMENT, context=properties)
        assert (found.endpoint, found.service_id, found.properties) == (here, registration.service_id, properties)
        joins = await client.register(ServiceKind.ACTOR, ClientEndpoint(), {"__actor_class": "player"})
        found = await client.find("", ServiceKind.ACTOR, context={"__actor_class": "player"})
        assert (found.endpoint, found.service_id) == (ClientEndpoint(), joins.service_id)
        found = await client.find(f"cogment://discover/service?__id={joins.service_id}", ServiceKind.ACTOR)
        assert found.service_id == joins.service_id
        for wrong in ("cogment://discover?__authentication-token=u", "cogment://discover?a=1"):
            with pytest.raises(FailedPreconditionError, match="knows no environment"):
                await client.find(wrong, ServiceKind.ENVIRONMENT)
        with pytest.raises(FailedPreconditionError, match=r"refused: endpoint\.port: expected 1 to 65535, got 0"):
            await client.register(ServiceKind.OTHER, GrpcEndpoint("here", 0))
        assert await client.status(["nb_entries"]) == {"nb_entries": "2"}
        assert "trio-cogment" in await client.version()
        await client.deregister(registration)
        assert await client.look_up(registration.service_id) is None
        with pytest.raises(FailedPreconditionError, match="no service"):
            await client.deregister(registration)


async def test_kept_registered(autojump_clock: Clock) -> None:
    """Through a time of silence, and a directory that has lost everything."""
    async with directory() as at, trio.open_nursery() as nursery:
        at.net.host("us")
        client = DirectoryClient(at.channel)
        offers = [Offer(kind=ServiceKind.ENVIRONMENT, port=9000)]
        keep = partial(keep_registered, client, offers, registration_host="us", host=Host(random=random.Random))
        state: Registrations = await nursery.start(keep)
        await state.complete.wait_value(True)
        assert await at.hosts() == ["us"]
        [service] = at.net.hosts.pop("us")
        await at.until(lambda hosts: not hosts)
        await trio.sleep(100)
        assert at.server.count == 1
        at.net.hosts["us"] = [service]
        await at.until(lambda hosts: hosts == ["us"])
        await trio.sleep(30)
        assert at.server.count == 1
        nursery.cancel_scope.cancel()
    assert at.server.count == 0


# Over sockets


@asynccontextmanager
async def served(server: DirectoryServer, port: int = 0) -> AsyncIterator[RunningServer]:
    async with server, trio.open_nursery() as nursery:
        services = directory_services(server)
        listeners = await open_listeners("127.0.0.1", port)
        yield await nursery.start(serve, [*services, *standard_services(services)], listeners)
        nursery.cancel_scope.cancel()


def sockets(**options: Any) -> DirectoryServer:
    """Return a directory that connects over sockets, and looks often."""
    often = {"check_interval_seconds": 0.05, "scan_interval_seconds": 0.02, "startup_lag_seconds": 0}
    config = DirectoryServerConfig(**{**often, **options.pop("config", {})})
    return new_server(None, config, **options)


async def until(client: DirectoryClient, ports: set[int]) -> None:
    """Wait until these are the ports that are found; the first one found is asked for, again and again."""
    with trio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                found = await client.find("", ServiceKind.ENVIRONMENT)
            except FailedPreconditionError:
                seen = set()
            else:
                assert isinstance(found.endpoint, GrpcEndpoint)
                seen = {found.endpoint.port}
            if seen == ports:
                return
            await trio.sleep(0.01)


async def until_count(server: DirectoryServer, count: int) -> None:
    """Wait until there are this many registrations: a busy machine may fail a check, and the client registers again."""
    with trio.fail_after(PATIENCE_SECONDS):
        while server.count != count:  # noqa: ASYNC110  it has no event for that
            await trio.sleep(0.01)


async def test_a_restart_on_the_same_port_with_the_same_file(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    config = DirectoryConfig(check_interval_seconds=0.05, retry_initial_seconds=0.05, reconnect_max_seconds=0.1)
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, [service_of(Told())], await open_listeners("127.0.0.1"))
        async with served(sockets(path=path)) as first:
            port = first.ports[0]
        async with open_directory(f"grpc://127.0.0.1:{port}", token="t", config=config) as client:
            offers = [Offer(kind=ServiceKind.ENVIRONMENT, port=serving.ports[0])]
            keep = partial(keep_registered, client, offers, registration_host="127.0.0.1")
            scope = trio.CancelScope()

            async def keeping() -> None:
                with scope:
                    await keep()

            nursery.start_soon(keeping)
            for _ in range(3):
                server = sockets(path=path)
                async with served(server, port):
                    await until(client, {serving.ports[0]})
                    await until_count(server, 1)
            server = sockets(path=path)
            async with served(server, port):
                await until(client, {serving.ports[0]})
                scope.cancel()
                await until(client, set())
                await until_count(server, 0)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("check_on_inquire", [False, True])
async def test_new_trials_go_to_the_server_that_is_left(check_on_inquire: bool) -> None:
    """Two environment servers; one dies, without a word to the directory."""
    config: dict[str, Any] = {}
    if check_on_inquire:
        config = {"check_on_inquire": True, "fresh_check_seconds": 0, "check_interval_seconds": 60}
    async with trio.open_nursery() as nursery, served(sockets(config=config)) as serving:
        async with open_directory(f"grpc://127.0.0.1:{serving.ports[0]}") as client:
            counts, scopes = [0, 0], [trio.CancelScope(), trio.CancelScope()]
            dead = [trio.Event(), trio.Event()]
            actor = await nursery.start(serve, [_about(Script(actor_that_acts()).actor(), 3)], await _listen())
            await client.register(ServiceKind.ACTOR, GrpcEndpoint("127.0.0.1", actor.ports[0]), PLAYER)
            for number in range(2):
                there = await nursery.start(_serve_environment, number, counts, scopes[number], dead[number])
                await client.register(ServiceKind.ENVIRONMENT, GrpcEndpoint("127.0.0.1", there.ports[0]))
            async with _orchestrator(client) as orchestrator:
                await _run_trial(orchestrator)
                assert counts == [0, 1]  # the newest
                scopes[1].cancel()
                await dead[1].wait()
                if check_on_inquire:
                    await _run_trial(orchestrator)
                else:
                    with trio.fail_after(PATIENCE_SECONDS):
                        while counts == [0, 1]:
                            await _try_trial(orchestrator)
                assert counts[0] == 1
        nursery.cancel_scope.cancel()


async def _listen() -> Any:
    return await open_listeners("127.0.0.1")


def _about(service: Any, kind: int) -> Any:
    """Add `Status` to a service of a test."""
    told = service_of(Told(), kind)
    service.methods.update({name: told.methods[name] for name in ("Status", "Version")})
    return service


async def _serve_environment(
    number: int,
    counts: list[int],
    scope: trio.CancelScope,
    dead: trio.Event,
    task_status: trio.TaskStatus[RunningServer],
) -> None:
    play = environment_of(1)

    async def run(call: Any) -> None:
        counts[number] += 1
        await play(call)

    with scope:
        await serve(
            [_about(Script(run).environment(), ENVIRONMENT)],
            await _listen(),
            task_status=task_status,
        )
    dead.set()


@asynccontextmanager
async def _orchestrator(client: DirectoryClient) -> AsyncIterator[Orchestrator]:
    numbers = iter(range(10**6))
    async with Orchestrator(
        host=Host(wall_clock=lambda: 1, new_id=lambda: f"trial-{next(numbers)}"), directory=client
    ) as orchestrator:
        yield orchestrator


async def _run_trial(orchestrator: Orchestrator) -> None:
    await wait_ended(orchestrator, await orchestrator.start_trial(params=params_of("ann")))


async def _try_trial(orchestrator: Orchestrator) -> None:
    try:
        await _run_trial(orchestrator)
    except (UnavailableError, FailedPreconditionError):
        pass  # the directory does not know yet
