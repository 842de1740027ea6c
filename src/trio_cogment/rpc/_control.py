"""The HTTP/2 control plane: settings and header compression, by purerpc's sans-IO `GRPCConnection`.

The control plane is the part of HTTP/2 that says how a connection is used and carries nothing of a call itself:
SETTINGS, PRIORITY, and the state of HPACK, which both ends must keep alike. What carries calls (streams, DATA, flow
control) is the engine's.

Only SETTINGS and PRIORITY frames pass through it, and it compresses header blocks. Everything else of HTTP/2 the engine
does itself, for these reasons:

* h2 3.2 answers a WINDOW_UPDATE on a stream that it has cleaned up, an ordinary race (RFC 9113, 5.1), by killing the
  connection, as it does with much that concerns one stream only (a `content-length`, trailers without END_STREAM);
* GOAWAY in either direction closes h2's state machine, after which no drain is possible;
* small messages are several times cheaper without it, and calls cost half as much;
* it remembers up to 65,536 streams that are over.

SETTINGS stay with h2 because they are rare, and because their rules (which values are legal, when a change takes
effect, how HPACK's tables follow) are what h2 does well.
"""

from __future__ import annotations

from typing import Any

import h2.events
import h2.exceptions
import hpack
from purerpc.grpclib.config import GRPCConfiguration
from purerpc.grpclib.connection import GRPCConnection

from trio_cogment.rpc._frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADER,
    HEADERS,
    PREFACE,
    ConnectionFaultError,
    ErrorCode,
)
from trio_cogment.rpc._hpack import Decoder, Encoder, RawHeaders

_LEAST_BLOCK_BYTES = 64 * 1024
#: What every peer accepts in a frame.
_FRAME_BYTES = 16384


def max_block_bytes(max_header_list_bytes: int) -> int:
    """Return the largest header block that is decoded, in bytes, encoded and decoded.

    A block above `max_header_list_bytes` and within this is decoded, and its call is refused: the connection goes on.
    Above this the decoder stops, because a few bytes can stand for many (the HPACK bomb, CVE-2016-6581). HPACK's state
    is then lost, and with it the connection.
    """
    return max(_LEAST_BLOCK_BYTES, 2 * max_header_list_bytes)


class SettingsChanged:
    """SETTINGS by the peer; the engine reads the values it needs from the control plane."""


class ControlPlane(GRPCConnection):  # type: ignore[misc]  # purerpc ships no types
    """purerpc's connection without its own handling of requests, messages and failures.

    Attributes:
        remote_initial_window: what the peer grants a new stream.
        remote_max_streams: how many streams the peer allows this end to open.
        remote_max_frame: the largest frame the peer accepts.
        broken: set after a connection error: nothing but GOAWAY may follow.
    """

    def __init__(self, *, client_side: bool, max_block_bytes: int = _LEAST_BLOCK_BYTES) -> None:
        super().__init__(GRPCConfiguration(client_side=client_side))
        connection = self.h2_connection
        # h2 sets their table sizes as the peers' settings say, so it has to have them.
        connection.encoder = self._encoder = Encoder()
        connection.decoder = self._decoder = Decoder(max_block_bytes)
        # The engine writes the preface and SETTINGS itself. h2 has to have been through both, or it refuses frames.
        connection.initiate_connection()
        connection.clear_outbound_data_buffer()
        if not client_side:
            self.receive_data(PREFACE)  # the frame parser checks that it has come
        self._broken = False
        self._note_settings()

    def _note_settings(self) -> None:
        settings = self.h2_connection.remote_settings
        self.remote_initial_window = int(settings.initial_window_size)
        self.remote_max_streams = int(settings.max_concurrent_streams)
        self.remote_max_frame = int(settings.max_frame_size)

    def _remote_settings_changed(self, event: h2.events.RemoteSettingsChanged) -> list[Any]:
        """What the parent calls when SETTINGS have come."""
        self._note_settings()
        return [SettingsChanged()]

    # --- for the engine ---

    def break_off(self) -> None:
        """The connection has failed: write no more headers."""
        self._broken = True

    def receive_frame(self, frame: bytes) -> bool:
        """Take a whole SETTINGS or PRIORITY frame; return whether the peer's settings have changed.

        Raises:
            ConnectionFaultError: it is malformed.
        """
        try:
            return bool(self.receive_data(frame))
        except h2.exceptions.ProtocolError as error:
            # h2's own text may hold addresses and what the peer sent; it stays in the cause.
            raise ConnectionFaultError(int(error.error_code), f"malformed frame ({type(error).__name__})") from error

    def decode(self, block: bytes) -> RawHeaders:
        """Return the header list of a header block; it must not be changed.

        Raises:
            ConnectionFaultError: HPACK's state is lost (RFC 9113, 4.3).
        """
        try:
            return self._decoder.decode(block)
        except hpack.OversizedHeaderListError as error:
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "header list too large") from error
        except (hpack.HPACKError, IndexError, TypeError, ValueError) as error:  # not all are its own
            text = f"malformed header block ({type(error).__name__})"
            raise ConnectionFaultError(ErrorCode.COMPRESSION_ERROR, text) from error

    def send_headers(self, stream_id: int, headers: RawHeaders, *, end_stream: bool) -> bytes:
        """Return the HEADERS (and CONTINUATION) frames for a header list."""
        if self._broken:
            return b""
        block = self._encoder.encode(headers)
        size = len(block)
        ends = END_STREAM if end_stream else 0
        if size <= _FRAME_BYTES:
            return HEADER.pack(size >> 8, size & 0xFF, HEADERS, END_HEADERS | ends, stream_id) + block
        frames: list[bytes] = []
        for start in range(0, size, _FRAME_BYTES):
            piece = block[start : start + _FRAME_BYTES]
            flags = (0 if start else ends) | (END_HEADERS if start + _FRAME_BYTES >= size else 0)
            kind = CONTINUATION if start else HEADERS
            frames += HEADER.pack(len(piece) >> 8, len(piece) & 0xFF, kind, flags, stream_id), piece
        return b"".join(frames)
