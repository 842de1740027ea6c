"""Hosts in memory that a directory looks at, and the directory itself."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import trio
from purerpc import Service as RpcService

from trio_cogment.access import AccessControl
from trio_cogment.api import directory_pb2
from trio_cogment.api.common_pb2 import StatusReply, StatusRequest, VersionInfo, VersionRequest
from trio_cogment.api.directory_pb2 import (
    DeregisterReply,
    DeregisterRequest,
    FullServiceData,
    InquireRequest,
    RegisterReply,
    RegisterRequest,
    ServiceDetails,
    ServiceEndpoint,
    ServiceType,
)
from trio_cogment.base.about import status_reply, version_info
from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.base.services import SERVICES, kind_of_type
from trio_cogment.rpc import CallOpener, InProcessChannel, bind, methods_of, serve_stream
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.testing import SimDisk

ENVIRONMENT = ServiceType.ENVIRONMENT_SERVICE
OTHER = ServiceType.OTHER_SERVICE
METHODS = methods_of(directory_pb2.DESCRIPTOR.services_by_name["DirectorySP"])


class Told:
    """A service that says how much it has to do."""

    def __init__(self, load: str = "0") -> None:
        self.load = load
        self.asked = 0

    async def Status(self, request: StatusRequest, _call: Any) -> StatusReply:
        self.asked += 1
        return status_reply(request.names, {"overall_load": lambda: self.load})

    async def Version(self, _request: VersionRequest, _call: Any) -> VersionInfo:
        return version_info()


def service_of(implementation: object, kind: int = ENVIRONMENT) -> RpcService:
    known = kind_of_type(kind)
    assert known is not None
    return bind(SERVICES[known].descriptor(), implementation)


class Net:
    """Hosts in memory.

    Attributes:
        hosts: what each serves; those that are not here refuse connections.
        silent: they take connections and say nothing.
        dead: they do not even take connections.
        dialled: who was, the oldest first.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.hosts: dict[str, list[RpcService]] = {}
        self.silent: set[str] = set()
        self.dead: set[str] = set()
        self.dialled: list[str] = []
        self._nursery = nursery
        self._kept: list[trio.abc.Stream] = []

    def host(self, name: str, implementation: object | None = None, kind: int = ENVIRONMENT) -> None:
        self.hosts[name] = [service_of(implementation or Told(), kind)]

    async def dial(self, host: str, _port: int) -> trio.abc.Stream:
        self.dialled.append(host)
        await trio.lowlevel.checkpoint()
        if host in self.dead:
            await trio.sleep_forever()
        if host not in self.hosts and host not in self.silent:
            raise ConnectionRefusedError(f"{host} refused")
        ours, theirs = trio.testing.memory_stream_pair()
        if host in self.silent:
            self._kept.append(theirs)
        else:
            self._nursery.start_soon(serve_stream, self.hosts[host], theirs)
        return ours


class Directory:
    """A directory, with what a caller does to it."""

    def __init__(self, server: DirectoryServer, channel: CallOpener, net: Net) -> None:
        self.server = server
        self.channel = channel
        self.net = net

    async def register(self, *requests: RegisterRequest, token: str = "") -> list[RegisterReply]:
        return await self._exchange("Register", requests, token)

    async def deregister(self, *requests: DeregisterRequest, token: str = "") -> list[DeregisterReply]:
        return await self._exchange("Deregister", requests, token)

    async def inquire(self, request: InquireRequest | None = None, *, token: str = "") -> list[FullServiceData]:
        request = request or InquireRequest(details=ServiceDetails())
        replies = await self._exchange("Inquire", [request], token)
        return [reply.data for reply in replies]

    async def hosts(self, token: str = "") -> list[str]:
        """Return the hosts of everything that is shown, in order."""
        return [data.endpoint.host for data in await self.inquire(token=token)]

    async def until(self, condition: Callable[[list[str]], bool], token: str = "") -> None:
        """Wait until a condition on the hosts that are shown holds, on a virtual clock."""
        for _ in range(4000):
            if condition(await self.hosts(token)):
                return
            await trio.sleep(0.25)
        raise AssertionError("it never came to that")

    async def _exchange(self, method: str, requests: Iterable[Any], token: str) -> list[Any]:
        metadata = {"authentication-token": token} if token else {}
        async with self.channel.call(METHODS[method], metadata=metadata) as call:
            for request in requests:
                await call.send(request)
            await call.done_sending()
            return [reply async for reply in call]


def registration(
    host: str,
    properties: dict[str, str] | None = None,
    *,
    kind: int = ENVIRONMENT,
    protocol: int = ServiceEndpoint.GRPC,
    port: int = 9000,
    permanent: bool = False,
) -> RegisterRequest:
    return RegisterRequest(
        endpoint=ServiceEndpoint(protocol=protocol, host=host, port=port),  # type: ignore[arg-type]  # an enum's value
        details=ServiceDetails(type=kind, properties=properties),  # type: ignore[arg-type]  # an enum's value
        permanent=permanent,
    )


_seeds = itertools.count()


def new_server(
    net: Net | None,
    config: DirectoryServerConfig | None = None,
    *,
    path: str = "",
    disk: SimDisk | None = None,
    access: AccessControl | None = None,
    **parts: Any,
) -> DirectoryServer:
    """Return a directory whose ids differ from those of every other; its file is on `disk`.

    `parts` are those of its `Host` that are others.
    """
    rng = random.Random(next(_seeds))
    if net is not None:
        parts.setdefault("connect", net.dial)
    if disk is not None:
        parts = {"files": disk, "runner": inline_runner, **parts}
    host = Host(**{"secret_bytes": rng.randbytes, "random": lambda _name: rng, **parts})
    return DirectoryServer(path=path, config=config, host=host, access=access)


@asynccontextmanager
async def directory(
    config: DirectoryServerConfig | None = None, *, net: Net | None = None, **options: Any
) -> AsyncIterator[Directory]:
    async with trio.open_nursery() as nursery:
        net = net or Net(nursery)
        async with (
            new_server(net, config, **options) as server,
            InProcessChannel(directory_services(server)) as channel,
        ):
            yield Directory(server, channel, net)
        nursery.cancel_scope.cancel()
