"""Services from protobuf descriptors, at run time: any `.proto`, and no generated code unless its types are wanted.

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

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from purerpc import Cardinality, RPCSignature, Service

from trio_cogment.base.errors import InvalidArgumentError, RpcError, StatusCode, UnimplementedError
from trio_cogment.base.suggestions import similar, suggestion
from trio_cogment.rpc.calls import Handler, Method, ServerCall, TakeAtOnce

#: In the namespace of a class, it says that its methods stand for those that are not implemented.
NOT_IMPLEMENTED = "__rpc_not_implemented__"

_CARDINALITIES = {
    (False, False): Cardinality.UNARY_UNARY,
    (False, True): Cardinality.UNARY_STREAM,
    (True, False): Cardinality.STREAM_UNARY,
    (True, True): Cardinality.STREAM_STREAM,
}


class UnknownMethodError(InvalidArgumentError, KeyError):
    """A service has no method of that name."""

    __str__ = Exception.__str__  # that of KeyError is for keys


class Methods(dict[str, Method]):
    """The methods of a service by name; made by `methods_of`.

    A name that it does not have is an `UnknownMethodError`, which is also a KeyError.
    """

    def __init__(self, service: ServiceDescriptor) -> None:
        super().__init__(
            (
                method.name,
                Method(
                    path=f"/{service.full_name}/{method.name}",
                    cardinality=_cardinality(method),
                    request_type=GetMessageClass(method.input_type),
                    response_type=GetMessageClass(method.output_type),
                ),
            )
            for method in service.methods
        )
        self._service = service.full_name

    def __missing__(self, name: str) -> NoReturn:
        raise UnknownMethodError(f"{self._service} has no method {name!r}; {suggestion(name, self)}")


def methods_of(service: ServiceDescriptor) -> Methods:
    """Return the methods of a service by name, for calling them.

    Raises:
        TypeError: it is not a descriptor of a service.
    """
    if not isinstance(service, ServiceDescriptor):
        raise TypeError(f"service: expected a ServiceDescriptor, as services_by_name[...] gives one, got {service!r}")
    return Methods(service)


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

    A method the implementation lacks answers UNIMPLEMENTED. A function with nearly the name of such a method has been
    misspelt, and is refused; names with a leading underscore are the implementation's own.

    Beside a method `M` it may have a plain function ``M_at_once(self, call, first) -> bool``, which takes calls of this
    process without a task (`TakeAtOnce`), or leaves them to `M`.

    Args:
        service: of a generated module: `DESCRIPTOR.services_by_name["Greeter"]`.
        implementation: an object with the functions.

    Raises:
        TypeError: it is a class; or one of its functions has nearly the name of a method that it lacks, is a generator,
            or does not take the arguments of its shape; or the service is not a descriptor.
    """
    if inspect.isclass(implementation):
        raise TypeError(f"implementation: expected an object, got the class {implementation.__name__}")
    methods = methods_of(service)
    bound = BoundService(service.full_name)
    functions = {name: function for name in methods if (function := _implemented(implementation, name)) is not None}
    _refuse_misspelt(service, implementation, methods.keys() - functions.keys())
    for name, function in functions.items():
        _check_shape(f"{type(implementation).__name__}.{name}", function, service.methods_by_name[name])
    for name, method in methods.items():
        function = functions.get(name)
        handler = _missing if function is None else _SHAPES[method.cardinality](function)
        signature = RPCSignature(method.cardinality, method.request_type, method.response_type)
        bound.add_method(name, handler, signature, _OF_HANDLERS)
        take = getattr(implementation, f"{name}_at_once", None)
        if take is not None:
            bound.takers[name] = take
    return bound


def _implemented(implementation: object, name: str) -> Callable[..., Any] | None:
    """Return an implementation's function of that name, unless it only stands for one that is not there."""
    function: Callable[..., Any] | None = getattr(implementation, name, None)
    owner = next((kind for kind in type(implementation).__mro__ if name in vars(kind)), None)
    return None if owner is not None and NOT_IMPLEMENTED in vars(owner) else function


def _refuse_misspelt(service: ServiceDescriptor, implementation: object, lacking: set[str]) -> None:
    if not lacking:
        return
    known = {_plain(name): name for name in sorted(lacking)}
    for name in dir(type(implementation)):
        function = inspect.getattr_static(implementation, name)
        if name.startswith("_") or name in service.methods_by_name:
            continue
        if not inspect.iscoroutinefunction(function) and not inspect.isasyncgenfunction(function):
            continue
        meant = similar(_plain(name), known, cutoff=0.85)
        if meant is not None:
            where = f"{type(implementation).__name__}.{name}"
            raise TypeError(f"{where}: {service.full_name} has no such method; did you mean {known[meant]!r}?")


def _check_shape(where: str, function: Callable[..., Any], method: MethodDescriptor) -> None:
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(
            f"{where}: a method cannot be a generator; `await call.send(response)` takes the place of `yield`"
        )
    arguments = ["call"] if method.client_streaming else ["request", "call"]
    if _takes_exactly(function, len(arguments)):
        return
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a callable that does not tell it
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        why = "a stream of requests" if method.client_streaming else "one request"
        expected = f"a function of ({', '.join(arguments)}), for {why}"
        raise TypeError(f"{where}: expected {expected}, got one of {signature}") from None


def _takes_exactly(function: Callable[..., Any], count: int) -> bool:
    """Tell at a glance that a plain function or method takes this many arguments; False: look at its signature."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__") or hasattr(function, "__signature__"):
        return False
    optional = code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return not optional and code.co_argcount - inspect.ismethod(function) == count


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _cardinality(method: MethodDescriptor) -> Cardinality:
    return _CARDINALITIES[method.client_streaming, method.server_streaming]


async def _missing(call: ServerCall) -> None:
    raise UnimplementedError(f"{call.method.path} is not implemented here")


#: All handlers have it, and working it out takes longer than everything else about a method.
_OF_HANDLERS = inspect.signature(_missing)


async def _only_request(call: ServerCall) -> Message:
    request: Message | None = await call.receive()
    if request is None:
        raise RpcError(StatusCode.UNIMPLEMENTED, f"{call.method.path}: expected one request message, got none")
    if await call.receive() is not None:
        raise RpcError(StatusCode.UNIMPLEMENTED, f"{call.method.path}: expected one request message, got more")
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
