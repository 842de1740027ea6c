"""Running an orchestrator until a signal comes."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import click
import trio
from purerpc import Service

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.cli._directory import opened_directory, stay_registered
from trio_cogment.cli._logs import set_up_logging
from trio_cogment.cli._options import Failure, ServerSettings
from trio_cogment.cli._status_file import INITIALIZING, READY, StatusFile
from trio_cogment.directory import ClientEndpoint, DiscoverEndpoint, parse_endpoint
from trio_cogment.errors import CogmentError
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import HealthService, Serving, open_listeners, serve, standard_services
from trio_cogment.spec import load_params

#: What the goodbye may take before everything is cancelled; with the farewells that follow a stop stays below 5 s.
STOP_SECONDS = 1.5

_log = logging.getLogger(__name__)

_Sockets = Sequence[trio.SocketListener]


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
    with stop.starting:
        if settings.status_file is not None:
            await status.open(settings.status_file)
        status.write(INITIALIZING)
        params = _load_params(settings.params)
        _check_hooks(settings.pre_trial_hooks, discovery=settings.directory is not None)
        listeners = await _listen(settings)
    if stop.starting.cancelled_caught:
        return
    try:
        async with (
            opened_directory(settings.directory) as directory,
            open_platform(
                default_params=params, pre_trial_hooks=settings.pre_trial_hooks, directory=directory
            ) as platform,
            trio.open_nursery() as nursery,
        ):
            health = HealthService(service.name for service in platform.services)
            servings = [
                (services, await nursery.start(serve, [*services, *standard_services(services, health)], sockets))
                for services, sockets in _shared_out(platform, listeners)
            ]
            status.write(READY)
            for services, serving in servings:
                _announce(services, serving)
            # The directory calls our services back when they are registered: now they answer.
            registered = trio.CancelScope()
            nursery.start_soon(stay_registered, directory, settings.directory, servings, registered)
            await stop.asked.wait()
            registered.cancel()
            health.stop()
            await platform.orchestrator.stop()
            nursery.cancel_scope.cancel()
    except CogmentError as error:
        raise Failure(str(error)) from error
    finally:
        _close(listeners)


def _close(listeners: Iterable[_Sockets]) -> None:
    for sockets in listeners:
        for listener in sockets:
            listener.socket.close()


def _load_params(path: Path | None) -> TrialParams | None:
    if path is None:
        return None
    try:
        return load_params(path)
    except CogmentError as error:
        raise Failure(f"--params: {error}") from error


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


async def _listen(settings: ServerSettings) -> list[_Sockets]:
    """Return the sockets of one server or of two: the same port twice, also 0 and 0, means one."""
    ports = dict.fromkeys([settings.lifecycle_port, settings.actor_port])
    found: list[_Sockets] = []
    try:
        for port in ports:
            found.append(await open_listeners(settings.host, port))
    except (OSError, UnicodeError) as error:
        _close(found)
        raise Failure(_cannot_listen(error, settings.host)) from error
    return found


def _cannot_listen(error: OSError | UnicodeError, host: str) -> str:
    # A message of `open_listeners` names the address; what looking up a name raises does not.
    text = (error.strerror if isinstance(error, OSError) else "no host's name looks like that") or str(error)
    return text if text.startswith("cannot listen") else f"cannot listen on {host}: {text}"


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
