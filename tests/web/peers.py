"""Raw clients of the browser's side, and the services of the conformance kit behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11
import trio
import trio.testing
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping
from wsproto.events import Request as Handshake

from trio_cogment.access import AccessControl
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc import serve_stream
from trio_cogment.testing.conformance.channel import CheckService
from trio_cogment.web import WebSide

HOST = "127.0.0.1:9000"
OWN = f"http://{HOST}"
ECHO_ONE = "/trio_cogment.testing.Check/EchoOne"
COUNT = "/trio_cogment.testing.Check/Count"
ECHO = "/trio_cogment.testing.Check/Echo"
WAIT = "/trio_cogment.testing.Check/Wait"


@dataclass
class Answer:
    """An answer of HTTP/1.1."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Served:
    """A served connection, and the service behind it."""

    stream: trio.abc.Stream
    service: CheckService
    ended: trio.Event = field(default_factory=trio.Event)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def rest(self) -> bytes:
        """Return all that comes until the server closes."""
        data = b""
        while more := await self.stream.receive_some():
            data += more
        return data

    async def ask(self, method: str, path: str, body: bytes = b"", /, **headers: str) -> Answer:
        """Send a request, and return the answer to it."""
        client = h11.Connection(h11.CLIENT)
        fields = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body:
            fields["content-length"] = str(len(body))
        pairs = [(name, value) for name, value in fields.items() if value]
        data = client.send(h11.Request(method=method, target=path, headers=pairs)) or b""
        if body:
            data += client.send(h11.Data(data=body)) or b""
        await self.send(data + (client.send(h11.EndOfMessage()) or b""))
        return await read_answer(client, self.stream)


async def read_answer(client: h11.Connection, stream: trio.abc.Stream) -> Answer:
    answer = Answer(0, {}, b"")
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            client.receive_data(bytes(await stream.receive_some()))
        elif isinstance(event, h11.InformationalResponse):
            if event.status_code == 101:
                return Answer(101, _fields(event), b"")
        elif isinstance(event, h11.Response):
            answer = Answer(event.status_code, _fields(event), b"")
        elif isinstance(event, h11.Data):
            answer.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return answer
        else:
            raise AssertionError(event)


def _fields(event: h11.Response | h11.InformationalResponse) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in event.headers}


@asynccontextmanager
async def served(
    side: WebSide | None = None, *, config: RpcConfig | None = None, access: AccessControl | None = None
) -> AsyncIterator[Served]:
    """Serve one connection in memory."""
    async with serving(*trio.testing.memory_stream_pair(), side, config=config, access=access) as there:
        yield there


@asynccontextmanager
async def serving(
    ours: trio.abc.Stream,
    theirs: trio.abc.Stream,
    side: WebSide | None = None,
    *,
    config: RpcConfig | None = None,
    access: AccessControl | None = None,
) -> AsyncIterator[Served]:
    """Serve one end of a stream."""
    service = CheckService()
    async with trio.open_nursery() as nursery:
        there = Served(ours, service)

        async def run() -> None:
            web = side or WebSide()
            await serve_stream([service.service()], theirs, web=web, config=config, access=access)
            there.ended.set()

        nursery.start_soon(run)
        yield there
        nursery.cancel_scope.cancel()


def websocket_fields(protocol: str = "grpc-websockets") -> dict[str, str]:
    """Return the fields of a handshake."""
    return {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_version": "13",
        "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec_websocket_protocol": protocol,
    }


class Tab:
    """The other end of a page's WebSocket."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.client = WSConnection(ConnectionType.CLIENT)
        self._events: Iterator[Any] = iter(())

    async def open(self, path: str, **fields: str) -> None:
        headers = [(name.encode(), value.encode()) for name, value in ({"origin": OWN} | fields).items()]
        await self.stream.send_all(self.client.send(Handshake(host=HOST, target=path, extra_headers=headers)))
        assert isinstance(await self.event(), AcceptConnection)

    async def event(self) -> Any:
        while True:
            for event in self._events:
                return event
            self.client.receive_data(bytes(await self.stream.receive_some()) or None)
            self._events = self.client.events()

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(self.client.send(BytesMessage(data=data)))

    async def message(self) -> bytes:
        """Return the next message; pings are answered meanwhile."""
        data = b""
        while True:
            event = await self.event()
            if isinstance(event, Ping):
                await self.stream.send_all(self.client.send(event.response()))
                continue
            assert isinstance(event, BytesMessage)
            data += event.data
            if event.message_finished:
                return data

    async def end(self) -> tuple[int, str]:
        event = await self.event()
        while isinstance(event, BytesMessage | Ping):
            event = await self.event()
        assert isinstance(event, CloseConnection), event
        await self.stream.send_all(self.client.send(event.response()))
        return int(event.code), event.reason or ""
