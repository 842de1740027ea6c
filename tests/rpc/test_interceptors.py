"""Interceptors see every call of a server or channel, in their order, and may change, answer or refuse it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from purerpc import Service

from tests.helpers import wire_channel
from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import (
    CallDetails,
    CallOpener,
    ClientCall,
    ClientCallWrapper,
    ClientInterceptor,
    Handler,
    InProcessChannel,
    Metadata,
    ServerCall,
    ServerCallWrapper,
    intercept_channel,
    intercept_services,
)
from trio_cogment.testing.conformance.channel import COUNT, ECHO, ECHO_ONE, FAIL, CheckService


@asynccontextmanager
async def in_process(services: list[Service]) -> AsyncIterator[CallOpener]:
    async with InProcessChannel(services) as channel:
        yield channel


BOTH = pytest.mark.parametrize("way", [wire_channel, in_process], ids=["socket", "process"])
Way = Callable[[list[Service]], AbstractAsyncContextManager[CallOpener]]


@BOTH
async def test_the_first_server_interceptor_is_the_outermost(way: Way) -> None:
    seen: list[str] = []

    def named(name: str) -> Callable[[ServerCall, Handler], Awaitable[None]]:
        async def interceptor(call: ServerCall, handler: Handler) -> None:
            seen.append(f"{name} before {call.method.path.rpartition('/')[2]}")
            try:
                await handler(call)
            except Exception as error:
                seen.append(f"{name}: {type(error).__name__}")
                raise
            seen.append(f"{name} after")

        return interceptor

    services = intercept_services([CheckService().service()], named("a"), named("b"))
    async with way(services) as channel:
        await channel.unary(ECHO_ONE, Action(tick_id=1))
        name = ECHO_ONE.path.rpartition("/")[2]
        assert seen == [f"a before {name}", f"b before {name}", "b after", "a after"]
        seen.clear()
        with pytest.raises(RpcError, match="no such thing"):
            await channel.unary(FAIL, Action(content=b"known"))
        assert seen[2:] == ["b: NotFoundError", "a: NotFoundError"]


@BOTH
async def test_a_server_interceptor_refuses(way: Way) -> None:
    async def members_only(call: ServerCall, handler: Handler) -> None:
        if call.metadata.first("member") is None:
            call.set_trailing_metadata({"ask": "the office"})
            raise RpcError(StatusCode.PERMISSION_DENIED, "members only")
        await handler(call)

    async with way(intercept_services([CheckService().service()], members_only)) as channel:
        with pytest.raises(RpcError, match="members only") as caught:
            await channel.unary(ECHO_ONE, Action())
        assert caught.value.code is StatusCode.PERMISSION_DENIED
        assert ("ask", "the office") in caught.value.trailing_metadata
        assert await channel.unary(ECHO_ONE, Action(tick_id=3), metadata={"member": "1"}) == Observation(tick_id=3)


class Noting(ServerCallWrapper):
    def __init__(self, call: ServerCall, notes: list[str]) -> None:
        super().__init__(call)
        self.notes = notes

    def on_received(self, message: Any) -> None:
        self.notes.append(f"in {message.tick_id}")

    def on_sent(self, message: Any) -> None:
        self.notes.append(f"out {message.tick_id}")


@BOTH
async def test_a_server_interceptor_sees_messages(way: Way) -> None:
    notes: list[str] = []

    async def noting(call: ServerCall, handler: Handler) -> None:
        await handler(Noting(call, notes))

    async with way(intercept_services([CheckService().service()], noting)) as channel:
        async with channel.call(COUNT) as call:
            await call.send(Action(tick_id=2))
            await call.done_sending()
            assert [message.tick_id async for message in call] == [0, 1]
        assert notes == ["in 2", "out 0", "out 1"]


class NotingCall(ClientCallWrapper):
    def __init__(self, call: ClientCall, notes: list[str]) -> None:
        super().__init__(call)
        self.notes = notes

    def on_received(self, message: Any) -> None:
        self.notes.append(f"in {message.tick_id}")

    def on_sent(self, message: Any) -> None:
        self.notes.append(f"out {message.tick_id}")


class Client(ClientInterceptor):
    """Adds metadata, notes messages, and tries a second time."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    @asynccontextmanager
    async def intercept_call(
        self, details: CallDetails, continuation: Callable[[CallDetails], AbstractAsyncContextManager[ClientCall]]
    ) -> AsyncIterator[ClientCall]:
        self.notes.append(f"{self.name} opens")
        async with continuation(self.with_name(details)) as call:
            yield NotingCall(call, self.notes)
        self.notes.append(f"{self.name} is over")

    async def intercept_unary(
        self, details: CallDetails, request: Any, continuation: Callable[[CallDetails, Any], Awaitable[Any]]
    ) -> Any:
        details = self.with_name(details)
        try:
            return await continuation(details, request)
        except RpcError as error:
            self.notes.append(f"{self.name}: {error.code.name}")
            return await continuation(details, Action(content=b"custom"))

    def with_name(self, details: CallDetails) -> CallDetails:
        return replace(details, metadata=Metadata([*details.metadata, ("x-a", self.name)]))


@BOTH
async def test_client_interceptors_see_calls_in_their_order(way: Way) -> None:
    notes: list[str] = []
    async with way([CheckService().service()]) as bare:
        channel = intercept_channel(bare, Client("a", notes), Client("b", notes))
        async with channel.call(ECHO_ONE, metadata={"x-a": "own"}) as call:
            await call.send(Action(tick_id=5))
            await call.done_sending()
            assert (await call.receive()).tick_id == 5
            # The service sends back what came.
            assert (await call.wait_initial_metadata()).all("x-a") == ["own", "a", "b"]
            assert await call.receive() is None
        assert notes == ["a opens", "b opens", "out 5", "out 5", "in 5", "in 5", "b is over", "a is over"]


@BOTH
async def test_a_client_interceptor_answers_a_failed_request_with_another_one(way: Way) -> None:
    notes: list[str] = []
    async with way([CheckService().service()]) as bare:
        channel = intercept_channel(bare, Client("a", notes))
        with pytest.raises(RpcError, match="custom") as caught:
            await channel.unary(FAIL, Action(content=b"known"))
        assert caught.value.code is StatusCode.DATA_LOSS
        assert notes == ["a: NOT_FOUND"]


@BOTH
async def test_what_a_block_raises_is_seen_by_its_interceptor(way: Way) -> None:
    seen: list[BaseException] = []

    class Watching(ClientInterceptor):
        @asynccontextmanager
        async def intercept_call(
            self, details: CallDetails, continuation: Callable[[CallDetails], AbstractAsyncContextManager[ClientCall]]
        ) -> AsyncIterator[ClientCall]:
            try:
                async with continuation(details) as call:
                    yield call
            except ValueError as error:
                seen.append(error)
                raise

    async with way([CheckService().service()]) as bare:
        with pytest.raises(ValueError, match="in the block"):
            async with intercept_channel(bare, Watching()).call(ECHO):
                raise ValueError("in the block")
    assert [str(error) for error in seen] == ["in the block"]


async def test_a_name_is_no_method() -> None:
    channel = intercept_channel(InProcessChannel())
    with pytest.raises(TypeError, match=r"method: expected an rpc\.Method, .*, got 'EchoOne'"):
        await channel.unary("EchoOne", Action())  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TypeError, match=r"method: expected an rpc\.Method"):
        channel.call("EchoOne")  # type: ignore[arg-type]  # the mistake
