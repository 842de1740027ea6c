"""The statuses of calls whose peers have said none: by the codes of RST_STREAM, and by the statuses of HTTP.

`docs/grpc-statuses.md` compares them with those of other libraries.
"""

from __future__ import annotations

from trio_cogment.base.errors import StatusCode

#: RST_STREAM codes as a client sees them (gRPC over HTTP/2, "Errors").
STATUS_OF_RESET: dict[int, tuple[StatusCode, str]] = {
    0x0: (StatusCode.INTERNAL, "the server reset the stream without a status"),
    0x1: (StatusCode.INTERNAL, "the server reset the stream: protocol error"),
    0x2: (StatusCode.INTERNAL, "the server reset the stream: internal error"),
    0x3: (StatusCode.INTERNAL, "the server reset the stream: flow control error"),
    0x4: (StatusCode.INTERNAL, "the server reset the stream: settings timeout"),
    0x5: (StatusCode.INTERNAL, "the server reset the stream: stream closed"),
    0x6: (StatusCode.INTERNAL, "the server reset the stream: frame size error"),
    0x7: (StatusCode.UNAVAILABLE, "the server refused the stream"),
    0x8: (StatusCode.CANCELLED, "the server cancelled the call"),
    0x9: (StatusCode.INTERNAL, "the server reset the stream: compression error"),
    0xA: (StatusCode.INTERNAL, "the server reset the stream: connect error"),
    0xB: (StatusCode.RESOURCE_EXHAUSTED, "the server reset the stream: enhance your calm"),
    0xC: (StatusCode.PERMISSION_DENIED, "the server reset the stream: inadequate security"),
}

#: HTTP statuses of a response without `grpc-status` (`http-grpc-status-mapping.md`).
STATUS_OF_HTTP: dict[bytes, StatusCode] = {
    b"400": StatusCode.INTERNAL,
    b"401": StatusCode.UNAUTHENTICATED,
    b"403": StatusCode.PERMISSION_DENIED,
    b"404": StatusCode.UNIMPLEMENTED,
    b"429": StatusCode.UNAVAILABLE,
    b"431": StatusCode.INTERNAL,
    b"502": StatusCode.UNAVAILABLE,
    b"503": StatusCode.UNAVAILABLE,
    b"504": StatusCode.UNAVAILABLE,
}


def status_of_reset(code: int) -> tuple[StatusCode, str]:
    """Return how a call has ended that its server has reset; a code that nobody knows is INTERNAL (RFC 9113, 7)."""
    return STATUS_OF_RESET.get(code, (StatusCode.INTERNAL, f"the server reset the stream: {code}"))
