"""Routes of a server, by path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from purerpc import Cardinality, Service

from trio_cogment.rpc._call_protocols import Route, ServerTransportCall
from trio_cogment.rpc._http2_server_call import Http2ServerCall
from trio_cogment.rpc._observed_call import ObservedServerCall
from trio_cogment.rpc._observer import ServerObserver
from trio_cogment.rpc.calls import Method

#: The usual words for the shapes of methods.
_SHAPES = {
    Cardinality.UNARY_UNARY: "unary",
    Cardinality.STREAM_UNARY: "client_stream",
    Cardinality.UNARY_STREAM: "server_stream",
    Cardinality.STREAM_STREAM: "bidi_stream",
}


def shape_of(cardinality: Cardinality) -> str:
    """Return the usual word for the shape of a method."""
    return _SHAPES[cardinality]


def routes_of(services: Iterable[Service], observer: ServerObserver | None = None) -> dict[str, Route]:
    """Return what answers at each path.

    Raises:
        ValueError: two services have the same name.
    """
    routes: dict[str, Route] = {}
    for service in services:
        for name, bound in service.methods.items():
            path = f"/{service.name}/{name}"
            if path in routes:
                raise ValueError(f"{path} is served twice")
            signature = bound.signature
            method = Method(path, signature.cardinality, signature.request_type, signature.response_type)
            make_call: Callable[..., ServerTransportCall] = Http2ServerCall
            if observer is not None:
                make_call = partial(ObservedServerCall, observer.method(path, shape_of(method.cardinality)))
            routes[path] = (make_call, method, bound.method_fn)
    return routes
