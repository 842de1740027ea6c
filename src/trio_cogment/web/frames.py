"""The frames of gRPC-Web, and the base64 that they travel in as text.

A frame is a byte of flags, the length in four bytes, and as many bytes: a message, or with `TRAILERS` a block of header
fields. The text form is base64, of which a sender may end a piece at any place, with padding, and begin another.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator

from trio_cogment.base.errors import RpcError, StatusCode

#: The flag of a frame of header fields.
TRAILERS = 0x80
_COMPRESSED = 0x01
_PREFIX_BYTES = 5
#: What has been read of the buffer is dropped from it in pieces of this size, at least.
_DROPPED_BYTES = 64 * 1024
_PIECE = re.compile(rb"[^=]*={0,2}")
_QUANTUM = 4


class FrameReader:
    """Takes bytes in pieces of any size, and gives the messages of the frames.

    Args:
        max_message_bytes: a longer message is refused from its prefix alone.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._buffer = bytearray()

    def receive(self, data: bytes) -> Iterator[bytes]:
        """Return the messages that are complete now, each when it is asked for; more may come when all were taken.

        Raises:
            RpcError: what came is not a frame of a message, or one that is too long. Nothing can be read after that.
        """
        if not self._buffer and len(data) >= _PREFIX_BYTES and len(data) == _PREFIX_BYTES + self._length(data):
            return iter((bytes(data[_PREFIX_BYTES:]),))  # the usual case: a frame, and nothing else
        self._buffer += data
        return self._whole()

    def _whole(self) -> Iterator[bytes]:
        buffer = self._buffer
        start = 0
        try:
            while len(buffer) - start >= _PREFIX_BYTES:
                begin = start + _PREFIX_BYTES
                end = begin + self._length(buffer, start)
                if end > len(buffer):
                    return
                with memoryview(buffer) as view:
                    message = bytes(view[begin:end])
                if end == len(buffer) or end >= _DROPPED_BYTES:
                    del buffer[:end]
                    start = 0
                else:
                    start = end
                yield message
        finally:
            del buffer[:start]

    @property
    def begun(self) -> int:
        """How many bytes have come of a frame that is not complete."""
        return len(self._buffer)

    @property
    def missing(self) -> int:
        """How many bytes of that frame are still to come, as far as its prefix is there."""
        have = len(self._buffer) - _PREFIX_BYTES
        return 0 if have < 0 else self._length(self._buffer) - have

    def _length(self, data: bytes | bytearray, start: int = 0) -> int:
        flags = data[start]
        if flags & TRAILERS:
            raise RpcError(StatusCode.INTERNAL, "expected a message, got a frame of header fields")
        if flags & _COMPRESSED:
            raise RpcError(StatusCode.UNIMPLEMENTED, "messages of gRPC-Web cannot be compressed")
        if flags:
            raise RpcError(StatusCode.INTERNAL, f"a frame of gRPC-Web has the unknown flags {flags:#04x}")
        length = int.from_bytes(data[start + 1 : start + _PREFIX_BYTES], "big")
        if length > self._max_message_bytes:
            text = f"message of {length} bytes is larger than {self._max_message_bytes}"
            raise RpcError(StatusCode.RESOURCE_EXHAUSTED, text)
        return length

    def discard(self) -> None:
        """Forget what has come: nobody waits for the rest."""
        self._buffer.clear()

    def end(self) -> None:
        """Learn that nothing more comes.

        Raises:
            RpcError: it has ended within a frame.
        """
        if self._buffer:
            raise RpcError(StatusCode.INTERNAL, "the request ended within a message")


class TextReader:
    """Takes base64 in pieces of any size, and gives the bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def receive(self, data: bytes) -> bytes:
        """Return the bytes that are complete now.

        Raises:
            RpcError: it is not base64.
        """
        text = self._rest + data
        # A piece is complete with its padding, or as far as there are four characters together.
        cut = len(text) - len(text) % _QUANTUM
        self._rest = text[cut:]
        plain = []
        for match in _PIECE.finditer(text[:cut]):
            piece = match[0]
            if not piece:
                continue
            if len(piece) % _QUANTUM:
                raise _not_base64()
            try:
                plain.append(base64.b64decode(piece, validate=True))
            except binascii.Error:
                raise _not_base64() from None
        return b"".join(plain)

    def end(self) -> None:
        """Learn that nothing more comes.

        Raises:
            RpcError: it has ended within four characters that belong together.
        """
        if self._rest:
            raise _not_base64()


def _not_base64() -> RpcError:
    return RpcError(StatusCode.INTERNAL, "expected base64")


def message_frame(payload: bytes) -> bytes:
    """Return the frame of a message."""
    return message_head(len(payload)) + payload


def message_head(size: int) -> bytes:
    """Return what goes before a message of this many bytes."""
    return b"\x00" + size.to_bytes(4, "big")


def fields_frame(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the frame of header fields; their bytes are printable ASCII already."""
    block = b"".join(b"%b: %b\r\n" % (name, value) for name, value in fields)
    return bytes([TRAILERS]) + len(block).to_bytes(4, "big") + block
