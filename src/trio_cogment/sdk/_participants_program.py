"""`run_participants`: a whole program that serves participants, from its start to an orderly stop."""

from __future__ import annotations

import logging
import os
import signal
import ssl
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial

import trio

from trio_cogment.base.config import RpcConfig, TracingConfig
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.services import SERVICES
from trio_cogment.base.tracing import open_tracing, tracing_of_run
from trio_cogment.rpc import OwnNursery, RunningServer
from trio_cogment.sdk._participant_server import serve_participants
from trio_cogment.sdk._participants import Participants
from trio_cogment.sdk.access_token import access_token_of
from trio_cogment.servers.discovery import SDK, host_finder, keep_registered, open_directory

#: The variables that are read, those of the published SDK and of `trio-cogment participants`.
PORT_VARIABLE = "COGMENT_PARTICIPANTS_PORT"
DIRECTORY_VARIABLE = "COGMENT_DIRECTORY_ENDPOINT"
TOKEN_VARIABLE = "COGMENT_DIRECTORY_AUTHENTICATION_TOKEN"
TRACING_VARIABLE = "COGMENT_TRACING_ENDPOINT"
DEFAULT_PORT = 9001

#: How long trials may go on after the first signal.
STOP_SECONDS = 1.5
#: When after the first signal the process ends, even if a participant in a worker thread does not.
GIVE_UP_SECONDS = 5.0

_HIGHEST_PORT = 65535

_log = logging.getLogger(__name__)


async def run_participants(
    participants: Participants,
    *,
    port: int | None = None,
    address: str = "0.0.0.0",
    tls: ssl.SSLContext | None = None,
    directory: GrpcEndpoint | str | None = None,
    directory_token: str | None = None,
    directory_tls: ssl.SSLContext | None = None,
    access_token: str = "",
    registration_host: str = "",
    registration_properties: Mapping[str, str] | None = None,
    rpc_config: RpcConfig | None = None,
    signals: Collection[int] = (signal.SIGINT, signal.SIGTERM),
    variables: Mapping[str, str] | None = None,
    task_status: trio.TaskStatus[RunningServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve participants until a signal, then stop in order: `trio.run(run_participants, participants)`.

    This is a whole program; `serve_participants` serves within one. When it listens, it prints one line that says
    where. The first signal has the services deregistered, then closes the port, and lets trials go on for
    `STOP_SECONDS`; then it returns, and Control-C shows no traceback. A second signal ends the process at once, with
    128 and its number as exit code. So do `GIVE_UP_SECONDS`, with 1, if a participant that is an ordinary function
    still computes then. After `Cancelled` all of that has been done without the wait for trials. With
    `COGMENT_TRACING_ENDPOINT` the sessions are spans, sent there; see `trio_cogment.base.tracing`.

    Args:
        participants: the implementations.
        port: the TCP port, 0 for any free one; None: that of `COGMENT_PARTICIPANTS_PORT`, or 9001.
        address: the address to listen on.
        tls: encrypt; see `serve_participants`.
        directory: the endpoint of the directory, `grpc://host:port`; None: that of `COGMENT_DIRECTORY_ENDPOINT`, or no
            directory.
        directory_token: see `trio_cogment.servers.discovery.open_directory`; None: that of
            `COGMENT_DIRECTORY_AUTHENTICATION_TOKEN`.
        directory_tls: encrypts the calls to the directory.
        access_token: says to the directory who registers, if it asks for tokens; by default that of `COGMENT_TOKEN`, or
            in the file that `COGMENT_TOKEN_FILE` names.
        registration_host: the name or address under which others reach this server; by default its own address.
        registration_properties: properties of all registrations, in addition to those of the implementations.
        rpc_config: limits and timeouts.
        signals: those that stop it. Signals can be received in the main thread only; elsewhere give none.
        variables: the environment variables; by default those of the process.
        task_status: `started` gets a `RunningServer` when the port is open.

    Raises:
        OSError: the port is in use.
        EndpointError: the endpoint of the directory is not `grpc://host:port`.
        InvalidArgumentError: a variable has an invalid value.
    """
    variables = os.environ if variables is None else variables
    port = _port(variables.get(PORT_VARIABLE, "")) if port is None else port
    directory = directory or variables.get(DIRECTORY_VARIABLE, "").strip()
    token = variables.get(TOKEN_VARIABLE, "") if directory_token is None else directory_token
    traces = variables.get(TRACING_VARIABLE, "").strip()
    async with AsyncExitStack() as opened:
        if traces and tracing_of_run() is None:
            config = TracingConfig(endpoint=traces)
            await opened.enter_async_context(open_tracing(config, service="trio-cogment-participants"))
        received = opened.enter_context(_receiver(signals))
        ending = await opened.enter_async_context(OwnNursery())
        opened.callback(ending.cancel_scope.cancel)
        client = None
        if directory:
            open_it = open_directory(
                directory,
                token=token,
                access_token=await access_token_of(access_token, variables),
                tls=directory_tls,
                rpc_config=rpc_config,
            )
            client = await opened.enter_async_context(open_it)
        nursery = await opened.enter_async_context(OwnNursery())
        serve = partial(serve_participants, participants, port=port, address=address, tls=tls, rpc_config=rpc_config)
        serving: RunningServer = await nursery.start(serve)
        task_status.started(serving)
        names = ", ".join(SERVICES[kind].name for kind in SERVICES if kind in participants.kinds())
        for where in serving.addresses:
            print(f"participants listening on {where.partition(':')[2]} ({names})", flush=True)
        async with trio.open_nursery() as registering:
            if client is not None:
                register = partial(
                    keep_registered,
                    registration_host=registration_host,
                    ssl=tls is not None,
                    properties=registration_properties,
                    source=SDK,
                    find_host=host_finder(serving.addresses),
                )
                registering.start_soon(register, client, participants.offers(serving.port))
            await anext(received)
            ending.start_soon(_end_process, received)
            registering.cancel_scope.cancel()
        # Nobody is sent here any more, and the port may close.
        # Sessions that are left are cancelled; a drain that runs out of time would end their calls with errors.
        with trio.move_on_after(STOP_SECONDS):
            await serving.drain(2 * STOP_SECONDS)
        nursery.cancel_scope.cancel()


def _port(text: str) -> int:
    if not text.strip():
        return DEFAULT_PORT
    if text.strip().isdecimal() and int(text) <= _HIGHEST_PORT:
        return int(text)
    raise InvalidArgumentError(f"{PORT_VARIABLE}: expected a port from 0 to {_HIGHEST_PORT}, got {text!r}")


@contextmanager
def _receiver(signals: Collection[int]) -> Iterator[AsyncIterator[int]]:
    if not signals:
        send, receive = trio.open_memory_channel[int](0)
        with send, receive:
            yield receive
        return
    with trio.open_signal_receiver(*signals) as received:
        yield received


async def _end_process(received: AsyncIterator[int]) -> None:
    """End the process at the next signal, or when the stop takes too long: nothing else ends a thread."""
    with trio.move_on_after(GIVE_UP_SECONDS):
        number = await anext(received)
        os._exit(128 + number)
    _log.warning(
        "a participant has not ended %g seconds after the signal: its function does not use its session; the process "
        "ends without it",
        GIVE_UP_SECONDS,
    )
    os._exit(1)
