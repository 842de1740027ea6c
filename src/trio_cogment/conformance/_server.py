"""A server under test, as the cases see it: a channel to it, and participants that it can reach."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import trio
from google.protobuf.message import Message

from trio_cogment._version import __version__
from trio_cogment.api.common_pb2 import StatusReply, StatusRequest, VersionInfo, VersionRequest
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.host import Host
from trio_cogment.base.services import SERVICES as INFOS
from trio_cogment.base.services import TRIAL_ID, ServiceKind
from trio_cogment.rpc import CallOpener, Method, ServerCall, bind, methods_of, open_listeners, serve


class ParticipantHost(Protocol):
    """Takes what a server says to the participants of one trial."""

    async def environment(self, call: ServerCall) -> None:
        """Be the environment."""

    async def actor(self, call: ServerCall) -> None:
        """Be one of the actors."""

    async def datalog(self, call: ServerCall) -> None:
        """Be the data log."""


class Server:
    """A server under test.

    Args:
        channel: to the server.
        reached_at: the endpoint at which the server reaches the kit's participants.
        patience_seconds: how long a case waits for something that has to come.
    """

    def __init__(self, channel: CallOpener, *, reached_at: str = "", patience_seconds: float = 10.0) -> None:
        self.channel = channel
        self.reached_at = reached_at
        self.patience_seconds = patience_seconds
        self.hosts: dict[str, ParticipantHost] = {}
        self._prefix = f"conformance-{Host().new_id()[:8]}"
        self._numbers = itertools.count()

    def new_id(self) -> str:
        """Return an id that no other case has, also for another run of the kit against the same server."""
        return f"{self._prefix}-{next(self._numbers)}"

    async def ask(self, kind: ServiceKind, method: str, request: Message, **metadata: str) -> Any:
        """Make a unary call; metadata are named with underscores for hyphens.

        Raises:
            RpcError: it failed, or did not answer in time.
        """
        return await self.channel.unary(
            method_of(kind, method), request, metadata=pairs(metadata), timeout=self.patience_seconds
        )

    async def versions(self, kind: ServiceKind) -> str:
        """Return which of the versions that a service has to tell it tells, as the outcome of a case."""
        reply = await self.ask(kind, "Version", VersionRequest())
        return ", ".join(sorted({each.name for each in reply.versions} & {"cogment-api", "grpc"})) or "none"

    def call(self, kind: ServiceKind, method: str, **metadata: str) -> Any:
        """Open a call with streams, for `async with`."""
        return self.channel.call(method_of(kind, method), metadata=pairs(metadata))

    async def read(self, kind: ServiceKind, method: str, *requests: Message, **metadata: str) -> list[Any]:
        """Send requests, and return all that is answered until the call ends.

        Raises:
            RpcError: it failed, or did not end in time.
        """
        try:
            with trio.fail_after(self.patience_seconds):
                async with self.call(kind, method, **metadata) as call:
                    for request in requests:
                        await call.send(request)
                    await call.done_sending()
                    return [message async for message in call]
        except trio.TooSlowError:
            raise RpcError(StatusCode.DEADLINE_EXCEEDED, f"{method}: no end") from None


def method_of(kind: ServiceKind, name: str) -> Method:
    """Return a method of a service."""
    return methods_of(INFOS[kind].descriptor())[name]


def pairs(metadata: dict[str, str]) -> list[tuple[str, str]]:
    """Return metadata as they are sent."""
    return [(name.replace("_", "-"), value) for name, value in metadata.items()]


class _Participants:
    """The services of the kit: each call goes to the host of its trial."""

    def __init__(self, server: Server, role: str) -> None:
        self._server = server
        self._role = role
        self.RunTrial = self.RunTrialDatalog = self._run

    async def _run(self, call: ServerCall) -> None:
        host = self._server.hosts.get("".join(call.metadata.texts(TRIAL_ID)))
        if host is None:
            raise RpcError(StatusCode.NOT_FOUND, "the conformance kit has started no such trial")
        await getattr(host, self._role)(call)

    async def Version(self, _request: VersionRequest, _call: ServerCall) -> VersionInfo:
        """As directories ask it of the services that they know."""
        return VersionInfo(versions=[VersionInfo.Version(name="trio-cogment conformance", version=__version__)])

    async def Status(self, _request: StatusRequest, _call: ServerCall) -> StatusReply:
        """Likewise."""
        return StatusReply(statuses={"overall_load": "0"})


@asynccontextmanager
async def open_server(
    channel: CallOpener,
    *,
    host: str = "127.0.0.1",
    reached_at: str = "",
    patience_seconds: float = 10.0,
) -> AsyncIterator[Server]:
    """Serve the kit's participants while a server is tested.

    Args:
        channel: to the server.
        host: where the participants listen, on a free port.
        reached_at: the host at which the server reaches them; empty: `host`.
        patience_seconds: see `Server`.

    Raises:
        OSError: nothing can listen at that host.
    """
    server = Server(channel, patience_seconds=patience_seconds)
    roles = {
        ServiceKind.ENVIRONMENT: "environment",
        ServiceKind.ACTOR: "actor",
        ServiceKind.DATALOG: "datalog",
    }
    services = [bind(INFOS[kind].descriptor(), _Participants(server, role)) for kind, role in roles.items()]
    listeners = await open_listeners(host, 0)
    server.reached_at = f"grpc://{reached_at or host}:{listeners[0].socket.getsockname()[1]}"
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, services, listeners)
        yield server
        nursery.cancel_scope.cancel()
