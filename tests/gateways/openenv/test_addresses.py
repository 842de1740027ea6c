"""Addresses of servers, and what is asked there over HTTP."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import trio
import trio.testing
import trustme

from trio_cogment.base.errors import CogmentError, EndpointError, RemoteProtocolError, UnavailableError
from trio_cogment.gateways.openenv.addresses import Address, LinkOptions, get_json

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n[1, 2]\n"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h", ("h", 80, "", False)),
        ("ws://h", ("h", 80, "", False)),
        ("https://h", ("h", 443, "", True)),
        ("wss://h", ("h", 443, "", True)),
        ("http://h:8000/lab/ws/", ("h", 8000, "/lab", False)),
        ("https://[::1]:8443/lab", ("::1", 8443, "/lab", True)),
    ],
)
def test_the_parts_of_an_address(url: str, expected: tuple[str, int, str, bool]) -> None:
    address = Address.of(url)
    assert (address.host, address.port, address.path, address.encrypted) == expected
    assert address.authority == f"{f'[{address.host}]' if ':' in address.host else address.host}:{address.port}"


@pytest.mark.parametrize(
    "url", ["h", "grpc://h:1", "http://", "http://h:x", "http://me@h", "http://h/?a", "http://h/a b"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(EndpointError, match="expected http://host:port, or https, ws or wss"):
        Address.of(url)


async def asked(answer: bytes, url: str = "http://there:1", **options: Any) -> Any:
    """Return what is made of an answer."""
    ours, theirs = trio.testing.memory_stream_pair()

    async def connect(host: str, port: int) -> trio.abc.Stream:
        assert (host, port) == ("there", 1)
        return ours

    async def serve(server: trio.abc.Stream) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await server.receive_some()
        assert data.lower().startswith(b"get /schema http/1.1\r\nhost: there:1\r\n")
        await server.send_all(answer)
        await server.aclose()

    link = LinkOptions(
        connect_timeout_seconds=5, message_timeout_seconds=5, max_message_bytes=100, connect=connect, **options
    )
    server: trio.abc.Stream = theirs
    if url.startswith("https"):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        AUTHORITY.issue_cert("there").configure_cert(context)
        server = trio.SSLStream(theirs, context, server_side=True, https_compatible=True)
    found: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, server)
        try:
            found.append(await get_json(Address.of(url), "/schema", link))
        except CogmentError as error:
            found.append(error)
        nursery.cancel_scope.cancel()
    if isinstance(found[0], CogmentError):
        raise found[0]
    return found[0]


AUTHORITY = trustme.CA()


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"])
async def test_an_answer(before: bytes) -> None:
    assert await asked(before + ANSWER) == [1, 2]


async def test_an_answer_over_tls() -> None:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    assert await asked(ANSWER, "https://there:1", tls=context) == [1, 2]


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (b"", RemoteProtocolError, "GET /schema"),
        (b"nonsense\r\n\r\n", RemoteProtocolError, "GET /schema"),
        (ANSWER[:-3], RemoteProtocolError, "GET /schema"),
        (ANSWER.replace(b"[1, 2]", b"[1, 2,"), RemoteProtocolError, "expected JSON"),
        (ANSWER.replace(b"200 OK", b"503 Busy"), UnavailableError, "expected the status 200, got 503"),
        (
            ANSWER.replace(b"length: 7", b"length: 101") + b" " * 94,
            RemoteProtocolError,
            "expected at most 100 bytes",
        ),
    ],
)
async def test_what_is_no_answer(answer: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        await asked(answer)
