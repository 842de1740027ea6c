"""The services that `check_channel` calls: a handler for each way a call can go, and what they saw."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from purerpc import Cardinality, RPCSignature, Service

from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode
from trio_cogment.rpc import detailed_error
from trio_cogment.rpc.calls import Method, ServerCall

_NAME = "trio_cogment.testing.Check"
#: Must not leave the process.
SECRET = "the-password-is-swordfish"


def _method(name: str, cardinality: Cardinality) -> Method:
    return Method(f"/{_NAME}/{name}", cardinality, Action, Observation)


ECHO_ONE = _method("EchoOne", Cardinality.UNARY_UNARY)
CUT_OFF = _method("CutOff", Cardinality.UNARY_STREAM)
COUNT = _method("Count", Cardinality.UNARY_STREAM)
SUM = _method("Sum", Cardinality.STREAM_UNARY)
ECHO = _method("Echo", Cardinality.STREAM_STREAM)
FAIL = _method("Fail", Cardinality.UNARY_UNARY)
WAIT = _method("Wait", Cardinality.STREAM_STREAM)
PUSHED = _method("Pushed", Cardinality.STREAM_STREAM)
MUTATE = _method("Mutate", Cardinality.STREAM_STREAM)
SIZED = _method("Sized", Cardinality.UNARY_STREAM)
FLOOD = _method("Flood", Cardinality.UNARY_STREAM)
NOWHERE = _method("Nowhere", Cardinality.UNARY_UNARY)


class CheckService:
    """The handlers the cases call, and what they saw."""

    def __init__(self) -> None:
        self.entered = trio.Event()
        self.cancelled = trio.Event()
        self.ends: list[RpcError | None] = []
        self.ended = trio.Event()
        self.flooded = 0
        self.flood_full = trio.Event()
        self.deadline = math.nan

    def service(self) -> Service:
        """Return the handlers as a service."""
        service = Service(_NAME)
        handlers = [
            (ECHO_ONE, self.echo_one),
            (COUNT, self.count),
            (CUT_OFF, self.cut_off),
            (SUM, self.sum),
            (ECHO, self.echo),
            (FAIL, self.fail),
            (WAIT, self.wait),
            (PUSHED, self.pushed),
            (MUTATE, self.mutate),
            (FLOOD, self.flood),
            (SIZED, self.sized),
        ]
        for method, handler in handlers:
            signature = RPCSignature(method.cardinality, method.request_type, method.response_type)
            service.add_method(method.path.rsplit("/", 1)[1], handler, signature)
        return service

    async def echo_one(self, call: ServerCall) -> None:
        """Answer with the request's content, and send all metadata back."""
        request = await call.receive()
        assert await call.receive() is None
        self.deadline = call.deadline
        call.set_compression("gzip")
        call.set_initial_metadata([(name, value) for name, value in call.metadata if name.startswith("x-")])
        call.set_trailing_metadata([("t-end", "done"), ("t-bin", b"\x00\xff")])
        await call.send(Observation(tick_id=request.tick_id, content=request.content))

    async def count(self, call: ServerCall) -> None:
        """Answer with as many messages as asked for."""
        request = await call.receive()
        for number in range(request.tick_id):
            await call.send(Observation(tick_id=number))

    async def cut_off(self, call: ServerCall) -> None:
        """Answer with as many messages as asked for, then fail."""
        await self.count(call)
        raise RpcError(StatusCode.ABORTED, "cut off", [("t-why", "asked")])

    async def sum(self, call: ServerCall) -> None:
        """Answer with the sum of the requests' ticks."""
        total = 0
        async for request in call:
            total += request.tick_id
        await call.send(Observation(tick_id=total))

    async def echo(self, call: ServerCall) -> None:
        """Answer every request."""
        async for request in call:
            await call.send(Observation(tick_id=request.tick_id, content=request.content))

    async def fail(self, call: ServerCall) -> None:
        """Fail in the way the request names."""
        request = await call.receive()
        kind = request.content.decode()
        if kind == "bare":
            raise RpcError(StatusCode.ABORTED)
        bulk = {"bulk": "x" * RpcConfig().max_header_list_bytes}
        if kind == "bulky start":
            call.set_initial_metadata(bulk)
            await call.send_initial_metadata()
            await trio.sleep_forever()
        call.set_trailing_metadata({"t-why": "asked"} if kind != "bulky end" else bulk)
        if kind == "bug":
            raise ValueError(SECRET)
        if kind == "known":
            raise NotFoundError("no such thing: ä%\n")
        if kind == "detailed":
            raise detailed_error(StatusCode.FAILED_PRECONDITION, "with details", [Action(tick_id=7)])
        if kind == "unsendable":
            raise RpcError(StatusCode.ABORTED, "unsendable", [("t-extra", "1"), ("no name", "a\nb")])
        call.set_initial_metadata({"i-first": "here"})
        raise RpcError(StatusCode.DATA_LOSS, "custom", [("t-extra", "1")])

    async def sized(self, call: ServerCall) -> None:
        """Answer with a message of the size asked for, and note whether that was the end."""
        size = (await call.receive()).tick_id
        try:
            await call.send(Observation(content=bytes(size)))
            if size > RpcConfig().max_receive_message_bytes:
                await trio.sleep_forever()
        finally:
            self.cancelled.set()

    async def wait(self, call: ServerCall) -> None:
        """Never answer; note how it ends."""
        self.entered.set()
        try:
            await call.send_initial_metadata()  # the deadline may have passed already
            await trio.sleep_forever()
        finally:
            self.cancelled.set()

    async def pushed(self, call: ServerCall) -> None:
        """Echo through a consumer."""
        self.entered.set()
        call.set_consumer(_Echoer(self, call))
        await self.ended.wait()

    async def mutate(self, call: ServerCall) -> None:
        """Spoil every request, and one's own response after sending it."""
        async for request in call:
            response = Observation(tick_id=request.tick_id, content=request.content)
            request.content = b"spoiled by the receiver"
            request.tick_id = 666
            await call.send(response)
            response.content = b"spoiled by the sender"
            response.tick_id = 667

    async def flood(self, call: ServerCall) -> None:
        """Send messages of the size asked for, or 1 KiB, without waiting until there is no room."""
        size = (await call.receive()).tick_id or 1024
        message = Observation(content=bytes(size))
        while True:
            try:
                call.send_nowait(message)
            except trio.WouldBlock:
                break
            self.flooded += 1
        self.flood_full.set()
        await call.send(Observation(tick_id=1))  # waits for room


class _Echoer:
    """A consumer that answers each message, and fails at "boom"."""

    def __init__(self, service: CheckService, call: ServerCall) -> None:
        self.service = service
        self.call = call

    def on_message(self, message: Any) -> None:
        if message.content == b"boom":
            raise ValueError(SECRET)
        self.call.send_nowait(Observation(tick_id=message.tick_id, content=message.content))

    def on_end(self, error: RpcError | None) -> None:
        self.service.ends.append(error)
        self.service.ended.set()


class Collector:
    """A consumer that keeps what it gets, and does `then` after each message."""

    def __init__(self) -> None:
        self.then: Callable[[], None] | None = None
        self.messages: list[Any] = []
        self.ends: list[RpcError | None] = []
        self.changed = trio.Event()

    def on_message(self, message: Any) -> None:
        """Keep it."""
        self.messages.append(message)
        self.changed.set()
        if self.then is not None:
            self.then()

    def on_end(self, error: RpcError | None) -> None:
        """Keep it."""
        self.ends.append(error)
        self.changed.set()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is looked at after each message and the end."""
        while not condition():
            self.changed = trio.Event()
            await self.changed.wait()

    async def wait_for_messages(self, number: int) -> None:
        """Wait until this many have come."""
        await self.wait_for(lambda: len(self.messages) >= number)

    async def wait_for_end(self) -> None:
        """Wait until the end has been told."""
        await self.wait_for(lambda: bool(self.ends))


async def expect(code: StatusCode, awaitable: Awaitable[Any]) -> RpcError:
    """Await something that must fail with this status; return the error."""
    try:
        result = await awaitable
    except RpcError as error:
        if error.code is code:
            return error
        raise AssertionError(f"expected {code.name}, got {error}") from error
    raise AssertionError(f"expected {code.name}, got {result!r}")
