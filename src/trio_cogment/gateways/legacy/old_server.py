"""An old server of agents or environments: the calls to it, one after the other."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from trio_cogment.api.legacy import agent_pb2, data_pb2, environment_pb2, hooks_pb2
from trio_cogment.base.endpoints import parse_server_endpoint
from trio_cogment.base.errors import FailedPreconditionError, RpcError, StatusCode, UnavailableError, of_peer
from trio_cogment.base.host import Host
from trio_cogment.gateways.legacy.messages import CallOut
from trio_cogment.rpc import CallOpener, ClientCall, Method, RpcConfig, methods_of, open_channel
from trio_cogment.rpc.calls import OnReply

_log = logging.getLogger(__name__)

AGENT = methods_of(agent_pb2.DESCRIPTOR.services_by_name["Agent"])
ENVIRONMENT = methods_of(environment_pb2.DESCRIPTOR.services_by_name["Environment"])
HOOKS = methods_of(hooks_pb2.DESCRIPTOR.services_by_name["TrialHooks"])
LOG = methods_of(data_pb2.DESCRIPTOR.services_by_name["LogExporter"])

#: Statuses that do not say whether the server has taken the call.
_UNCERTAIN = frozenset({StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED})
#: Of the text of a server.
_TEXT_CHARACTERS = 300


class RefusedError(FailedPreconditionError):
    """An old server has answered a call with an error of its own."""


class OldServer:
    """A server to be called for one participant of one trial.

    Args:
        opener: a channel to it.
        name: of the server, for errors.
        methods: of its service.
        call_timeout_seconds: how long an answer may take; 0: as long as it takes.
    """

    def __init__(
        self, opener: CallOpener, name: str, methods: Mapping[str, Method], call_timeout_seconds: float
    ) -> None:
        self.name = name
        self._opener = opener
        self._methods = methods
        self._timeout = call_timeout_seconds or None

    async def call(self, call: CallOut) -> Any:
        """Make a call and return the reply.

        Raises:
            RefusedError: the server has answered with an error.
            UnavailableError: it cannot be reached, was lost, or did not answer in time.
        """
        try:
            return await self.unary(call)
        except RpcError as error:
            raise self.failure_of(call, error) from error

    async def unary(self, call: CallOut) -> Any:
        """Make a call and return the reply; see `failure_of`.

        Raises:
            RpcError: whatever the call has ended with.
        """
        return await self._opener.unary(self._methods[call.method], call.request, timeout=self._timeout)

    def call_nowait(self, call: CallOut, on_reply: OnReply) -> ClientCall | None:
        """Make a call without waiting, if that is possible; see `CallOpener.unary_nowait`.

        Raises:
            RpcError: the request is too large.
        """
        return self._opener.unary_nowait(self._methods[call.method], call.request, on_reply, timeout=self._timeout)

    def failure_of(self, call: CallOut, error: RpcError) -> RefusedError | UnavailableError:
        """Return what the error of a call means: the server's own, or that of the way to it."""
        text = f"{self.name}: {call.method}: {error.code.name}: {_line(error.message)}"
        return of_peer(UnavailableError(text) if error.code in _UNCERTAIN else RefusedError(text))

    async def tell_end(self, call: CallOut, seconds: float) -> None:
        """Make the last call, also when the surrounding scope is cancelled; a failure is only logged.

        Args:
            call: the last one.
            seconds: how long it may take.
        """
        with trio.move_on_after(seconds, shield=True) as scope:
            try:
                await self._opener.unary(self._methods[call.method], call.request)
            except RpcError as error:
                _log.info("%s: %s: %s: %s", self.name, call.method, error.code.name, _line(error.message))
        if scope.cancelled_caught:
            _log.info("%s: %s: no answer in %g s", self.name, call.method, seconds)


def _line(text: str) -> str:
    """Return the beginning of a server's text as one printable line."""
    line = text[:_TEXT_CHARACTERS]
    return line if line.isprintable() else line.encode("unicode_escape").decode()


@asynccontextmanager
async def open_old_server(
    server: str | CallOpener,
    methods: Mapping[str, Method],
    *,
    name: str = "",
    call_timeout_seconds: float = 0.0,
    tls: ssl.SSLContext | None = None,
    config: RpcConfig | None = None,
    host: Host | None = None,
) -> AsyncIterator[OldServer]:
    """Connect to an old server for the time of the block.

    Args:
        server: `grpc://host:port`; or a channel that is open, and stays so.
        methods: of its service.
        name: of the server, for errors; by default its address.
        call_timeout_seconds: see `OldServer`.
        tls: encrypt; old servers do not.
        config: limits and timeouts of the channel.
        host: connects; by default the system.

    Raises:
        EndpointError: `server` is not an endpoint of a server.
    """
    if not isinstance(server, str):
        name = name or getattr(server, "authority", "") or "old server"
        yield OldServer(server, name, methods, call_timeout_seconds)
        return
    endpoint = parse_server_endpoint(server, field_name="server")
    async with open_channel(host or Host(), endpoint.host, endpoint.port, tls=tls, config=config) as channel:
        yield OldServer(channel, name or str(endpoint), methods, call_timeout_seconds)
