"""Addresses of OpenEnv servers, and connections to them. An answer over HTTP is one JSON document."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import h11
import trio

from trio_cogment.base.errors import EndpointError, InvalidArgumentError, RemoteProtocolError, UnavailableError
from trio_cogment.base.host import Connect
from trio_cogment.spaces.json_values import loads

#: Whether each scheme is encrypted, and the port that it has by default.
_SCHEMES = {"http": (False, 80), "ws": (False, 80), "https": (True, 443), "wss": (True, 443)}
_RECEIVE_BYTES = 65536

Stream: TypeAlias = trio.abc.Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """How servers are reached, and sessions held; see `openenv_environment`."""

    connect_timeout_seconds: float
    message_timeout_seconds: float
    max_message_bytes: int
    tls: ssl.SSLContext | None = None
    connect: Connect


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    Attributes:
        url: as it was given.
        host: its name or number.
        port: the port.
        path: what comes before the names of its routes.
        encrypted: whether to use TLS.
    """

    url: str
    host: str
    port: int
    path: str
    encrypted: bool

    @classmethod
    def of(cls, url: str) -> Address:
        """Return the address in a URL.

        Raises:
            EndpointError: it is none of a server of OpenEnv.
        """
        expected = f"{url!r}: expected http://host:port, or https, ws or wss"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise EndpointError(f"{expected}: {error}") from None
        if parts.scheme not in _SCHEMES or not host or parts.query or parts.fragment or parts.username:
            raise EndpointError(expected)
        if not (host + parts.path).isascii() or any(character <= " " for character in host + parts.path):
            raise EndpointError(expected)
        encrypted, default_port = _SCHEMES[parts.scheme]
        path = parts.path.rstrip("/").removesuffix("/ws")
        return cls(url, host, default_port if port is None else port, path, encrypted)

    @property
    def authority(self) -> str:
        """Host and port, as the header `Host` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @asynccontextmanager
    async def connect(self, options: LinkOptions) -> AsyncIterator[Stream]:
        """Open a connection for the time of the block.

        Raises:
            UnavailableError: there is no connection within the time, or the certificate is not trusted.
        """
        streams: list[Stream] = []
        try:
            await self._open(streams, options)
            yield streams[-1]
        finally:
            # Everything that matters has been sent; who has gone away is not waited for.
            for stream in reversed(streams):
                await trio.aclose_forcefully(stream)

    async def _open(self, streams: list[Stream], options: LinkOptions) -> None:
        """Append the connection, and the encrypted stream over it."""
        seconds = options.connect_timeout_seconds
        try:
            with trio.move_on_after(seconds) as scope:
                streams.append(await options.connect(self.host, self.port))
                if self.encrypted:
                    context = options.tls or ssl.create_default_context()
                    encrypted = trio.SSLStream(streams[0], context, server_hostname=self.host, https_compatible=True)
                    streams.append(encrypted)
                    await encrypted.do_handshake()
        except (OSError, trio.BrokenResourceError) as error:
            raise UnavailableError(f"{self.url}: expected a server there: {error.__cause__ or error}") from error
        if scope.cancelled_caught:
            raise UnavailableError(f"{self.url}: expected a connection within {seconds:g} s")


async def get_json(address: Address, route: str, options: LinkOptions) -> Any:
    """Return the document of a route, such as `/schema`.

    Raises:
        UnavailableError: the server does not answer in time, or not with 200.
        RemoteProtocolError: it answers with something that is not JSON, or with too much of it.
    """
    what = f"{address.url}: GET {route}"
    seconds = options.connect_timeout_seconds
    async with address.connect(options) as stream:
        with trio.move_on_after(seconds):
            try:
                status, body = await _exchange(stream, address, route, options.max_message_bytes)
            except (h11.RemoteProtocolError, RemoteProtocolError) as error:
                raise RemoteProtocolError(f"{what}: {error}") from None
            except trio.BrokenResourceError as error:
                raise UnavailableError(f"{what}: the connection broke") from error
            if status != 200:
                raise UnavailableError(f"{what}: expected the status 200, got {status}")
            try:
                return loads(body)
            except InvalidArgumentError as error:
                raise RemoteProtocolError(f"{what}: {error}") from None
    raise UnavailableError(f"{what}: expected an answer within {seconds:g} s")


async def _exchange(stream: Stream, address: Address, route: str, max_bytes: int) -> tuple[int, bytes]:
    connection = h11.Connection(h11.CLIENT)
    headers = [("host", address.authority), ("accept", "application/json"), ("connection", "close")]
    request = connection.send(h11.Request(method="GET", target=address.path + route, headers=headers))
    await stream.send_all((request or b"") + (connection.send(h11.EndOfMessage()) or b""))
    status, body = 0, bytearray()
    while True:
        event: Any = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(_RECEIVE_BYTES)))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > max_bytes:
                raise RemoteProtocolError(f"expected at most {max_bytes} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return status, bytes(body)
        elif isinstance(event, h11.ConnectionClosed):
            raise RemoteProtocolError("expected an answer, but the server has closed the connection")
