"""TLS with a foreign peer, both ways: who gets in, and who does not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio

from tests.rpc.tls_files import Party, make_party
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, client_tls, open_listeners, open_unix_listener, serve, server_tls
from trio_cogment.testing.conformance.channel import ECHO_ONE, CheckService


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return make_party(tmp_path_factory.mktemp("server"), "server", "127.0.0.1", "server.test", "localhost")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return make_party(tmp_path_factory.mktemp("client"), "client", "client.test")


def serialize(message: Any) -> bytes:
    return bytes(message.SerializeToString())


@asynccontextmanager
async def our_server(open_them: Callable[[], Any]) -> AsyncIterator[Any]:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            yield await nursery.start(serve, [CheckService().service()], await open_them())
            nursery.cancel_scope.cancel()


async def grpcio_call(target: str, credentials: Any, options: Any = ()) -> Any:
    """Return the answer of a unary call, or its status code."""

    def run() -> Any:
        with grpc.secure_channel(target, credentials, options=list(options)) as channel:
            try:
                call = channel.unary_unary(ECHO_ONE.path, serialize, Observation.FromString)
                return call(Action(tick_id=5), timeout=20).tick_id
            except grpc.RpcError as error:
                return error.code().name

    return await trio.to_thread.run_sync(run)


async def test_b15_grpcio_client_over_tls(server: Party, client: Party) -> None:
    async def open_them() -> Any:
        return await open_listeners("127.0.0.1", tls=server_tls(server.chain, server.key))

    async with our_server(open_them) as serving:
        target = f"127.0.0.1:{serving.port}"
        good = grpc.ssl_channel_credentials(server.roots.read_bytes())
        assert await grpcio_call(target, good) == 5
        assert await grpcio_call(target, good, [("grpc.ssl_target_name_override", "server.test")]) == 5
        assert await grpcio_call(target, grpc.ssl_channel_credentials(client.roots.read_bytes())) == "UNAVAILABLE"
        assert await grpcio_call(target, good) == 5


async def test_b15_grpcio_client_over_mutual_tls(server: Party, client: Party) -> None:
    async def open_them() -> Any:
        return await open_listeners("127.0.0.1", tls=server_tls(server.chain, server.key, client_roots=client.roots))

    async with our_server(open_them) as serving:
        target = f"127.0.0.1:{serving.port}"
        roots = server.roots.read_bytes()
        _, key, chain = client.pem()
        assert await grpcio_call(target, grpc.ssl_channel_credentials(roots, key, chain)) == 5
        assert await grpcio_call(target, grpc.ssl_channel_credentials(roots)) == "UNAVAILABLE"
        _, key, chain = server.pem()
        assert await grpcio_call(target, grpc.ssl_channel_credentials(roots, key, chain)) == "UNAVAILABLE"


async def test_grpcio_client_over_a_unix_socket(server: Party, tmp_path: Path) -> None:
    path = tmp_path / "socket"

    async def open_them() -> Any:
        return [await open_unix_listener(path)]

    def run() -> int:
        with grpc.insecure_channel(f"unix:{path}") as channel:
            call = channel.unary_unary(ECHO_ONE.path, serialize, Observation.FromString)
            return int(call(Action(tick_id=5), timeout=20).tick_id)

    async with our_server(open_them):
        assert await trio.to_thread.run_sync(run) == 5


@asynccontextmanager
async def grpcio_server(address: str, credentials: Any) -> AsyncIterator[int]:
    def echo(request: Action, context: grpc.ServicerContext) -> Observation:
        return Observation(tick_id=request.tick_id, content=request.content)

    handler = grpc.unary_unary_rpc_method_handler(echo, Action.FromString, serialize)
    with ThreadPoolExecutor(4) as pool:
        grpcio = grpc.server(pool)
        service = grpc.method_handlers_generic_handler("trio_cogment.testing.Check", {"EchoOne": handler})
        grpcio.add_generic_rpc_handlers((service,))
        if credentials is None:
            port = grpcio.add_insecure_port(address)
        else:
            port = grpcio.add_secure_port(address, credentials)
        grpcio.start()
        try:
            with trio.fail_after(60):
                yield port
        finally:
            grpcio.stop(None).wait(10)


async def check(channel: Channel) -> None:
    message = Action(tick_id=5, content=bytes(300_000))
    assert (await channel.unary(ECHO_ONE, message, timeout=20)).content == message.content


async def refused(channel: Channel) -> None:
    with pytest.raises(RpcError, match="cannot connect") as caught:
        await channel.unary(ECHO_ONE, Action(), timeout=20)
    assert caught.value.code is StatusCode.UNAVAILABLE


async def test_b15_grpcio_server_over_tls(server: Party, client: Party) -> None:
    _, key, chain = server.pem()
    async with grpcio_server("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)])) as port:
        async with Channel("127.0.0.1", port, tls=client_tls(server.roots)) as channel:
            await check(channel)
        async with Channel("127.0.0.1", port, tls=client_tls(server.roots), server_name="server.test") as channel:
            await check(channel)
        async with Channel("127.0.0.1", port, tls=client_tls(client.roots)) as channel:
            await refused(channel)


async def test_b15_grpcio_server_over_mutual_tls(server: Party, client: Party) -> None:
    _, key, chain = server.pem()
    credentials = grpc.ssl_server_credentials([(key, chain)], client.roots.read_bytes(), require_client_auth=True)
    async with grpcio_server("127.0.0.1:0", credentials) as port:
        known = client_tls(server.roots, certificate=client.chain, key=client.key)
        async with Channel("127.0.0.1", port, tls=known) as channel:
            await check(channel)
        async with Channel("127.0.0.1", port, tls=client_tls(server.roots)) as channel:
            await refused(channel)


async def test_grpcio_server_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with grpcio_server(f"unix:{path}", None), Channel.unix(path) as channel:
        await check(channel)
