"""The health service: what it says, who is told when, and grpcio's stub."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import trio
import trio.testing
from grpc_health.v1 import health_pb2, health_pb2_grpc
from purerpc import Service

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import (
    CallOpener,
    Channel,
    HealthService,
    InProcessChannel,
    Method,
    RunningServer,
    ServingStatus,
    ask_health,
    methods_of,
    open_listeners,
    serve,
    standard_services,
)
from trio_cogment.rpc._protos.health_pb2 import (
    DESCRIPTOR,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
)
from trio_cogment.testing.conformance.channel import CheckService

METHODS = methods_of(DESCRIPTOR.services_by_name["Health"])
NAME = "trio_cogment.testing.Check"


async def check(channel: CallOpener, service: str = "") -> ServingStatus:
    return ServingStatus((await channel.unary(METHODS["Check"], HealthCheckRequest(service=service))).status)


@asynccontextmanager
async def served(services: list[Service], health: HealthService) -> AsyncIterator[tuple[RunningServer, Channel]]:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:

            async def run(task_status: Any) -> None:
                await serve(services, await open_listeners("127.0.0.1"), health=health, task_status=task_status)

            serving = await nursery.start(run)
            async with Channel("127.0.0.1", serving.port) as channel:
                yield serving, channel
            nursery.cancel_scope.cancel()


async def test_check_and_list() -> None:
    health = HealthService([NAME])
    async with InProcessChannel([health.service()]) as channel:
        assert await check(channel) is ServingStatus.SERVING
        assert await check(channel, NAME) is ServingStatus.SERVING
        with pytest.raises(RpcError) as caught:
            await check(channel, "nobody")
        assert caught.value.code is StatusCode.NOT_FOUND
        health.set_status("nobody", ServingStatus.UNKNOWN)
        assert await check(channel, "nobody") is ServingStatus.UNKNOWN
        health.set_status(NAME, ServingStatus.NOT_SERVING)
        listed = await channel.unary(METHODS["List"], HealthListRequest())
        assert {name: entry.status for name, entry in listed.statuses.items()} == {"": 1, NAME: 2, "nobody": 0}
        health.stop()
        assert await check(channel) is ServingStatus.NOT_SERVING
        health.set_status("", ServingStatus.SERVING)
        assert health.status() is ServingStatus.NOT_SERVING
        health.stop()


async def test_watch_tells_every_change_until_the_stop() -> None:
    health = HealthService()
    async with InProcessChannel([health.service()]) as channel, channel.call(METHODS["Watch"]) as call:
        await call.send(HealthCheckRequest(service="later"))
        await call.done_sending()
        assert (await call.receive()).status == ServingStatus.SERVICE_UNKNOWN.value
        for status in (ServingStatus.SERVING, ServingStatus.NOT_SERVING, ServingStatus.SERVING):
            health.set_status("later", status)
            health.set_status("other", status)  # is not news
            assert (await call.receive()).status == status.value
            await trio.testing.wait_all_tasks_blocked()
        health.stop()
        assert (await call.receive()).status == ServingStatus.NOT_SERVING.value
        with pytest.raises(RpcError) as caught:
            await call.receive()
        assert caught.value.code is StatusCode.UNAVAILABLE


async def test_with_its_server_it_stops_however_that_ends() -> None:
    for drained in (False, True):
        health = HealthService([NAME])
        async with served([health.service()], health) as (serving, channel):
            assert await check(channel, NAME) is ServingStatus.SERVING
            if drained:
                await serving.drain(0)
        assert health.status(NAME) is ServingStatus.NOT_SERVING


async def test_a_drain_tells_those_who_watch_and_does_not_wait_for_them() -> None:
    health = HealthService([NAME])
    services = [CheckService().service()]
    async with (
        served([*services, *standard_services(services, health)], health) as (serving, channel),
        channel.call(METHODS["Watch"]) as call,
    ):
        await call.send(HealthCheckRequest(service=NAME))
        await call.done_sending()
        assert (await call.receive()).status == ServingStatus.SERVING.value
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serving.drain, 3600)  # would be the test's end, if it waited
            assert (await call.receive()).status == ServingStatus.NOT_SERVING.value
            with pytest.raises(RpcError):
                await call.receive()


async def tells(channel: CallOpener, own: str, other: str, status: ServingStatus) -> None:
    assert await check(channel, own) is status
    assert await check(channel) is ServingStatus.SERVING
    with pytest.raises(RpcError) as caught:
        await check(channel, other)
    assert caught.value.code is StatusCode.NOT_FOUND
    listed = await channel.unary(METHODS["List"], HealthListRequest())
    assert {name: entry.status for name, entry in listed.statuses.items()} == {"": 1, own: status.value, "anybody's": 1}


async def test_servers_that_share_a_table_tell_of_their_own_services() -> None:
    """As two ports of one process do."""
    names = ["one.Service", "two.Service"]
    health = HealthService(names)
    first, second = (InProcessChannel(standard_services([Service(name)], health)) for name in names)
    async with first, second, second.call(METHODS["Watch"]) as watching:
        await watching.send(HealthCheckRequest(service=names[0]))
        await watching.done_sending()
        assert (await watching.receive()).status == ServingStatus.SERVICE_UNKNOWN.value
        health.set_status(names[0], ServingStatus.NOT_SERVING)
        health.set_status("anybody's", ServingStatus.SERVING)
        await tells(first, names[0], names[1], ServingStatus.NOT_SERVING)
        await tells(second, names[1], names[0], ServingStatus.SERVING)
        health.stop()
        with pytest.raises(RpcError) as caught:
            await watching.receive()  # nothing had changed for it
        assert caught.value.code is StatusCode.UNAVAILABLE
    async with InProcessChannel([health.service()]) as channel:
        listed = await channel.unary(METHODS["List"], HealthListRequest())
        assert set(listed.statuses) == {"", *names, "anybody's"}


async def test_without_a_health_service_all_services_are_serving() -> None:
    services = [CheckService().service()]
    async with InProcessChannel(standard_services(services)) as channel:
        assert await check(channel) is await check(channel, NAME) is ServingStatus.SERVING


async def test_grpcio_stub() -> None:
    health = HealthService([NAME])
    changed = trio.Event()

    def run(port: int) -> list[int]:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            assert stub.Check(health_pb2.HealthCheckRequest(service=NAME), timeout=30).status == 1
            with pytest.raises(grpc.RpcError) as caught:
                stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=30)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            seen = []
            for response in stub.Watch(health_pb2.HealthCheckRequest(service=NAME), timeout=30):
                seen.append(response.status)
                trio.from_thread.run_sync(changed.set)
                if len(seen) == 2:
                    return seen
            return seen

    async def change() -> None:
        await changed.wait()
        health.set_status(NAME, ServingStatus.NOT_SERVING)

    async with served([health.service()], health) as (serving, _), trio.open_nursery() as nursery:
        nursery.start_soon(change)
        assert await trio.to_thread.run_sync(run, serving.port) == [1, 2]


async def test_a_server_is_asked_how_it_is() -> None:
    health = HealthService([NAME, "other.Service"])
    async with InProcessChannel([health.service()]) as channel:
        health.set_status("other.Service", ServingStatus.NOT_SERVING)
        assert await ask_health(channel) is ServingStatus.SERVING
        assert await ask_health(channel, NAME) is ServingStatus.SERVING
        assert await ask_health(channel, "other.Service") is ServingStatus.NOT_SERVING
        with pytest.raises(RpcError) as caught:
            await ask_health(channel, "nobody.Knows")
        assert caught.value.code is StatusCode.NOT_FOUND
    async with InProcessChannel() as channel:
        with pytest.raises(RpcError) as caught:
            await ask_health(channel)
        assert caught.value.code is StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("status", [4, 1000])
async def test_a_status_that_nobody_knows_is_unknown(status: int) -> None:
    """Of a server that is newer than this."""

    class Newer(CallOpener):
        def call(self, method: Method, **_: object) -> Any:
            raise NotImplementedError

        async def unary(self, method: Method, request: Any, **_: object) -> Any:
            assert method.path == "/grpc.health.v1.Health/Check"
            return HealthCheckResponse(status=status)  # type: ignore[arg-type]  # that is the point

    assert await ask_health(Newer()) is ServingStatus.UNKNOWN
