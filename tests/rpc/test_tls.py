"""TLS: who is let in, who is refused, and that one client's failure is nobody else's."""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.rpc.noted_turns import noted_turns
from tests.rpc.raw_peer import HEADERS, RawPeer, settings
from tests.rpc.tls_files import Party, make_party
from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RemoteProtocolError, RpcError, StatusCode
from trio_cogment.budget.turn_order import Lane
from trio_cogment.rpc import (
    CallOpener,
    Channel,
    client_tls,
    open_listeners,
    open_unix_listener,
    serve,
    serve_stream,
    server_tls,
)
from trio_cogment.rpc.grpc_only import GrpcOnly
from trio_cogment.rpc.relay import ServerSide
from trio_cogment.rpc.tls import RenewableListener, _reason, certificate_names, client_stream, shake_hands
from trio_cogment.testing.conformance.channel import ECHO_ONE, WAIT, CheckService
from trio_cogment.web import WebSide


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return make_party(tmp_path_factory.mktemp("server"), "server", "127.0.0.1", "server.test", "localhost")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return make_party(tmp_path_factory.mktemp("client"), "client", "client.test")


@asynccontextmanager
async def tls_server(context: ssl.SSLContext, config: RpcConfig | None = None) -> AsyncIterator[int]:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1", tls=context)
            services = [CheckService().service()]

            async def run(task_status: Any) -> None:
                await serve(services, listeners, config=config, task_status=task_status)

            serving = await nursery.start(run)
            assert serving.addresses == (f"ipv4:127.0.0.1:{serving.port}",)
            yield serving.port
            nursery.cancel_scope.cancel()


async def check(channel: CallOpener) -> None:
    assert (await channel.unary(ECHO_ONE, Action(tick_id=5, content=bytes(200_000)))).tick_id == 5


async def refused(channel: Channel, match: str = "cannot connect to") -> None:
    with pytest.raises(RpcError, match=match) as caught:
        await channel.unary(ECHO_ONE, Action())
    assert caught.value.code is StatusCode.UNAVAILABLE


@asynccontextmanager
async def innocent_stream(port: int, context: ssl.SSLContext) -> AsyncIterator[None]:
    """A call that runs meanwhile and must be there afterwards."""
    async with Channel("127.0.0.1", port, tls=context) as channel, channel.call(WAIT) as call:
        await call.wait_initial_metadata()
        yield
        await check(channel)


async def test_b15_tls(server: Party) -> None:
    context = client_tls(server.roots)
    async with tls_server(_tls(server)) as port, Channel("127.0.0.1", port, tls=context) as channel:
        assert channel.scheme == "https"
        await check(channel)


async def test_b15_mutual_tls(server: Party, client: Party) -> None:
    context = server_tls(server.chain, server.key, client_roots=client.roots)
    async with tls_server(context) as port:
        known = client_tls(server.roots, certificate=client.chain, key=client.key)
        async with innocent_stream(port, known):
            for stranger in (
                client_tls(server.roots),
                client_tls(server.roots, certificate=server.chain, key=server.key),
            ):
                async with Channel("127.0.0.1", port, tls=stranger) as channel:
                    await refused(channel)


async def test_b15_a_server_of_another_authority_is_refused(server: Party, client: Party) -> None:
    async with tls_server(_tls(server)) as port, innocent_stream(port, client_tls(server.roots)):
        async with Channel("127.0.0.1", port, tls=client_tls(client.roots)) as channel:
            await refused(channel, "local issuer certificate; its authority is not among the trusted roots")
        async with Channel("127.0.0.1", port, tls=client_tls()) as channel:
            await refused(channel, "TLS handshake failed")


async def test_b15_server_name(server: Party) -> None:
    context = client_tls(server.roots)
    async with tls_server(server_tls(server.chain, server.key)) as port:
        async with Channel("127.0.0.1", port, tls=context, server_name="server.test") as channel:
            assert channel.authority == "server.test"
            await check(channel)
        async with Channel("127.0.0.1", port, tls=context, server_name="other.test") as channel:
            await refused(channel, "not valid for 'other.test'")


@pytest.mark.parametrize("offer", [[], ["http/1.1"]])
async def test_b15_a_client_without_alpn_h2_is_refused(server: Party, offer: list[str]) -> None:
    context = ssl.create_default_context(cafile=server.roots)
    if offer:
        context.set_alpn_protocols(offer)
    async with tls_server(_tls(server)) as port, innocent_stream(port, client_tls(server.roots)):
        tcp = await trio.open_tcp_stream("127.0.0.1", port)
        stream = trio.SSLStream(tcp, context, server_hostname="127.0.0.1", https_compatible=True)
        await stream.do_handshake()
        assert await stream.receive_some() == b""
        await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("offer", [[], ["http/1.1"]])
async def test_b15_a_server_without_alpn_h2_is_refused(server: Party, offer: list[str]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server.chain, server.key)
    if offer:
        context.set_alpn_protocols(offer)
    (plain,) = await open_listeners("127.0.0.1")
    port = plain.socket.getsockname()[1]

    async def answer(stream: trio.SSLStream[trio.SocketStream]) -> None:
        async with stream:
            await stream.do_handshake()
            assert await stream.receive_some() == b""

    async with trio.open_nursery() as nursery:
        listener = trio.SSLListener(plain, context, https_compatible=True)
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        async with Channel("127.0.0.1", port, tls=client_tls(server.roots)) as channel:
            await refused(channel, "ALPN")
        nursery.cancel_scope.cancel()


async def test_b15_alpn_is_set_on_anybodys_context(server: Party) -> None:
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(server.chain, server.key)
    ours = ssl.create_default_context(cafile=server.roots)
    async with tls_server(theirs) as port, Channel("127.0.0.1", port, tls=ours) as channel:
        await check(channel)


async def test_b15_the_scheme_is_https(server: Party) -> None:
    peers: list[RawPeer] = []
    came = trio.Event()

    async def answer(stream: trio.SSLStream[trio.SocketStream]) -> None:
        peer = RawPeer(stream)
        peers.append(peer)
        await peer.send(settings())
        await peer.until(lambda: 1 in peer.answers)
        came.set()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            trio.serve_listeners, answer, listeners := await open_listeners("127.0.0.1", tls=_tls(server))
        )
        port = listeners[0].transport_listener.socket.getsockname()[1]  # type: ignore[attr-defined]  # TLS over TCP
        async with Channel("127.0.0.1", port, tls=client_tls(server.roots)) as channel, channel.call(WAIT):
            await came.wait()
        nursery.cancel_scope.cancel()
    assert peers[0].answer(1).field(b":scheme") == b"https"
    assert any(kind == HEADERS for kind, *_ in peers[0].frames)


def _tls(party: Party) -> ssl.SSLContext:
    return server_tls(party.chain, party.key)


@pytest.mark.parametrize("alpn", [["h2"], []])
async def test_b15_streams_encrypted_elsewhere_are_checked_too(server: Party, alpn: list[str]) -> None:
    async with tls_server(_tls(server)) as port:
        context = ssl.create_default_context(cafile=server.roots)
        if alpn:
            context.set_alpn_protocols(alpn)

        async def connect() -> trio.abc.Stream:
            tcp = await trio.open_tcp_stream("127.0.0.1", port)
            return trio.SSLStream(tcp, context, server_hostname="127.0.0.1", https_compatible=True)

        async with Channel.over(connect) as channel:
            if alpn:
                await check(channel)
                assert channel.scheme == "https"
            else:
                await refused(channel, "ALPN")


async def test_old_tls_is_refused(server: Party) -> None:
    for context in (_tls(server), client_tls(server.roots)):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    only_1_2 = client_tls(server.roots)
    only_1_2.maximum_version = ssl.TLSVersion.TLSv1_2
    async with tls_server(_tls(server)) as port:
        async with Channel("127.0.0.1", port, tls=only_1_2) as channel:
            await check(channel)
        old = ssl.create_default_context(cafile=server.roots)
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.set_alpn_protocols(["h2"])
        with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        tcp = await trio.open_tcp_stream("127.0.0.1", port)
        stream = trio.SSLStream(tcp, old, server_hostname="127.0.0.1")
        with pytest.raises(trio.BrokenResourceError):
            await stream.do_handshake()
        await trio.aclose_forcefully(stream)


async def test_old_tls_that_a_context_allows_is_refused_by_both_sides(server: Party) -> None:
    theirs, ours = server_tls(server.chain, server.key), client_tls(server.roots)
    for context in (theirs, ours):
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    near, far = trio.testing.memory_stream_pair()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for stream in (client_stream(near, ours, "localhost"), trio.SSLStream(far, theirs, server_side=True)):

                async def shake(stream: trio.abc.Stream = stream) -> None:
                    with pytest.raises(RemoteProtocolError, match=r"needs TLS 1.2 or later, not TLSv1.1"):
                        await shake_hands(stream, 10)

                nursery.start_soon(shake)


@pytest.mark.parametrize(
    "opening", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\xff", b""]
)
async def test_a_failed_handshake_harms_nobody_else(
    server: Party, opening: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_server(_tls(server)) as port, innocent_stream(port, client_tls(server.roots)):
        with caplog.at_level(logging.INFO):
            for _ in range(20):
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                await stream.send_all(opening)
                await stream.send_eof()
                try:
                    while await stream.receive_some():
                        pass
                except trio.BrokenResourceError:
                    pass  # reset, for what it sent was not read
                await stream.aclose()
    assert all(record.levelno == logging.INFO for record in caplog.records)


async def test_who_only_looks_whether_anybody_listens_is_no_news(
    server: Party, caplog: pytest.LogCaptureFixture
) -> None:
    told = trio.Event()

    def note(record: logging.LogRecord) -> bool:
        if record.levelno == logging.INFO:
            told.set()
        return True

    caplog.handler.addFilter(note)
    async with tls_server(_tls(server)) as port:
        with caplog.at_level(logging.DEBUG, logger="trio_cogment.rpc.server"):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_eof()
            assert await stream.receive_some() == b""  # it has noticed
            await stream.aclose()
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(b"SSH-2.0-OpenSSH_9.6\r\n")
            while await stream.receive_some():
                pass
            await stream.aclose()
            await told.wait()  # the server closes its half before it tells
    levels = [record.levelno for record in caplog.records if "TLS handshake failed" in record.message]
    assert levels == [logging.DEBUG, logging.INFO]


async def test_a_handshake_has_a_timeout(server: Party, autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    context = _tls(server)
    stream = trio.SSLStream(theirs, context, server_side=True)
    config = RpcConfig(handshake_timeout_seconds=7)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: serve_stream([], stream, config=config, task_status=task_status))
        assert trio.current_time() == pytest.approx(7)
        assert await ours.receive_some() == b""

    async def connect() -> trio.abc.Stream:
        return trio.testing.memory_stream_pair()[0]

    async with Channel.over(connect, tls=client_tls(server.roots), config=config) as channel:
        await refused(channel, "no TLS handshake within 7 s")
        assert trio.current_time() == pytest.approx(14)


async def test_cancelled_in_the_handshake_nothing_is_left(server: Party) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    stream = trio.SSLStream(theirs, _tls(server), server_side=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_stream, [], stream)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert await ours.receive_some() == b""


async def test_cancelled_at_any_step_a_channel_leaves_nothing(server: Party) -> None:
    """Connecting, shaking hands, waiting for SETTINGS, calling: no descriptor and no task stays, on either side."""
    context = client_tls(server.roots)

    def held() -> tuple[int, int]:
        return len(os.listdir("/dev/fd")), trio.lowlevel.current_statistics().tasks_living

    async def use(port: int) -> None:
        async with Channel("127.0.0.1", port, tls=context) as channel:
            await check(channel)

    async with tls_server(_tls(server)) as port:
        await use(port)
        await trio.testing.wait_all_tasks_blocked(0.01)
        before = held()
        for step in range(60):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(use, port)
                    for _ in range(step):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
        while held() != before:  # the server learns of the last ones a little later
            await trio.lowlevel.checkpoint()


async def test_tls_over_unix_sockets_memory_and_anybodys_listener(server: Party, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    context = client_tls(server.roots)
    async with trio.open_nursery() as nursery:
        service = CheckService().service()
        (plain,) = await open_listeners("127.0.0.1")
        theirs = trio.SSLListener(plain, _tls(server))  # theirs: close_notify is expected
        sockets = [theirs, await open_unix_listener(path, tls=_tls(server))]
        serving = await nursery.start(serve, [service], sockets)
        assert serving.addresses == (f"ipv4:127.0.0.1:{serving.port}", f"unix:{path}")
        async with Channel("127.0.0.1", serving.port, tls=context) as channel:
            await check(channel)
        async with Channel.unix(path, tls=context) as channel:
            await check(channel)

        async def connect() -> trio.abc.Stream:
            near, far = trio.testing.memory_stream_pair()
            nursery.start_soon(serve_stream, [service], trio.SSLStream(far, _tls(server), server_side=True))
            return near

        async with Channel.over(connect, authority="server.test", tls=context) as channel:
            await check(channel)
        nursery.cancel_scope.cancel()
    assert not path.exists()


async def test_files_that_are_not_what_they_should_be(server: Party, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        server_tls(tmp_path / "nowhere.pem")
    with pytest.raises(ssl.SSLError):
        server_tls(server.chain, server.roots)
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(ssl.SSLError):
        client_tls(tmp_path / "junk.pem")


async def test_an_encrypted_key_without_password_does_not_ask_the_terminal(server: Party, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(server.key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.BestAvailableEncryption(b"sesame"),
        )
    )
    with pytest.raises(OSError, match="no password was given"):
        server_tls(server.chain, locked)
    context = server_tls(server.chain, locked, password="sesame")
    async with tls_server(context) as port, Channel("127.0.0.1", port, tls=client_tls(server.roots)) as channel:
        await check(channel)


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        (None, ()),
        ({}, ()),
        ({"subject": ((("countryName", "FR"),), (("commonName", "ann"),))}, ("ann",)),
        ({"subjectAltName": (("DNS", "a"), ("email", "x@y"), ("URI", "b"), ("DNS", "a"))}, ("a", "b")),
        ({"subject": ((("commonName", "b"),),), "subjectAltName": (("URI", "a"), ("DNS", "b"))}, ("b", "a")),
    ],
)
def test_whose_certificate_it_is(
    certificate: dict[str, Any] | None, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = trio.SSLStream(trio.testing.memory_stream_pair()[0], ssl.create_default_context(), server_hostname="x")
    monkeypatch.setattr(trio.SSLStream, "getpeercert", lambda _: certificate, raising=False)
    assert certificate_names(stream) == names
    assert certificate_names(trio.testing.memory_stream_pair()[0]) == ()


# One side speaks TLS, and the other does not.


async def test_a_channel_without_tls_says_that_the_server_may_speak_it(
    server: Party, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with tls_server(server_tls(server.chain, server.key)) as port, Channel("127.0.0.1", port) as plain:
        await refused(plain, "connection lost; the server may speak TLS$")
        assert plain.trouble.endswith("; the server may speak TLS")
    assert any("; the client may not speak TLS" in text for text in caplog.messages)


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1", b"POST /enter HTTP/1.1", b"HEAD / HTTP/1.0"])
async def test_a_browser_without_tls_is_told_to_use_it(
    request_line: bytes, server: Party, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer = b""
    with trio.fail_after(30):
        async with tls_server(server_tls(server.chain, server.key)) as port:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(request_line + b"\r\nHost: localhost\r\n\r\n")
            async for data in stream:
                answer += data
            await stream.aclose()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 400 Bad Request"
    assert b"Content-Length: %d" % len(body) in head.splitlines()
    assert body == b"This port speaks TLS: the address begins with https://\n"
    assert any("; the client may not speak TLS" in text for text in caplog.messages)


@pytest.mark.parametrize("web", [None, GrpcOnly(), WebSide()])
async def test_a_channel_with_tls_says_that_the_server_may_not_speak_it(
    web: ServerSide | None, server: Party, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    listeners = await open_listeners("127.0.0.1")
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(partial(serve, [CheckService().service()], listeners, web=web))
            async with Channel("127.0.0.1", serving.port, tls=client_tls(server.roots)) as secure:
                await refused(secure, "TLS handshake failed: .*; the server may not speak TLS$")
            nursery.cancel_scope.cancel()
    assert any(text.endswith("this is not HTTP/2; the client may speak TLS") for text in caplog.messages)


@pytest.mark.parametrize("answer", [b"\x15\x03\x01\x00\x02\x02\x46", b"\x15\x03\x03\x00\x02\x01\x00" + bytes(20), b""])
async def test_a_channel_without_tls_knows_the_answers_of_other_servers_with_tls(answer: bytes) -> None:
    """An alert of TLS, by which most of them answer; or nothing."""

    async def answers(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, answers, 0, host="127.0.0.1"))
            async with Channel("127.0.0.1", listener.socket.getsockname()[1]) as plain:
                await refused(plain, "; the server may speak TLS$")
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(64), b""])
async def test_a_channel_with_tls_knows_the_answers_of_other_servers_without(answer: bytes, server: Party) -> None:
    async def answers(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, answers, 0, host="127.0.0.1"))
            async with Channel("127.0.0.1", listener.socket.getsockname()[1], tls=client_tls(server.roots)) as secure:
                await refused(secure, "; the server may not speak TLS$")
            nursery.cancel_scope.cancel()


async def test_a_certificate_that_is_not_trusted_is_no_sign_of_a_server_without_tls(server: Party) -> None:
    async with (
        tls_server(server_tls(server.chain, server.key)) as port,
        Channel("127.0.0.1", port, tls=client_tls()) as channel,
    ):
        with pytest.raises(RpcError, match="TLS handshake failed") as caught:
            await channel.unary(ECHO_ONE, Action())
        assert "speak TLS" not in caught.value.message


# Each side learns that the other has refused its certificate, or missed one.


async def test_a_server_logs_that_a_client_does_not_accept_its_certificate(
    server: Party, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trio_cogment.rpc.server")
    async with (
        tls_server(server_tls(server.chain, server.key)) as port,
        Channel("127.0.0.1", port, tls=client_tls()) as channel,
    ):
        await refused(channel, "its authority is not among the trusted roots$")
    assert any(
        text.endswith(
            "TLS handshake failed: tlsv1 alert unknown ca; the client does not accept this server's certificate"
        )
        for text in caplog.messages
    )


async def test_a_client_learns_that_the_server_asks_for_a_certificate(server: Party, client: Party) -> None:
    async with (
        tls_server(server_tls(server.chain, server.key, client_roots=client.roots)) as port,
        Channel("127.0.0.1", port, tls=client_tls(server.roots)) as channel,
    ):
        await refused(channel, "alert certificate required; the server asks for a client certificate$")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_learns_that_the_server_does_not_accept_its_certificate(
    version: ssl.TLSVersion, server: Party, client: Party
) -> None:
    context = client_tls(server.roots, certificate=server.chain, key=server.key)
    context.maximum_version = version
    async with (
        tls_server(server_tls(server.chain, server.key, client_roots=client.roots)) as port,
        Channel("127.0.0.1", port, tls=context) as channel,
    ):
        await refused(channel, "alert unknown ca; the server does not accept this client's certificate$")


async def test_a_client_that_does_not_read_its_refusal_is_left_after_a_moment(
    server: Party, client: Party, autojump_clock: trio.testing.MockClock
) -> None:
    context = server_tls(server.chain, server.key, client_roots=client.roots)
    near, far = trio.testing.memory_stream_pair()

    async def floods() -> None:
        encrypted = client_stream(near, client_tls(server.roots), "127.0.0.1")
        await encrypted.do_handshake()
        while True:
            await near.send_all(bytes(1000))
            await trio.sleep(0.1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(floods)
        with pytest.raises(RemoteProtocolError, match="peer did not return a certificate"):
            await shake_hands(trio.SSLStream(far, context, server_side=True, https_compatible=True), 20)
        nursery.cancel_scope.cancel()
    assert trio.current_time() < 20


def failed(kind: type[ssl.SSLError], **attributes: str) -> ssl.SSLError:
    error = kind(1, "[SSL: INTERNALS] of the library")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (failed(ssl.SSLError, reason="WRONG_VERSION_NUMBER"), "wrong version number"),
        (failed(ssl.SSLError, reason="HTTP_REQUEST"), "http request"),
        (
            failed(ssl.SSLCertVerificationError, reason="X", verify_message="self-signed certificate"),
            "self-signed certificate",
        ),
        (failed(ssl.SSLError, reason=""), "connection lost"),
        (ConnectionResetError(), "connection lost"),
        (None, "connection lost"),
    ],
)
def test_why_a_handshake_failed_is_told_in_words(error: BaseException | None, reason: str) -> None:
    assert _reason(error) == reason


@pytest.mark.parametrize("http1", [False, True])
async def test_a_certificate_is_renewed_while_a_server_listens(http1: bool, tmp_path: Path) -> None:
    """Each connection is encrypted with what there is when it comes."""
    first, second = (make_party(tmp_path, name, "127.0.0.1") for name in ("first", "second"))
    contexts = [server_tls(party.chain, party.key) for party in (first, second)]
    (plain,) = await open_listeners("127.0.0.1")
    listener = RenewableListener(plain, lambda: contexts[0], http1=http1)
    assert listener.transport_listener is plain
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            serving: Any = await nursery.start(serve, [CheckService().service()], [listener])
            for renewed, party in enumerate((first, second)):
                if renewed:
                    contexts.pop(0)
                async with Channel("127.0.0.1", serving.port, tls=client_tls(party.roots)) as channel:
                    assert (await channel.unary(ECHO_ONE, Action(tick_id=5))).tick_id == 5
            # Who wants HTTP/1.1 is offered it where browsers are served.
            context = ssl.create_default_context(cafile=second.roots)
            context.set_alpn_protocols(["http/1.1"])
            raw = await trio.open_tcp_stream("127.0.0.1", serving.port)
            stream = trio.SSLStream(raw, context, server_hostname="127.0.0.1")
            await stream.do_handshake()
            assert stream.selected_alpn_protocol() == ("http/1.1" if http1 else None)
            await trio.aclose_forcefully(raw)
            nursery.cancel_scope.cancel()
    with pytest.raises(trio.ClosedResourceError):
        await plain.accept()


async def test_a_connection_whose_handshake_fails_is_not_counted_any_more(server: Party) -> None:
    async with tls_server(_tls(server), RpcConfig(max_connections=1)) as port:
        for _ in range(3):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(b"this is no handshake at all")
            with contextlib.suppress(trio.BrokenResourceError):
                while await stream.receive_some():
                    pass
            await stream.aclose()
            async with Channel("127.0.0.1", port, tls=client_tls(server.roots)) as channel:
                await check(channel)


@pytest.mark.parametrize("offer", [["http/1.1"], ["h2"], []])
async def test_with_a_side_for_browsers_any_protocol_will_do(server: Party, offer: list[str]) -> None:
    """Only who has agreed on HTTP/2 has to speak it."""
    theirs, ours = server_tls(server.chain, server.key), ssl.create_default_context(cafile=server.roots)
    theirs.set_alpn_protocols(["http/1.1", "h2"])
    if offer:
        ours.set_alpn_protocols(offer)
    near, far = trio.testing.memory_stream_pair()
    stream = trio.SSLStream(far, theirs, server_side=True)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.SSLStream(near, ours, server_hostname="localhost").do_handshake)
            await shake_hands(stream, 10, http1=True)
    assert stream.selected_alpn_protocol() == (offer[0] if offer else None)


async def test_a_handshake_waits_for_its_turn_and_costs_as_much_as_two_connections(server: Party) -> None:
    """It takes a while of the processor, and anybody may ask for it."""
    taken = noted_turns()
    near, far = trio.testing.memory_stream_pair()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            stream = trio.SSLStream(far, _tls(server), server_side=True)
            nursery.start_soon(serve_stream, [CheckService().service()], stream)
            await client_stream(near, client_tls(server.roots), "localhost").do_handshake()
            nursery.cancel_scope.cancel()
    assert taken[:2] == [(Lane.OTHERS, 5), (Lane.OTHERS, 10)]


async def test_a_server_may_close_without_a_word_of_tls(server: Party) -> None:
    """As many do: gRPC's own end of a call says whether anything is missing."""
    near, far = trio.testing.memory_stream_pair()
    ours = client_stream(near, client_tls(server.roots), "server.test")
    theirs = trio.SSLStream(far, _tls(server), server_side=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(theirs.do_handshake)
        await ours.do_handshake()
    await far.aclose()
    assert await ours.receive_some() == b""
