"""Parsed headers of requests, remembered for a client that makes the same call again.

Such a client sends the same block each time, and `_hpack.Decoder` returns the same list for it.
"""

from __future__ import annotations

from typing import Final

from trio_cogment.rpc._grpc_headers import RawHeaders, RequestHead, is_malformed, parse_request
from trio_cogment.rpc._grpc_web import WebRules

#: Larger ones are not remembered: every connection may keep one.
_SMALL_BYTES: Final = 1024


class RequestHeads:
    """The requests of one connection.

    Args:
        max_header_list_bytes, web: see `parse_request`.
    """

    def __init__(self, max_header_list_bytes: int, web: WebRules | None = None) -> None:
        self._max_header_list_bytes = max_header_list_bytes
        self._web = web
        self._last_headers: RawHeaders | None = None
        self._last_head: RequestHead | None = None

    def read(self, headers: RawHeaders) -> RequestHead | None:
        """Return what a request's headers say; None: they break the rules of HTTP/2.

        Raises:
            RefusedRequest: gRPC does not accept them.
        """
        if headers is self._last_headers:
            return self._last_head
        if is_malformed(headers):
            return None
        head = parse_request(headers, self._max_header_list_bytes, self._web)
        if sum(len(name) + len(value) for name, value in headers) <= _SMALL_BYTES:
            self._last_headers, self._last_head = headers, head
        return head
