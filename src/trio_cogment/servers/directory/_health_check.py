"""One health check of one service: whether it answers, and its load.

A Cogment service is called with `Status`; if that fails, with `Version`; if that fails too, with `grpc.health.v1`. A
service of any other type, or one that expects TLS, only has to accept a connection.
"""

from __future__ import annotations

import dataclasses
import random

import trio
from google.protobuf.descriptor import ServiceDescriptor

from trio_cogment.access import TokenSource
from trio_cogment.api.common_pb2 import StatusReply, StatusRequest, VersionRequest
from trio_cogment.api.directory_pb2 import ServiceEndpoint
from trio_cogment.base.config import DirectoryServerConfig, RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import SERVICES, ServiceKind, kind_of_type
from trio_cogment.rpc import CallOpener, Channel, ServingStatus, ask_health, methods_of
from trio_cogment.rpc.outgoing import Outgoing
from trio_cogment.servers.directory._health import FULL_LOAD
from trio_cogment.servers.directory._requests import Service

_LOAD = "overall_load"
#: How long closing the connection to a service may take once it has answered.
_FAREWELL_SECONDS = 0.2
#: A server that answers with these cannot serve at the moment; no other method is tried.
_AWAY = frozenset({StatusCode.UNAVAILABLE, StatusCode.CANCELLED})


class HealthChecker:
    """Checks services; any number of checks may run at the same time.

    Args:
        outgoing: makes the connections.
        config: how long a check may take.
        rpc_config: the settings of the channels.
        rng: the source of the channels' jitter.
        token: gives what says to services who asks; it may grant nothing, as whoever registers a service gets it.
    """

    def __init__(
        self,
        outgoing: Outgoing,
        config: DirectoryServerConfig,
        rpc_config: RpcConfig,
        rng: random.Random,
        token: TokenSource | None = None,
    ) -> None:
        self._token = token or ""
        self._outgoing = outgoing
        self._config = config
        # A busy service may be slow to send its SETTINGS, although its host accepts the connection at once.
        self._rpc_config = dataclasses.replace(
            rpc_config,
            connect_timeout_seconds=config.answer_timeout_seconds,
            await_server_seconds=0.0,  # whether it listens is what a check is about
            farewell_timeout_seconds=min(rpc_config.farewell_timeout_seconds, _FAREWELL_SECONDS),
        )
        self._rng = rng

    async def check(self, service: Service, reach: str | None = None) -> int | None:
        """Return the load of a service, from 0 to 255 (0 if it reports none), or None if it does not answer in time.

        Args:
            service: where it is, and what.
            reach: of whoever has registered it; see `trio_cogment.access.reach_of`.
        """
        descriptor = _descriptor(service)
        load: int | None = None
        with trio.move_on_after(self._config.answer_timeout_seconds):
            try:
                if descriptor is None:
                    stream = await self._connect(service, reach)
                    load = 0
                    await trio.aclose_forcefully(stream)
                else:
                    async with self._channel(service, reach) as channel:
                        load = await self._ask(channel, descriptor)
            except (RpcError, OSError):
                pass  # the reason does not matter: the service did not answer
        return load

    async def _connect(self, service: Service, reach: str | None) -> trio.abc.Stream:
        try:
            with trio.fail_after(self._config.connect_timeout_seconds):
                return await self._outgoing.host_for(reach).connect(service.host, service.port)
        except trio.TooSlowError:
            raise TimeoutError("no connection in time") from None
        except ValueError as error:  # the host is not a name that can be resolved
            raise OSError(str(error)) from error

    def _channel(self, service: Service, reach: str | None) -> Channel:
        async def connect() -> trio.abc.Stream:
            return await self._connect(service, reach)

        host = f"[{service.host}]" if ":" in service.host else service.host
        authority = f"{host}:{service.port}"
        return Channel.over(connect, authority=authority, config=self._rpc_config, rng=self._rng, token=self._token)

    async def _ask(self, channel: CallOpener, descriptor: ServiceDescriptor) -> int | None:
        """Try the three methods in turn: the last one has all the time that is left, each other one half of it."""
        methods = methods_of(descriptor)
        deadline = trio.current_time() + self._config.answer_timeout_seconds
        try:
            request = StatusRequest(names=[_LOAD])
            reply: StatusReply = await channel.unary(methods["Status"], request, timeout=_half(deadline))
            return parsed_load(reply.statuses.get(_LOAD, ""))
        except RpcError as error:
            if error.code in _AWAY:
                raise
        try:
            await channel.unary(methods["Version"], VersionRequest(), timeout=_half(deadline))
            return 0
        except RpcError as error:
            if error.code in _AWAY:
                raise
        # By the service's name: the server may be healthy and run another service by now.
        return 0 if await ask_health(channel, descriptor.full_name) is ServingStatus.SERVING else None


def _descriptor(service: Service) -> ServiceDescriptor | None:
    """Return the Cogment service to call, None if the check can only connect."""
    kind = kind_of_type(service.kind)
    if service.protocol != ServiceEndpoint.GRPC or kind is None or kind is ServiceKind.OTHER:
        return None
    return SERVICES[kind].descriptor()


def _half(deadline: float) -> float:
    return max(0.0, deadline - trio.current_time()) / 2


def parsed_load(text: str) -> int:
    """Return a load from 0 to 255; 0 for a text that is not one."""
    if not (text.isascii() and text.isdigit() and len(text) <= 3):
        return 0
    load = int(text)
    return load if load <= FULL_LOAD else 0
