"""Compression of messages: gzip and deflate (gRPC `compression.md`).

A compressed message stays as it is until the application takes it: what waits in a call is then what was on the wire,
and a call that nobody reads costs no time either.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc._compressed_message import CompressedMessage
from trio_cogment.rpc._streams import BadMessageError

IDENTITY = "identity"
#: zlib's names for the formats: RFC 1952 and RFC 1950.
_WBITS = {"gzip": 31, "deflate": 15}
#: zlib's default of 6 takes twice as long to save a tenth more.
_LEVEL = 3


def checked_encoding(name: str | None) -> str | None:
    """Return the name of an encoding; ValueError if it is not supported."""
    if name is not None and name != IDENTITY and name not in _WBITS:
        raise ValueError(f"compression: expected one of {IDENTITY}, {', '.join(_WBITS)}; got {name!r}")
    return name


def accepts(accept_encoding: bytes, encoding: str) -> bool:
    """Whether a peer that sent this `grpc-accept-encoding` reads the encoding."""
    return encoding in [name.strip() for name in accept_encoding.decode("latin-1").split(",")]


def compress(encoding: str, payload: bytes) -> bytes:
    """Return the payload compressed, or as it is when that would not make it smaller."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WBITS[encoding])
    compressed = compressor.compress(payload) + compressor.flush()
    return CompressedMessage(compressed) if len(compressed) < len(payload) else payload


def decompress(encoding: str, payload: bytes, limit: int) -> bytes:
    """Return what is in a compressed message; no more than `limit` bytes are ever made of it.

    Raises:
        BadMessageError: it is malformed, or longer.
    """
    if encoding not in _WBITS:
        raise BadMessageError(StatusCode.INTERNAL, f"message encoding {encoding!r} is not supported")
    decompressor = zlib.decompressobj(_WBITS[encoding])
    try:
        plain = decompressor.decompress(payload, limit + 1)
    except zlib.error:
        raise BadMessageError(StatusCode.INTERNAL, f"malformed {encoding} message") from None
    if len(plain) > limit:
        raise BadMessageError(StatusCode.RESOURCE_EXHAUSTED, f"decompressed message is larger than {limit} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise BadMessageError(StatusCode.INTERNAL, f"malformed {encoding} message")
    return plain


def decoder(decode: Callable[[bytes], Any], encoding: bytes, limit: int) -> Callable[[bytes], Any]:
    """Return `decode` for a call whose messages may be compressed; a call without compression pays nothing."""
    name = encoding.decode("latin-1")

    def decode_any(payload: bytes) -> Any:
        return decode(decompress(name, payload, limit) if type(payload) is CompressedMessage else payload)

    return decode_any
