"""Looking at one service: is it there, and how much has it to do.

A Cogment service is asked for its `Status`, one that has none for its `Version`, and of one that has neither
`grpc.health.v1` is asked. Whatever else is registered, or expects TLS, has to take a connection, and need not say
anything.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio
from google.protobuf.descriptor import ServiceDescriptor

from trio_cogment.api.common_pb2 import StatusReply, StatusRequest, VersionRequest
from trio_cogment.api.directory_pb2 import ServiceEndpoint
from trio_cogment.config import DirectoryServerConfig, RpcConfig
from trio_cogment.directory._health import FULL_LOAD
from trio_cogment.directory._requests import Service
from trio_cogment.errors import RpcError, StatusCode
from trio_cogment.rpc import CallOpener, Channel, ServingStatus, ask_health, methods_of
from trio_cogment.services import SERVICES, ServiceKind, kind_of_type

#: Connects to a host and port; raises OSError.
Dial: TypeAlias = Callable[[str, int], Awaitable[trio.abc.Stream]]

_LOAD = "overall_load"
#: What a service is owed that has answered.
_FAREWELL_SECONDS = 0.2
#: A service that answers with these is there, and is no service of ours for now, or none at all any more.
_AWAY = frozenset({StatusCode.UNAVAILABLE, StatusCode.CANCELLED})


class Prober:
    """Looks at services, any number of them at once.

    Args:
        dial: makes the connections.
        config: how long a look may take.
        rpc_config: for the channels of the looks.
        rng: for those channels, too.
    """

    def __init__(self, dial: Dial, config: DirectoryServerConfig, rpc_config: RpcConfig, rng: random.Random) -> None:
        self._dial = dial
        self._config = config
        # A service that computes may be slow to greet us, though its host connects us at once.
        self._rpc_config = dataclasses.replace(
            rpc_config,
            connect_timeout_seconds=config.answer_timeout_seconds,
            farewell_timeout_seconds=min(rpc_config.farewell_timeout_seconds, _FAREWELL_SECONDS),
        )
        self._rng = rng

    async def look(self, service: Service) -> int | None:
        """Return a service's load, from 0 to 255 (0 if it says none), or None if it does not answer in time."""
        descriptor = _asked(service)
        load: int | None = None
        with trio.move_on_after(self._config.answer_timeout_seconds):
            try:
                if descriptor is None:
                    stream = await self._connect(service)
                    load = 0
                    await trio.aclose_forcefully(stream)
                else:
                    async with self._channel(service) as channel:
                        load = await self._ask(channel, descriptor)
            except (RpcError, OSError):
                pass  # why does not matter: it did not answer
        return load

    async def _connect(self, service: Service) -> trio.abc.Stream:
        try:
            with trio.fail_after(self._config.connect_timeout_seconds):
                return await self._dial(service.host, service.port)
        except trio.TooSlowError:
            raise TimeoutError("nobody answers") from None
        except ValueError as error:  # what is no name that can be looked up
            raise OSError(str(error)) from error

    def _channel(self, service: Service) -> Channel:
        async def connect() -> trio.abc.Stream:
            return await self._connect(service)

        host = f"[{service.host}]" if ":" in service.host else service.host
        return Channel.over(connect, authority=f"{host}:{service.port}", config=self._rpc_config, rng=self._rng)

    async def _ask(self, channel: CallOpener, descriptor: ServiceDescriptor) -> int | None:
        """Ask in three ways; who has the last one has all the time that is left, each other one half of it."""
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
        # By its name: the server as a whole may be well and be another's by now.
        return 0 if await ask_health(channel, descriptor.full_name) is ServingStatus.SERVING else None


def _asked(service: Service) -> ServiceDescriptor | None:
    """Return the methods to ask a service by, None if it can only be connected to."""
    kind = kind_of_type(service.kind)
    if service.protocol != ServiceEndpoint.GRPC or kind is None or kind is ServiceKind.OTHER:
        return None
    return SERVICES[kind].descriptor()


def _half(deadline: float) -> float:
    return max(0.0, deadline - trio.current_time()) / 2


def parsed_load(text: str) -> int:
    """Return a load from 0 to 255; 0 for everything that is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= 3):
        return 0
    load = int(text)
    return load if load <= FULL_LOAD else 0
