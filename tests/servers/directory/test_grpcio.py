"""A foreign client over sockets: grpcio, as the published SDK uses it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest
import trio

from tests.servers.directory.bench import ENVIRONMENT, METHODS, OTHER, Told, new_server, registration, service_of
from trio_cogment.api.common_pb2 import StatusRequest, VersionRequest
from trio_cogment.api.directory_pb2 import (
    DeregisterRequest,
    InquireRequest,
    RegisterReply,
    RegisterRequest,
    ServiceDetails,
)
from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.base.host import Host
from trio_cogment.rpc import CallOpener, open_channel, open_listeners, serve, standard_services
from trio_cogment.servers.directory import DirectoryServer, directory_services

PATIENCE_SECONDS = 30


class Stub:
    """Blocking calls, in threads."""

    def __init__(self, channel: grpc.Channel, port: int) -> None:
        self.port = port
        self._channel = channel

    async def stream(self, name: str, requests: list[Any], token: str = "", take: int | None = None) -> list[Any]:
        """Make a call and take this many replies, then go away without a word, as the published SDK does."""

        def blocking() -> list[Any]:
            method = METHODS[name]
            make = self._channel.unary_stream if name == "Inquire" else self._channel.stream_stream
            function = make(
                method.path,
                request_serializer=method.request_type.SerializeToString,
                response_deserializer=method.response_type.FromString,
            )
            argument = requests[0] if name == "Inquire" else iter(requests)
            call = function(
                argument, metadata=[("authentication-token", token)] if token else [], timeout=PATIENCE_SECONDS
            )
            replies = list(itertools.islice(call, take))
            call.cancel()
            return replies

        result: list[Any] = await trio.to_thread.run_sync(blocking)
        return result

    async def unary(self, name: str, request: Any) -> Any:
        method = METHODS[name]
        function = self._channel.unary_unary(
            method.path,
            request_serializer=method.request_type.SerializeToString,
            response_deserializer=method.response_type.FromString,
        )
        return await trio.to_thread.run_sync(partial(function, request, timeout=PATIENCE_SECONDS))


@asynccontextmanager
async def stub() -> AsyncIterator[Stub]:
    server = new_server(None, DirectoryServerConfig(startup_lag_seconds=0))
    async with server, trio.open_nursery() as nursery:
        services = [*directory_services(server), service_of(Told("5"))]
        services += standard_services(services)
        serving = await nursery.start(serve, services, await open_listeners("127.0.0.1"))
        with grpc.insecure_channel(f"127.0.0.1:{serving.ports[0]}") as channel:
            yield Stub(channel, serving.ports[0])
        nursery.cancel_scope.cancel()


async def test_all_of_it() -> None:
    async with stub() as at:
        here = registration("127.0.0.1", {"a": "1"}, port=at.port)
        [reply] = await at.stream("Register", [here], "t", take=1)
        assert reply.status == RegisterReply.OK
        inquiry = InquireRequest(details=ServiceDetails(type=ENVIRONMENT, properties={"a": "1"}))
        [found] = await at.stream("Inquire", [inquiry], "t", take=1)
        assert found.data.service_id == reply.service_id
        assert found.data.endpoint.port == at.port
        assert await at.stream("Inquire", [inquiry]) == []
        assert await at.stream("Inquire", [InquireRequest(service_id=0)], "t") == []
        gone = DeregisterRequest(service_id=reply.service_id, secret=reply.secret)
        assert [one.status for one in await at.stream("Deregister", [gone, gone], "t")] == [1, 2]
        assert (await at.unary("Status", StatusRequest(names=["nb_entries"]))).statuses == {"nb_entries": "0"}
        assert (await at.unary("Version", VersionRequest())).versions


async def test_bad_input() -> None:
    async with stub() as at:
        replies = await at.stream("Register", [RegisterRequest(), registration("", kind=OTHER)])
        assert [reply.status for reply in replies] == [RegisterReply.FAILED] * 2
        assert replies[0].error_msg == "endpoint: expected a value, got none"
        with pytest.raises(grpc.RpcError) as caught:
            await at.stream("Inquire", [InquireRequest()])
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await at.stream("Register", []) == []


async def test_a_grpcio_service_is_checked() -> None:
    """One of grpcio's that has `Version` only, as old services; and one that has neither."""
    from concurrent import futures

    from trio_cogment.base.about import version_info

    class Old(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
        def service(self, details: Any) -> Any:
            if details.method != "/cogmentAPI.EnvironmentSP/Version":
                return None
            return grpc.unary_unary_rpc_method_handler(
                lambda _request, _context: version_info(),
                request_deserializer=VersionRequest.FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )

    servers = []
    for handlers in ([Old()], []):
        server = grpc.server(futures.ThreadPoolExecutor(1), handlers=handlers)
        servers.append((server, server.add_insecure_port("127.0.0.1:0")))
        server.start()
    try:
        async with stub() as at:
            requests = [registration("127.0.0.1", port=port) for _, port in servers]
            await at.stream("Register", requests)
            found = await at.stream("Inquire", [InquireRequest(details=ServiceDetails())])
            assert [reply.data.endpoint.port for reply in found] == [servers[0][1]]
    finally:
        for server, _ in servers:
            await trio.to_thread.run_sync(server.stop(None).wait)


async def test_a_neighbour_takes_nobody_s_place() -> None:
    """Other addresses of this machine stand for other machines; the attack is what anybody may do with open access."""

    def at(address: str) -> Host:
        return Host(connect=partial(trio.open_tcp_stream, local_address=address))

    async def exchange(channel: CallOpener, method: str, *requests: Any) -> list[Any]:
        async with channel.call(METHODS[method]) as call:
            for request in requests:
                await call.send(request)
            await call.done_sending()
            return [reply async for reply in call]

    service = registration("127.0.0.9", {"a": "1"}, permanent=True)
    evil = registration("127.0.0.66", {"a": "1"}, permanent=True)
    inquiry = InquireRequest(details=ServiceDetails(type=ENVIRONMENT, properties={"a": "1"}))
    async with DirectoryServer() as server, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running = await nursery.start(serve, directory_services(server), listeners)
        async with (
            open_channel(at("127.0.0.1"), "127.0.0.1", running.port) as honest,
            open_channel(at("127.0.0.2"), "127.0.0.1", running.port) as neighbour,
            open_channel(at("127.0.0.3"), "127.0.0.1", running.port) as third,
        ):
            [first] = await exchange(honest, "Register", service)
            [second] = await exchange(neighbour, "Register", evil)
            assert second.service_id != first.service_id
            for channel, expected in ((honest, "127.0.0.9"), (third, "127.0.0.9"), (neighbour, "127.0.0.66")):
                found = await exchange(channel, "Inquire", inquiry)
                assert found[0].data.endpoint.host == expected
                assert len(found) == 2
            own = DeregisterRequest(service_id=second.service_id, secret=second.secret)
            await exchange(neighbour, "Deregister", own)
            [left] = await exchange(neighbour, "Inquire", inquiry)
            assert left.data.service_id == first.service_id
        nursery.cancel_scope.cancel()
