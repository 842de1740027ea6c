"""Services from protobuf descriptors, at run time: no generated stubs, any `.proto`, handlers typed by their writers.

The container is purerpc's `Service` with its `RPCSignature`s; what is bound in it is a `Handler`. An implementation is
any object with a coroutine function per method, in the shape its cardinality calls for:

=============== ==========================================================
unary, unary    ``async def M(self, request, call) -> response``
unary, stream   ``async def M(self, request, call) -> None`` (``await call.send(...)``)
stream, unary   ``async def M(self, call) -> response`` (``async for request in call``)
stream, stream  ``async def M(self, call) -> None``
=============== ==========================================================
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from purerpc import Cardinality, RPCSignature, Service

from trio_cogment.errors import RpcError, StatusCode, UnimplementedError
from trio_cogment.rpc.calls import Handler, Method, ServerCall, TakeAtOnce

_CARDINALITIES = {
    (False, False): Cardinality.UNARY_UNARY,
    (False, True): Cardinality.UNARY_STREAM,
    (True, False): Cardinality.STREAM_UNARY,
    (True, True): Cardinality.STREAM_STREAM,
}


def methods_of(service: ServiceDescriptor) -> dict[str, Method]:
    """Return the methods of a service by name, for calling them."""
    return {
        method.name: Method(
            path=f"/{service.full_name}/{method.name}",
            cardinality=_cardinality(method),
            request_type=GetMessageClass(method.input_type),
            response_type=GetMessageClass(method.output_type),
        )
        for method in service.methods
    }


class BoundService(Service):  # type: ignore[misc]  # purerpc ships no types
    """A service, and what takes its calls within this process without a task.

    Attributes:
        takers: by the names of methods.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.takers: dict[str, TakeAtOnce] = {}


def bind(service: ServiceDescriptor, implementation: object) -> Service:
    """Bind an implementation's functions to the methods of a service, for serving them.

    A method the implementation lacks answers UNIMPLEMENTED. Beside a method `M` it may have a plain function
    ``M_at_once(self, call, first) -> bool``, which takes calls of this process without a task (`TakeAtOnce`), or leaves
    them to `M`.
    """
    bound = BoundService(service.full_name)
    for name, method in methods_of(service).items():
        function = getattr(implementation, name, None)
        handler = _missing if function is None else _SHAPES[method.cardinality](function)
        signature = RPCSignature(method.cardinality, method.request_type, method.response_type)
        bound.add_method(name, handler, signature)
        take = getattr(implementation, f"{name}_at_once", None)
        if take is not None:
            bound.takers[name] = take
    return bound


def _cardinality(method: MethodDescriptor) -> Cardinality:
    return _CARDINALITIES[method.client_streaming, method.server_streaming]


async def _missing(call: ServerCall) -> None:
    raise UnimplementedError(f"{call.method.path} is not implemented here")


async def _only_request(call: ServerCall) -> Message:
    request: Message | None = await call.receive()
    if request is None:
        raise RpcError(StatusCode.INVALID_ARGUMENT, f"{call.method.path}: expected one request message, got none")
    if await call.receive() is not None:
        raise RpcError(StatusCode.INVALID_ARGUMENT, f"{call.method.path}: expected one request message, got more")
    return request


def _unary_unary(function: Callable[[Any, ServerCall], Awaitable[Message | None]]) -> Handler:
    async def handler(call: ServerCall) -> None:
        reply = await function(await _only_request(call), call)
        if reply is not None:  # else it has sent it
            await call.send(reply)

    return handler


def _unary_stream(function: Callable[[Any, ServerCall], Awaitable[None]]) -> Handler:
    async def handler(call: ServerCall) -> None:
        await function(await _only_request(call), call)

    return handler


def _stream_unary(function: Callable[[ServerCall], Awaitable[Message]]) -> Handler:
    async def handler(call: ServerCall) -> None:
        await call.send(await function(call))

    return handler


def _stream_stream(function: Handler) -> Handler:
    async def handler(call: ServerCall) -> None:
        await function(call)

    return handler


_SHAPES: dict[Cardinality, Callable[[Any], Handler]] = {
    Cardinality.UNARY_UNARY: _unary_unary,
    Cardinality.UNARY_STREAM: _unary_stream,
    Cardinality.STREAM_UNARY: _stream_unary,
    Cardinality.STREAM_STREAM: _stream_stream,
}
