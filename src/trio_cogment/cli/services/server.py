"""Runs the servers of a process until a signal comes, whatever they serve.

What they all have is here: metrics, health and reflection, the directory, the line that says where it listens, and the
orderly stop. `start` has taken their ports before; what one of them serves is its `Application`.
"""

from __future__ import annotations

import ipaddress
import itertools
import logging
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import trio
from purerpc import Service

from trio_cogment.base.host.clock import PerformanceCounter
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.base.tracing import tracing_of_run
from trio_cogment.budget.refusals import CALL_KINDS, refusals
from trio_cogment.cli.configuration import Configuration
from trio_cogment.cli.errors import failure_of
from trio_cogment.cli.services.directory_access import Directory, directory_token, opened_directory, stay_registered
from trio_cogment.cli.services.early_signals import EarlySignals
from trio_cogment.cli.services.garbage import leave, settle
from trio_cogment.cli.services.idle_memory import Tidying, heap_of_process
from trio_cogment.cli.services.ports import announcement, listen, merged
from trio_cogment.cli.services.process import INITIALIZING, READY, StatusFile, Stop, run_until_signal
from trio_cogment.cli.services.settings import ServerSettings
from trio_cogment.cli.services.start import Resources, Running, Start
from trio_cogment.cli.services.web_flags import entrance, open_side, refuses_pages, web_side
from trio_cogment.cli.terminal import on_terminal, say
from trio_cogment.rpc import HealthService, RunningServer, ServerObserver, serve, standard_services
from trio_cogment.rpc.grpc_only import GrpcOnly
from trio_cogment.rpc.tls import RenewableListener

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from trio_cogment.base.metrics.services import ServiceMetrics
    from trio_cogment.cli.tls import Tls
    from trio_cogment.web import PageAccess, WebSide

Sockets: TypeAlias = Sequence[trio.SocketListener] | Sequence[RenewableListener]

#: How long the port stays open for a directory that does not answer when the services are deregistered.
_DEREGISTRATION_SECONDS = 0.5

#: What `serve` is announced as; its welcome lists the services.
_EVERYTHING = "trio-cogment"
#: What the JavaScript SDK calls: the services on the port for pages of any origin.
_FOR_PAGES = tuple(SERVICES[kind].name for kind in (ServiceKind.LIFECYCLE, ServiceKind.CLIENT_ACTOR))
#: The label of the address for the administrator.
_DASHBOARD = "dashboard"

_log = logging.getLogger(__name__)


def serve_until_signal(start: Start, early: EarlySignals) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order, and return.

    Args:
        start: of the process; with a status file it has not begun.
        early: whether a signal has come already.

    Raises:
        Failure: it cannot start.
    """
    failure = trio.run(run_until_signal, partial(_serve, start), early, start.reload, clock=PerformanceCounter())
    if failure is None and (goodbye := start.goodbye()):
        say(goodbye)
    if failure is None and start.settings.log.file is not None:
        _log.info("stopped")
    leave()
    if failure is not None:
        raise failure


async def _serve(start: Start, status: StatusFile, stop: Stop) -> None:
    stop.give_up_seconds = start.application.give_up_seconds
    with stop.starting:
        if start.settings.status_file is not None:
            await status.open(start.settings.status_file)
            status.write(INITIALIZING)
            await trio.to_thread.run_sync(start.prepare, abandon_on_cancel=True)
    if stop.starting.cancelled_caught:
        return
    try:
        await _serve_application(start, status, stop)
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure from None


async def _serve_application(start: Start, status: StatusFile, stop: Stop) -> None:
    settings, application, tls = start.settings, start.application, start.tls
    configuration = settings.configuration
    registry = _registry(settings)
    tokens = refusals().tokens
    figures = _figures(registry, tokens)
    client_tls = None if tls is None else tls.client
    async with (
        _tracing(configuration),
        opened_directory(
            settings.directory,
            client_tls=client_tls,
            configuration=configuration,
            token=directory_token(start.access),
            access=start.access.tokens,
        ) as directory,
        application.open(
            Resources(
                client_tls=client_tls,
                access=start.access,
                directory=directory.client,
                registry=registry,
                figures=figures,
                ports=start.ports.numbers,
            )
        ) as running,
        trio.open_nursery() as nursery,
    ):
        if registry is not None:
            from trio_cogment.web.metrics_endpoint import serve_metrics

            serve_metrics_there = partial(
                serve_metrics,
                config=configuration.metrics,
                permits=start.access.permits_metrics,
                refuses=refuses_pages(settings.web),
            )
            await nursery.start(serve_metrics_there, registry, _listeners(start.ports.metrics))
        servers: list[list[Service]] = merged(application.ports, running.services)
        servers[0].extend(directory.services)
        for service in itertools.chain(*servers):
            tokens[service.name] += 0
        page_access = None if settings.web is None else _page_access(start)
        side = web_side(settings.web, configuration.web, page_access, running.routes)
        pairs = [
            (services, _listeners(sockets, tls, http1=side is not None))
            for services, sockets in zip(servers, start.ports.servers, strict=True)
        ]
        observer = _observer(registry)
        servings, healths = await _start_servers(nursery, pairs, start, observer, side)
        for_pages, more_healths = await _start_for_pages(nursery, servers, start, observer)
        healths += more_healths
        _warn_if_anybody_may_call(start)
        if settings.auth.unsent:
            _log.warning(
                "%s is not used: this server makes its own tokens with --auth_secret_file. To send this one to its "
                "directory, and to the orchestrator it is in front of, use --token_file",
                settings.auth.unsent,
            )
        settle()
        nursery.start_soon(Tidying(heap_of_process()).run, name="memory that is not needed")
        start.goodbye = running.goodbye if application.welcome else str
        announced = _announced(start, servers)
        if not start.draws:
            for line in announced:
                say(line)
        status.write(READY)
        if side is not None:
            nursery.start_soon(side.prepare)
        ready = [application.ready.format(port=servings[0][1].port)] if application.ready else []
        kept = [f"{what}  {where}" for what, where in running.kept.items()]
        if application.welcome is None:
            ready += kept
        for line in ready:
            say(line)
        if settings.log.file is not None:  # on stderr they would stand beside what stdout says
            for line in (*announced, *(ready if application.welcome is None else [*ready, *kept])):
                _log.info("%s", line)
        if side is not None and page_access is not None and running.routes is not None and running.entrance:
            start.renew_entrance = partial(_renew_entrance, start, running, page_access, servings[0][1].port)
            start.renew_entrance()
        registered, unregistered = trio.CancelScope(), trio.Event()

        async def register() -> None:
            try:
                await stay_registered(
                    directory,
                    settings.directory,
                    servings,
                    until=registered,
                    tls=start.serves_tls,
                    own_offers=running.offers,
                    reached_at=running.reached_at,
                )
            finally:
                unregistered.set()

        # The directory calls a service back when it is registered, so the servers have to answer by now.
        nursery.start_soon(register)
        async with _welcomed(start, running, announced):
            await stop.asked.wait()
            if settings.log.file is not None:
                _log.info("stopping (%s)", stop.reason)
            registered.cancel()
            for health in healths:
                health.stop()
            await _say_farewell(running, directory)
            await _stop_serving(directory, unregistered, [*servings, *for_pages])
        nursery.cancel_scope.cancel()


def _page_access(start: Start) -> PageAccess:
    from trio_cogment.web import PageAccess

    seconds = start.settings.configuration.web.page_session_seconds
    return PageAccess(start.access.tokens, session_seconds=seconds)


def _renew_entrance(start: Start, running: Running, access: PageAccess, port: int) -> None:
    """Make the links for people and an address for the administrator: for stdout or the screen, never the log."""
    from trio_cogment.web.page_access import ENTER

    assert start.settings.web is not None
    address = entrance(start.settings.web, start.settings.hosts, port, tls=start.serves_tls)
    first = _DASHBOARD not in start.notes
    told = {} if running.links is None else dict(running.links(access, address))
    if start.access.control is None or on_terminal():
        told[_DASHBOARD] = f"{address}{ENTER}/{access.new_code()} (once)"
    else:  # what services print is kept, and others than administrators may read it
        told[_DASHBOARD] = f"{address}/dashboard (asks for a token)"
    start.notes.update(told)
    if not (start.draws or (first and start.application.welcome is not None)):  # which show it by themselves
        for label, text in told.items():
            say(f"{label}  {text}")


@asynccontextmanager
async def _welcomed(start: Start, running: Running, announced: Sequence[str]) -> AsyncIterator[None]:
    """Show people, for the time of the block, what there is: as lines, or as a screen on a terminal."""
    welcome = start.application.welcome
    if welcome is None:
        yield
        return
    [[first, *_], *_] = start.ports.servers
    host, port = first.getsockname()[:2]
    start.notes.update(running.notes)

    def lines() -> list[str]:
        return welcome.lines(host, port, kept=running.kept, notes=start.notes, needs=start.client_flags)

    if not start.draws or running.controller is None:
        for line in lines():
            say(line)
        yield
        return
    from trio_cogment.cli.services.screen import shown_on_screen

    def header() -> list[str]:
        return [*announced, *lines()]

    async with shown_on_screen(header, running.controller):
        yield


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


def _announced(start: Start, servers: Iterable[Sequence[Service]]) -> list[str]:
    """Return a line for each address at which clients can connect."""
    lines = []
    for services, sockets in zip(servers, start.ports.servers, strict=True):
        if start.application.welcome is not None:
            lines += announcement(_EVERYTHING, sockets, ())
        else:
            lines += announcement(start.application.name, sockets, [_short(service) for service in services])
    return lines + announcement("pages of any origin", start.ports.web, _FOR_PAGES)


def _listeners(sockets: Sequence[socket.socket], tls: Tls | None = None, *, http1: bool = False) -> Any:
    listen(sockets)
    plain = [trio.SocketListener(trio.socket.from_stdlib_socket(one)) for one in sockets]
    if tls is None or tls.server is None:
        return plain
    return [RenewableListener(listener, tls.of_servers, http1=http1) for listener in plain]


def _warn_if_anybody_may_call(start: Start) -> None:
    """Say so once if a stranger in the network can do everything."""
    tls = start.settings.tls
    if start.access.control is not None or (tls is not None and tls.root_cert is not None):
        return
    addresses = [one.getsockname()[0] for sockets in start.ports.servers for one in sockets]
    if not all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses):
        _log.warning(
            "EVERYBODY IN THE NETWORK can read, change and delete everything on this server: it listens on %s and asks "
            "callers for nothing. Use --host=127.0.0.1, or --auth=token with --auth_secret_file, or client "
            "certificates (--root_cert)",
            ", ".join(dict.fromkeys(addresses)),
        )


def _short(service: Service) -> str:
    name: str = service.name
    return name.rpartition(".")[2]


async def _start_servers(
    nursery: trio.Nursery,
    servers: Iterable[tuple[list[Service], Sockets]],
    start: Start,
    observer: ServerObserver | None,
    side: WebSide | None,
) -> tuple[list[tuple[list[Service], RunningServer]], list[HealthService]]:
    settings = start.settings
    servings: list[tuple[list[Service], RunningServer]] = []
    healths: list[HealthService] = []
    for services, sockets in servers:
        # The health of a server covers only the services on its own port.
        health = HealthService(service.name for service in services)
        everything = [*services, *standard_services(services, health, reflection=settings.grpc_reflection)]
        serve_them = partial(
            serve,
            config=settings.configuration.rpc,
            health=health,
            observer=observer,
            access=start.access.control,
            web=side or GrpcOnly(),
        )
        servings.append((services, await nursery.start(serve_them, everything, sockets)))
        healths.append(health)
    return servings, healths


async def _start_for_pages(
    nursery: trio.Nursery,
    servers: Iterable[Iterable[Service]],
    start: Start,
    observer: ServerObserver | None,
) -> tuple[list[tuple[list[Service], RunningServer]], list[HealthService]]:
    """Start the server for pages of any origin, if there is to be one."""
    if not start.ports.web:
        return [], []
    services = [service for service in itertools.chain(*servers) if _short(service) in _FOR_PAGES]
    side = open_side(start.settings.configuration.web)
    return await _start_servers(nursery, [(services, _listeners(start.ports.web))], start, observer, side)


def _tracing(configuration: Configuration) -> AbstractAsyncContextManager[object]:
    if not configuration.tracing.endpoint:
        return nullcontext()
    from trio_cogment.base.tracing import open_tracing

    return open_tracing(configuration.tracing)


def _registry(settings: ServerSettings) -> CollectorRegistry | None:
    if not settings.prometheus_port:
        return None
    from trio_cogment.base.metrics.calls import RefusalMetrics
    from trio_cogment.base.metrics.prometheus import new_registry

    registry = new_registry()
    counts = refusals().counts
    for kind in CALL_KINDS.values():
        counts[kind] += 0  # what may happen is shown before it does
    RefusalMetrics(registry, counts)
    return registry


def _figures(registry: CollectorRegistry | None, refused: Mapping[str, float]) -> ServiceMetrics | None:
    """Return where services add their figures, with those of the process; `refused`: tokens, by service."""
    if registry is None:
        return None
    from trio_cogment.base.metrics.services import ServiceMetrics

    def of_process() -> dict[str, float | dict[str, float]]:
        tracing = tracing_of_run()
        return {} if tracing is None else {"spans": dict(tracing.figures())}

    found = ServiceMetrics(registry)
    found.add("", lambda: {"tokens_refused": dict(refused)})
    found.add("process", of_process)
    return found


def _observer(registry: CollectorRegistry | None) -> ServerObserver | None:
    if registry is None:
        return None
    from trio_cogment.base.metrics.calls import CallMetrics

    return CallMetrics(registry)
