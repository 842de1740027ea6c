"""Runs the servers of a process until a signal comes, whatever they serve.

What they all have is here: TLS, sockets, metrics, health and reflection, the directory, the line that says where they
listen, and the orderly stop. What one of them serves is its `Application`.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import click
import trio
from purerpc import Service

from trio_cogment.cli.errors import Failure, failure_of
from trio_cogment.cli.logs import set_up_logging
from trio_cogment.cli.services.directory_access import Directory, opened_directory, stay_registered
from trio_cogment.cli.services.process import INITIALIZING, READY, StatusFile, Stop, run_until_signal
from trio_cogment.cli.services.settings import ServerSettings
from trio_cogment.cli.tls import Tls, load_tls
from trio_cogment.discovery import DirectoryClient, Offer
from trio_cogment.rpc import HealthService, RunningServer, ServerObserver, open_listeners, serve, standard_services

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Sockets: TypeAlias = Sequence[trio.SocketListener] | Sequence[trio.SSLListener[trio.SocketStream]]

#: How long the port stays open for a directory that does not answer when the services are deregistered.
_DEREGISTRATION_SECONDS = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What an application gets from the process that runs it.

    Attributes:
        client_tls: encrypts every call to other services.
        directory: the directory that the flags name, whether or not it can be reached.
        registry: where metrics go; None: there are no metrics.
    """

    client_tls: ssl.SSLContext | None = None
    directory: DirectoryClient | None = None
    registry: CollectorRegistry | None = None


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An application that is ready to be served.

    Attributes:
        services: for each of the application's ports, the services there.
        offers: gives what is registered with a directory, for a port; None: the services of the platform's own kinds.
        stop: tells peers how it ended, before connections are drained; cancelled when a stop takes too long.
    """

    services: Sequence[Sequence[Service]]
    offers: Callable[[int], Sequence[Offer]] | None = None
    stop: Callable[[], Awaitable[None]] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What a server process serves.

    Attributes:
        name: as it is announced.
        ready: a line that is printed too when it serves, with `{port}` in it, that of its first server.
        ports: the same port twice, also 0 and 0, means one server for both.
        open: entered when the ports are bound; left when the connections are drained, or with the error. The errors it
            expects (`Failure`, `CogmentError`) end the process with one line.
    """

    name: str
    ready: str = ""
    ports: Sequence[int]
    open: Callable[[Resources], AbstractAsyncContextManager[Running]]


def run_server(settings: ServerSettings, prepare: Callable[[], Application]) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order, and return.

    Args:
        settings: what every server has.
        prepare: reads the files and checks what can be checked before a port is bound; it raises `Failure`.

    Raises:
        Failure: it cannot start.
    """
    set_up_logging(settings.log)
    failure = trio.run(run_until_signal, partial(_serve, settings, prepare))
    if failure is not None:
        raise failure


async def _serve(settings: ServerSettings, prepare: Callable[[], Application], status: StatusFile, stop: Stop) -> None:
    listeners = Listeners()
    with stop.starting:
        if settings.status_file is not None:
            await status.open(settings.status_file)
        status.write(INITIALIZING)
        tls = None if settings.tls is None else load_tls(settings.tls)
        application = prepare()
        await listeners.open(
            settings.hosts,
            dict.fromkeys(application.ports),
            metrics_port=settings.prometheus_port,
            tls=None if tls is None else tls.server,
        )
    if stop.starting.cancelled_caught:
        return
    try:
        await _serve_application(settings, application, tls, listeners, status, stop)
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure from None
    finally:
        listeners.close()


async def _serve_application(
    settings: ServerSettings,
    application: Application,
    tls: Tls | None,
    listeners: Listeners,
    status: StatusFile,
    stop: Stop,
) -> None:
    configuration = settings.configuration
    registry = _registry(settings)
    client_tls = None if tls is None else tls.client
    async with (
        opened_directory(settings.directory, client_tls=client_tls, configuration=configuration) as directory,
        application.open(Resources(client_tls=client_tls, directory=directory.client, registry=registry)) as running,
        trio.open_nursery() as nursery,
    ):
        if registry is not None:
            from trio_cogment.metrics.endpoint import serve_metrics

            serve_them = partial(serve_metrics, config=configuration.metrics)
            await nursery.start(serve_them, registry, listeners.metrics)
        servers = _servers(application.ports, running.services)
        servers[0].extend(directory.services)
        pairs = zip(servers, listeners.servers, strict=True)
        servings, healths = await _start_servers(nursery, pairs, settings, _observer(registry))
        status.write(READY)
        for services, serving in servings:
            _announce(application, services, serving)
        if application.ready:
            _print(application.ready.format(port=servings[0][1].port))
        registered, unregistered = trio.CancelScope(), trio.Event()

        async def register() -> None:
            try:
                await stay_registered(
                    directory,
                    settings.directory,
                    servings,
                    until=registered,
                    tls=tls is not None,
                    own_offers=running.offers,
                )
            finally:
                unregistered.set()

        # The directory calls a service back when it is registered, so the servers have to answer by now.
        nursery.start_soon(register)
        await stop.asked.wait()
        registered.cancel()
        for health in healths:
            health.stop()
        await _say_farewell(running, directory)
        await _stop_serving(directory, unregistered, servings)
        nursery.cancel_scope.cancel()


async def _say_farewell(running: Running, directory: Directory) -> None:
    """Stop the application; meanwhile, others may deregister with the directory in this process."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.stop)
        if directory.server is not None:
            nursery.start_soon(directory.server.farewell)


async def _stop_serving(
    directory: Directory, unregistered: trio.Event, servings: Iterable[tuple[list[Service], RunningServer]]
) -> None:
    """Stop the process's own directory, and drain the connections of all servers."""
    if directory.server is not None:
        # Once stopped it deregisters nothing any more, not even the services of this process.
        await unregistered.wait()
        directory.server.stop()
    else:
        # Who asks the directory until then is sent to a port that is open.
        with trio.move_on_after(_DEREGISTRATION_SECONDS):
            await unregistered.wait()
    async with trio.open_nursery() as drains:
        for _, serving in servings:
            drains.start_soon(serving.drain)


def _servers(ports: Sequence[int], services: Sequence[Sequence[Service]]) -> list[list[Service]]:
    """Return the services of each server; there is one for each distinct port."""
    found: dict[int, list[Service]] = {}
    for port, some in zip(ports, services, strict=True):
        found.setdefault(port, []).extend(some)
    return list(found.values())


async def _start_servers(
    nursery: trio.Nursery,
    servers: Iterable[tuple[list[Service], Sockets]],
    settings: ServerSettings,
    observer: ServerObserver | None,
) -> tuple[list[tuple[list[Service], RunningServer]], list[HealthService]]:
    servings: list[tuple[list[Service], RunningServer]] = []
    healths: list[HealthService] = []
    for services, sockets in servers:
        # The health of a server covers only the services on its own port.
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


def _announce(application: Application, services: Iterable[Service], serving: RunningServer) -> None:
    served = ", ".join(service.name.rpartition(".")[2] for service in services)
    # `ipv4:127.0.0.1:9000`, in gRPC's notation.
    for address in serving.addresses:
        _print(f"{application.name} listening on {address.partition(':')[2]} ({served})")


def _print(line: str) -> None:
    """Log a line, and print it for those who wait for it."""
    _log.info("%s", line)
    try:
        click.echo(line)
    except BrokenPipeError:
        pass  # the reader of the output has gone
    except OSError as error:
        # A full disk does not stop a server that is ready.
        _log.warning("cannot print where it listens: %s", error)


# Sockets


class Listeners:
    """The sockets of a process.

    Attributes:
        servers: the sockets of each server, in the order of their ports.
        metrics: the sockets of the metrics.
    """

    def __init__(self) -> None:
        self.servers: list[Sockets] = []
        self.metrics: list[trio.SocketListener] = []

    async def open(
        self, hosts: Sequence[str], ports: Iterable[int], *, metrics_port: int, tls: ssl.SSLContext | None
    ) -> None:
        """Bind all ports; none is left open when one cannot be bound.

        Args:
            hosts: where to listen.
            ports: one for each server; 0 means any free one.
            metrics_port: 0 means no metrics.
            tls: of the servers; the metrics are never encrypted.

        Raises:
            Failure: naming the address.
        """
        listen: Any = open_listeners  # its type depends on `tls`
        try:
            for port in ports:
                self.servers.append(await listen(hosts, port, tls=tls))
            if metrics_port:
                self.metrics = await open_listeners(hosts, metrics_port)
        except (OSError, UnicodeError) as error:
            self.close()
            raise Failure(_cannot_listen(error, hosts)) from error

    def close(self) -> None:
        """Close what is still open."""
        for sockets in (*self.servers, self.metrics):
            for listener in sockets:
                plain = listener.transport_listener if isinstance(listener, trio.SSLListener) else listener
                assert isinstance(plain, trio.SocketListener)
                plain.socket.close()


def _cannot_listen(error: OSError | UnicodeError, hosts: Sequence[str]) -> str:
    # A message of `open_listeners` names the address; what looking up a name raises does not.
    text = (error.strerror if isinstance(error, OSError) else "no host's name looks like that") or str(error)
    return text if text.startswith("cannot listen") else f"cannot listen on {', '.join(hosts)}: {text}"
