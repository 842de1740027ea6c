"""A server call that is reported to an observer."""

from __future__ import annotations

from typing import Any

import trio

from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc import _grpc_headers
from trio_cogment.rpc._call_protocols import ServerTransport
from trio_cogment.rpc._http2_server_call import Http2ServerCall
from trio_cogment.rpc._observer import MethodObserver
from trio_cogment.rpc._streams import Stream
from trio_cogment.rpc.calls import Method
from trio_cogment.rpc.metadata import Metadata


class ObservedServerCall(Http2ServerCall):
    """See `ServerObserver`. What a call ends with is the last status it was given."""

    def __init__(
        self,
        observer: MethodObserver,
        connection: ServerTransport,
        stream: Stream,
        method: Method,
        function: Any,
        head: _grpc_headers.RequestHead,
    ) -> None:
        super().__init__(connection, stream, method, function, head)
        self._observer = observer
        # Of a handler that ends without a status, as its server is cancelled: what the caller is told afterwards.
        self._code = StatusCode.UNAVAILABLE

    async def run(self) -> None:
        """Run the handler, and tell the observer."""
        began = trio.current_time()
        self._observer.started()
        try:
            await super().run()
        finally:
            self._observer.ended(self._code, trio.current_time() - began)

    def on_reset(self, code: int) -> None:
        """The client has cancelled, maybe without waiting for the end of the answer."""
        if not self.over:
            self._code = StatusCode.CANCELLED
        super().on_reset(code)

    def _trailers(self, code: StatusCode, message: str, trailing: Metadata) -> _grpc_headers.RawHeaders:
        self._code = code
        return super()._trailers(code, message, trailing)
