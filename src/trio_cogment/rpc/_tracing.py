"""Spans of calls: of a caller's over HTTP/2, and of the handler that serves a call, over HTTP/2 and in process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from purerpc import Service

from trio_cogment.base.errors import RpcError, StatusCode, status_of
from trio_cogment.base.services import TRIAL_ID
from trio_cogment.base.tracing import spans
from trio_cogment.base.tracing.spans import Tracing
from trio_cogment.rpc._call_protocols import TransportSource
from trio_cogment.rpc._http2_client_call import Http2ClientCall
from trio_cogment.rpc.calls import Handler, MetadataLike, Method, ServerCall
from trio_cogment.rpc.interceptors import intercept_services
from trio_cogment.rpc.metadata import Metadata

#: What is asked all the time, by programs that look whether a server is there, or what it can do.
_UNTRACED = ("grpc.health.", "grpc.reflection.")


def traced_services(services: Iterable[Service], tracing: Tracing) -> list[Service]:
    """Return services whose calls are spans of their callers' traces."""

    async def span_of_call(call: ServerCall, handler: Handler) -> None:
        with served(tracing, call):
            await handler(call)

    return [
        service if service.name.startswith(_UNTRACED) else intercept_services([service], span_of_call)[0]
        for service in services
    ]


@contextmanager
def served(tracing: Tracing, call: ServerCall, *, local: bool = False) -> Iterator[None]:
    """Have a block that runs a call's handler be a span; `local`: of the caller's, who is of this process, if any.

    No coroutine around the handler's: each would be resumed with every message of the call.
    """
    if local and not spans.current_span().is_recording():
        yield
        return
    attributes = {**spans.RPC, "rpc.method": call.method.path[1:], **_of_trial(call.metadata)}
    if local:
        span = tracing.start(call.method.path[1:], attributes)
    else:
        attributes |= spans.of_peer(call.peer)
        span = tracing.start(call.method.path[1:], attributes, remote=call.metadata, kind=spans.SpanKind.SERVER)
    code, text = StatusCode.OK, ""
    try:
        with spans.current(span):
            yield
    except BaseException as error:
        code, text = _status(error)
        raise
    finally:
        spans.answered(span, code.name, text, server=True)


def _status(error: BaseException) -> tuple[StatusCode, str]:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return status_of(error) if isinstance(error, Exception) else (StatusCode.CANCELLED, "")


def _of_trial(metadata: Metadata) -> dict[str, Any]:
    return {spans.TRIAL_ID: trial_id} if isinstance(trial_id := metadata.first(TRIAL_ID), str) else {}


class TracedClientCall(Http2ClientCall):
    """A call that is a span of its caller's trace, and says so to its callee.

    Args:
        tracing: makes the span.
        channel: see `Http2ClientCall`, as for the others.
    """

    def __init__(
        self,
        tracing: Tracing,
        channel: TransportSource,
        method: Method,
        metadata: MetadataLike,
        timeout: float | None,
        wait_for_ready: bool = False,
        compression: str | None = None,
    ) -> None:
        given = Metadata(metadata)
        super().__init__(channel, method, given, timeout, wait_for_ready, compression)
        host, _, port = channel.authority.rpartition(":")
        attributes = {**spans.RPC, "rpc.method": method.path[1:], **_of_trial(given)}
        if host and port.isdecimal():
            attributes |= {"server.address": host.strip("[]"), "server.port": int(port)}
        else:
            attributes["server.address"] = channel.authority
        self._span = tracing.start(method.path[1:], attributes, kind=spans.SpanKind.CLIENT)
        self._metadata = Metadata.from_wire(spans.carrying(self._span, given))

    async def __aenter__(self) -> TracedClientCall:
        """See `Http2ClientCall`; a call that cannot be made is a span, too."""
        try:
            await super().__aenter__()
        except RpcError as error:
            self._ended(error)
            raise
        except BaseException:
            self._ended(RpcError(StatusCode.CANCELLED, "cancelled by the caller"))
            raise
        return self

    def _finish_client(self, error: RpcError | None, *, drop: bool) -> None:
        super()._finish_client(error, drop=drop)
        self._ended(error)

    def _ended(self, error: RpcError | None) -> None:
        if self._span.is_recording():
            spans.answered(self._span, *(("OK", "") if error is None else (error.code.name, error.message)))
