"""Running an orchestrator until a signal comes."""

from __future__ import annotations

import logging
import os
import signal
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import trio
from purerpc import Service

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.cli._directory import opened_directory, stay_registered
from trio_cogment.cli._logs import set_up_logging
from trio_cogment.cli._settings import Failure, ServerSettings
from trio_cogment.cli._status_file import INITIALIZING, READY, StatusFile
from trio_cogment.cli._tls import Tls, load_tls
from trio_cogment.config import RpcConfig
from trio_cogment.directory import ClientEndpoint, DiscoverEndpoint, parse_endpoint
from trio_cogment.errors import CogmentError
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import HealthService, Serving, open_listeners, serve, standard_services
from trio_cogment.spec import load_params
from trio_cogment.trial import validate_params

#: What the goodbye may take before everything is cancelled; with the farewells that follow a stop stays below 5 s.
STOP_SECONDS = 1.5

if TYPE_CHECKING:
    from trio_cogment.metrics.prometheus import PrometheusMetrics

_log = logging.getLogger(__name__)

_Sockets = Sequence[trio.SocketListener] | Sequence[trio.SSLListener[trio.SocketStream]]


def run_orchestrator(settings: ServerSettings) -> None:
    """Serve until SIGTERM or SIGINT, then end the trials, tell everybody, and return.

    Raises:
        Failure: it cannot start.
    """
    set_up_logging(settings.log)
    failure = trio.run(_until_signal, settings)
    if failure is not None:
        raise failure


async def _until_signal(settings: ServerSettings) -> Failure | None:
    """Return why it could not start, None after a signal."""
    failure: Failure | None = None
    status, stop = _Status(), _Stop()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_signals, signals, stop, status)
            try:
                with stop.finished:
                    await _serve(settings, status, stop)
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


async def _serve(settings: ServerSettings, status: _Status, stop: _Stop) -> None:
    listeners = _Listeners()
    with stop.starting:
        if settings.status_file is not None:
            await status.open(settings.status_file)
        status.write(INITIALIZING)
        tls = None if settings.tls is None else load_tls(settings.tls)
        _check_hooks(settings.pre_trial_hooks, discovery=settings.directory is not None)
        params = _load_params(settings)
        await listeners.open(settings, None if tls is None else tls.server)
    if stop.starting.cancelled_caught:
        return
    try:
        await _serve_platform(settings, params, tls, listeners, status, stop)
    except CogmentError as error:
        raise Failure(str(error)) from error
    finally:
        listeners.close()


async def _serve_platform(
    settings: ServerSettings,
    params: TrialParams | None,
    tls: Tls | None,
    listeners: _Listeners,
    status: _Status,
    stop: _Stop,
) -> None:
    configuration = settings.configuration
    metrics = _metrics(settings)
    client_tls = None if tls is None else tls.client
    async with (
        opened_directory(settings.directory, client_tls=client_tls, configuration=configuration) as directory,
        open_platform(
            config=configuration.orchestrator,
            rpc_config=configuration.rpc,
            default_params=params,
            pre_trial_hooks=settings.pre_trial_hooks,
            directory=directory,
            client_tls=client_tls,
            metrics=metrics,
        ) as platform,
        trio.open_nursery() as nursery,
    ):
        if metrics is not None:
            from trio_cogment.metrics.endpoint import serve_metrics

            serve_them = partial(serve_metrics, config=configuration.metrics)
            await nursery.start(serve_them, metrics.registry, listeners.metrics)
        servings, healths = await _start_servers(nursery, platform, listeners, configuration.rpc)
        status.write(READY)
        for services, serving in servings:
            _announce(services, serving)
        registered = trio.CancelScope()
        # The directory calls our services back when they are registered: now they answer.
        register = partial(stay_registered, until=registered, tls=tls is not None)
        nursery.start_soon(register, directory, settings.directory, servings)
        await stop.asked.wait()
        registered.cancel()
        for health in healths:
            health.stop()
        # Everybody hears how it ended, then the connections are closed in order; all of it within STOP_SECONDS.
        await platform.orchestrator.stop()
        async with trio.open_nursery() as drains:
            for _, serving in servings:
                drains.start_soon(serving.drain)
        nursery.cancel_scope.cancel()


async def _start_servers(
    nursery: trio.Nursery, platform: Platform, listeners: _Listeners, config: RpcConfig
) -> tuple[list[tuple[list[Service], Serving]], list[HealthService]]:
    servings: list[tuple[list[Service], Serving]] = []
    healths: list[HealthService] = []
    for services, sockets in _shared_out(platform, listeners.servers):
        # Each server speaks for itself: what another port serves is unknown here.
        health = HealthService(service.name for service in services)
        everything = [*services, *standard_services(services, health)]
        start = partial(serve, config=config, health=health)
        servings.append((services, await nursery.start(start, everything, sockets)))
        healths.append(health)
    return servings, healths


def _metrics(settings: ServerSettings) -> PrometheusMetrics | None:
    if not settings.prometheus_port:
        return None
    from trio_cogment.metrics.prometheus import PrometheusMetrics

    return PrometheusMetrics(settings.configuration.metrics)


class _Listeners:
    """The sockets of our servers: those of one or of two, as the same port twice, also 0 and 0, means one."""

    def __init__(self) -> None:
        self.servers: list[_Sockets] = []
        self.metrics: list[trio.SocketListener] = []

    async def open(self, settings: ServerSettings, tls: ssl.SSLContext | None) -> None:
        """Bind everything; nothing is left open when that fails.

        Raises:
            Failure: naming the address.
        """
        ports = dict.fromkeys([settings.lifecycle_port, settings.actor_port])
        listen: Any = open_listeners  # which kind it returns hangs on `tls`
        try:
            for port in ports:
                self.servers.append(await listen(settings.hosts, port, tls=tls))
            if settings.prometheus_port:
                self.metrics = await open_listeners(settings.hosts, settings.prometheus_port)
        except (OSError, UnicodeError) as error:
            self.close()
            raise Failure(_cannot_listen(error, settings.hosts)) from error

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


def _load_params(settings: ServerSettings) -> TrialParams | None:
    if settings.params is None:
        return None
    try:
        params = load_params(settings.params)
        problem = _problem(params, discovery=settings.directory is not None)
    except CogmentError as error:
        raise Failure(f"--params: {error}") from error
    if problem is None:
        return params
    text = f"--params: {settings.params}: {problem}"
    # Hooks may mend anything, and with no actors at all it may be meant for starters that bring their own.
    if params.actors and not settings.pre_trial_hooks:
        raise Failure(text)
    _log.warning("%s", text)
    return params


def _problem(params: TrialParams, *, discovery: bool) -> str | None:
    """Return why no trial could start with these parameters as they are."""
    try:
        checked = validate_params(params)
        fields = {f"actors[{number}].endpoint": actor.endpoint for number, actor in enumerate(checked.actors)}
        fields["environment.endpoint"] = checked.environment.endpoint
        if checked.datalog.endpoint:  # an empty one means that there is no data log
            fields["datalog.endpoint"] = checked.datalog.endpoint
        for name, endpoint in fields.items():
            parsed = parse_endpoint(endpoint, field_name=name)
            if isinstance(parsed, ClientEndpoint) and not name.startswith("actors"):
                return f"trial_params.{name}: cogment://client is for actors only"
            if isinstance(parsed, DiscoverEndpoint) and not discovery:
                return f"trial_params.{name}: {parsed}: discovery needs a directory (--directory_endpoint)"
    except CogmentError as error:
        return f"trial_params.{error}"
    return None


def _check_hooks(endpoints: Iterable[str], *, discovery: bool) -> None:
    """Refuse now what could only fail at every start of a trial: nothing is registered in this process.

    Raises:
        Failure: naming the hook.
    """
    for number, text in enumerate(endpoints):
        name = f"pre_trial_hooks[{number}]"
        try:
            endpoint = parse_endpoint(text, field_name=name)
        except CogmentError as error:
            raise Failure(str(error)) from error
        if isinstance(endpoint, ClientEndpoint):
            raise Failure(f"{name}: {text!r}: expected grpc://host:port or cogment://discover")
        if isinstance(endpoint, DiscoverEndpoint) and not discovery:
            raise Failure(f"{name}: {endpoint}: discovery needs a directory (--directory_endpoint)")


def _shared_out(platform: Platform, listeners: Sequence[_Sockets]) -> Iterable[tuple[list[Service], _Sockets]]:
    services = list(platform.services)
    if len(listeners) == 1:
        return [(services, listeners[0])]
    return [([service], sockets) for service, sockets in zip(services, listeners, strict=True)]


def _announce(services: Iterable[Service], serving: Serving) -> None:
    names = ", ".join(service.name.rpartition(".")[2] for service in services)
    for address in serving.addresses:
        # `ipv4:127.0.0.1:9000`, in gRPC's notation.
        line = f"orchestrator listening on {address.partition(':')[2]} ({names})"
        _log.info("%s", line)
        try:
            click.echo(line)
        except BrokenPipeError:
            return  # nobody wants to know
        except OSError as error:
            # A full disk under our output is no reason to stop what is ready to serve.
            _log.warning("cannot print where it listens: %s", error)
            return
