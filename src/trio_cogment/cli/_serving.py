"""Running a server process of ours until a signal comes, whatever it serves.

What all of them have is here: the status file, TLS, sockets, metrics, health and reflection, the directory, the line
that says where they listen, and the goodbye. What one of them serves is its `Program`.
"""

from __future__ import annotations

import logging
import os
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import trio
from purerpc import Service

from trio_cogment.cli._directory import opened_directory, stay_registered
from trio_cogment.cli._failures import failure_of
from trio_cogment.cli._logs import set_up_logging
from trio_cogment.cli._settings import Failure, ServerSettings
from trio_cogment.cli._sockets import Listeners, Sockets
from trio_cogment.cli._status_file import INITIALIZING, READY, StatusFile
from trio_cogment.cli._tls import Tls, load_tls
from trio_cogment.discovery import DirectoryClient
from trio_cogment.rpc import HealthService, ServerObserver, Serving, serve, standard_services

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: What the goodbye may take before everything is cancelled; with the farewells that follow a stop stays below 5 s.
STOP_SECONDS = 1.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a program gets from the process that runs it.

    Attributes:
        client_tls: encrypts every call that goes out.
        directory: the one we were told about, whether or not it can be reached.
        registry: where metrics go, if anybody asks for them.
    """

    client_tls: ssl.SSLContext | None = None
    directory: DirectoryClient | None = None
    registry: CollectorRegistry | None = None


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A program that can be served.

    Attributes:
        services: for each of the program's ports those that are served there.
        stop: lets everybody hear how it ended, before connections are drained; cancelled when a stop takes too long.
    """

    services: Sequence[Sequence[Service]]
    stop: Callable[[], Awaitable[None]] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a server process is for.

    Attributes:
        name: as it is announced.
        ready: a line that is printed besides when it serves, with `{port}` in it.
        ports: the same port twice, also 0 and 0, means one server for both.
        open: opened when the ports are bound, left when the connections are drained, or with what went wrong. What it
            raises on purpose (`Failure`, `CogmentError`) ends the process with one line.
    """

    name: str
    ready: str = ""
    ports: Sequence[int]
    open: Callable[[Surroundings], AbstractAsyncContextManager[Running]]


def run_server(settings: ServerSettings, prepare: Callable[[], Program]) -> None:
    """Serve until SIGTERM or SIGINT, then say goodbye, and return.

    Args:
        settings: what every server has.
        prepare: reads the files and checks what can be checked before a port is bound; it raises `Failure`.

    Raises:
        Failure: it cannot start.
    """
    set_up_logging(settings.log)
    failure = trio.run(_until_signal, settings, prepare)
    if failure is not None:
        raise failure


async def _until_signal(settings: ServerSettings, prepare: Callable[[], Program]) -> Failure | None:
    """Return why it could not start, None after a signal."""
    failure: Failure | None = None
    status, stop = _Status(), _Stop()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_signals, signals, stop, status)
            try:
                with stop.finished:
                    await _serve(settings, prepare, status, stop)
            except Failure as error:
                failure = error
            finally:
                status.close()
            nursery.cancel_scope.cancel()
    return failure


class _Stop:
    """What a signal does: starting is given up at once, serving gets a chance to say goodbye."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.starting = trio.CancelScope()
        self.finished = trio.CancelScope()

    async def run(self) -> None:
        self.asked.set()
        self.starting.cancel()
        await trio.sleep(STOP_SECONDS)
        self.finished.cancel()


class _Status:
    """The status file, if one is wanted, once it is open."""

    def __init__(self) -> None:
        self._file: StatusFile | None = None

    async def open(self, path: Path) -> None:
        try:
            # A FIFO opens when somebody reads it; a signal must be able to end the wait.
            self._file = await trio.to_thread.run_sync(StatusFile, path, abandon_on_cancel=True)
        except OSError as error:
            raise Failure(f"--status_file: {path}: {error.strerror or error}") from error

    def write(self, letter: bytes) -> None:
        if self._file is not None:
            self._file.write(letter)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


async def _watch_signals(signals: AsyncIterator[int], stop: _Stop, status: _Status) -> None:
    await anext(signals)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop.run)
        async for number in signals:
            # Asked twice: nothing is worth waiting for.
            status.close()
            os._exit(128 + number)


async def _serve(settings: ServerSettings, prepare: Callable[[], Program], status: _Status, stop: _Stop) -> None:
    listeners = Listeners()
    with stop.starting:
        if settings.status_file is not None:
            await status.open(settings.status_file)
        status.write(INITIALIZING)
        tls = None if settings.tls is None else load_tls(settings.tls)
        program = prepare()
        await listeners.open(
            settings.hosts,
            dict.fromkeys(program.ports),
            metrics_port=settings.prometheus_port,
            tls=None if tls is None else tls.server,
        )
    if stop.starting.cancelled_caught:
        return
    try:
        await _serve_program(settings, program, tls, listeners, status, stop)
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure from None
    finally:
        listeners.close()


async def _serve_program(
    settings: ServerSettings, program: Program, tls: Tls | None, listeners: Listeners, status: _Status, stop: _Stop
) -> None:
    configuration = settings.configuration
    registry = _registry(settings)
    client_tls = None if tls is None else tls.client
    async with (
        opened_directory(settings.directory, client_tls=client_tls, configuration=configuration) as directory,
        program.open(Surroundings(client_tls=client_tls, directory=directory.client, registry=registry)) as running,
        trio.open_nursery() as nursery,
    ):
        if registry is not None:
            from trio_cogment.metrics.endpoint import serve_metrics

            serve_them = partial(serve_metrics, config=configuration.metrics)
            await nursery.start(serve_them, registry, listeners.metrics)
        servers = _servers(program.ports, running.services)
        servers[0].extend(directory.services)
        shared_out = zip(servers, listeners.servers, strict=True)
        servings, healths = await _start_servers(nursery, shared_out, settings, _observer(registry))
        status.write(READY)
        for services, serving in servings:
            _announce(program, services, serving)
        registered, unregistered = trio.CancelScope(), trio.Event()

        async def register() -> None:
            try:
                await stay_registered(directory, settings.directory, servings, until=registered, tls=tls is not None)
            finally:
                unregistered.set()

        # The directory calls our services back when they are registered: now they answer.
        nursery.start_soon(register)
        await stop.asked.wait()
        registered.cancel()
        for health in healths:
            health.stop()
        # Everybody hears how it ended, then the connections are closed in order; all of it within STOP_SECONDS.
        await running.stop()
        if directory.server is not None:
            # It takes nobody's registration back any more when it stops, ours included.
            await unregistered.wait()
            directory.server.stop()
        async with trio.open_nursery() as drains:
            for _, serving in servings:
                drains.start_soon(serving.drain)
        nursery.cancel_scope.cancel()


def _servers(ports: Sequence[int], services: Sequence[Sequence[Service]]) -> list[list[Service]]:
    """Return what each server has: one for each port that differs."""
    found: dict[int, list[Service]] = {}
    for port, some in zip(ports, services, strict=True):
        found.setdefault(port, []).extend(some)
    return list(found.values())


async def _start_servers(
    nursery: trio.Nursery,
    servers: Iterable[tuple[list[Service], Sockets]],
    settings: ServerSettings,
    observer: ServerObserver | None,
) -> tuple[list[tuple[list[Service], Serving]], list[HealthService]]:
    servings: list[tuple[list[Service], Serving]] = []
    healths: list[HealthService] = []
    for services, sockets in servers:
        # Each server speaks for itself: what another port serves is unknown here.
        health = HealthService(service.name for service in services)
        everything = [*services, *standard_services(services, health, reflection=settings.grpc_reflection)]
        start = partial(serve, config=settings.configuration.rpc, health=health, observer=observer)
        servings.append((services, await nursery.start(start, everything, sockets)))
        healths.append(health)
    return servings, healths


def _registry(settings: ServerSettings) -> CollectorRegistry | None:
    if not settings.prometheus_port:
        return None
    from trio_cogment.metrics.prometheus import new_registry

    return new_registry()


def _observer(registry: CollectorRegistry | None) -> ServerObserver | None:
    if registry is None:
        return None
    from trio_cogment.metrics.calls import CallMetrics

    return CallMetrics(registry)


def _announce(program: Program, services: Iterable[Service], serving: Serving) -> None:
    served = ", ".join(service.name.rpartition(".")[2] for service in services)
    # `ipv4:127.0.0.1:9000`, in gRPC's notation.
    where = [address.partition(":")[2] for address in serving.addresses]
    lines = [f"{program.name} listening on {address} ({served})" for address in where]
    if program.ready:
        lines.append(program.ready.format(port=serving.port))
    for line in lines:
        _log.info("%s", line)
        try:
            click.echo(line)
        except BrokenPipeError:
            return  # nobody wants to know
        except OSError as error:
            # A full disk under our output is no reason to stop what is ready to serve.
            _log.warning("cannot print where it listens: %s", error)
            return
