"""The HTTP/2 control plane: header blocks and settings, by purerpc's sans-IO `GRPCConnection`.

Only HEADERS, CONTINUATION, PRIORITY, RST_STREAM and SETTINGS pass through here. The engine owns the frames that carry
load or policy (DATA, PING, GOAWAY, WINDOW_UPDATE) and every END_STREAM on DATA, for these reasons:

* h2 3.2 answers a WINDOW_UPDATE on a stream that it has cleaned up, an ordinary race (RFC 9113, 5.1), by killing the
  connection;
* GOAWAY in either direction closes h2's state machine, after which no drain is possible;
* small messages are several times cheaper without it.

So h2 does not know when a stream is over, and is told by `forget`: a reset whose bytes are thrown away. That leaves
the stream "closed by reset", the state in which late frames of the peer are harmless.
"""

from __future__ import annotations

from typing import Any

import h2.events
import h2.exceptions
import hpack
from purerpc.grpclib.config import GRPCConfiguration
from purerpc.grpclib.connection import GRPCConnection

from trio_cogment.rpc._wire import RawHeaders

#: Beyond this a header block is not even decoded (a bomb): the HPACK state is lost, and with it the connection.
HARD_HEADER_LIST_BYTES = 256 * 1024


class HeadersArrived:
    """A complete header list on a stream."""

    __slots__ = ("ended", "headers", "stream_id", "trailers")

    def __init__(self, stream_id: int, headers: RawHeaders, *, ended: bool, trailers: bool) -> None:
        self.stream_id = stream_id
        self.headers = headers
        self.ended = ended
        self.trailers = trailers


class StreamReset:
    """RST_STREAM by the peer."""

    __slots__ = ("code", "stream_id")

    def __init__(self, stream_id: int, code: int) -> None:
        self.stream_id = stream_id
        self.code = code


class SettingsChanged:
    """SETTINGS by the peer; the engine reads the values it needs from the control plane."""


class _Decoder(hpack.Decoder):  # type: ignore[misc]  # hpack ships no types
    """Hides from h2 what it would answer with a connection error although it concerns one stream only.

    These are `content-length` (gRPC's framing makes it redundant, and h2 never sees our DATA) and, on a server,
    `:status`, which is no request's field: renamed, it is refused with the other unknown pseudo-headers.
    """

    def __init__(self, client_side: bool) -> None:
        super().__init__(max_header_list_size=HARD_HEADER_LIST_BYTES)
        self._client_side = client_side

    def decode(self, data: bytes, raw: bool = False) -> RawHeaders:
        headers: RawHeaders = super().decode(data, raw)
        for name, _ in headers:
            if name == b"content-length" or (name == b":status" and not self._client_side):
                return [
                    (b":unexpected" if name == b":status" and not self._client_side else name, value)
                    for name, value in headers
                    if name != b"content-length"
                ]
        return headers


class ControlPlane(GRPCConnection):  # type: ignore[misc]  # purerpc ships no types
    """purerpc's connection with its opinions about requests, messages and failures taken out.

    Every `_xxx` method below is a hook of the parent; it turns one h2 event into events of ours.
    """

    def __init__(self, *, client_side: bool) -> None:
        super().__init__(GRPCConfiguration(client_side=client_side))
        connection = self.h2_connection
        # Header rules are ours to check, so that breaking one ends a stream and not the connection (see _wire), and
        # values stay bytes: not every byte string is UTF-8.
        connection.config.header_encoding = None
        connection.config.validate_inbound_headers = False
        connection.config.normalize_inbound_headers = False
        connection.config.validate_outbound_headers = False
        connection.config.normalize_outbound_headers = False
        connection.decoder = _Decoder(client_side)
        # The engine writes its own SETTINGS; h2 only needs to believe that it has.
        connection.initiate_connection()
        connection.clear_outbound_data_buffer()
        self.broken = False  # set after a connection error: nothing but GOAWAY may follow

    # --- hooks ---

    def _request_received(self, event: h2.events.RequestReceived) -> list[Any]:
        ended = event.stream_ended is not None
        return [HeadersArrived(event.stream_id, event.headers, ended=ended, trailers=False)]

    def _response_received(self, event: h2.events.ResponseReceived) -> list[Any]:
        ended = event.stream_ended is not None
        return [HeadersArrived(event.stream_id, event.headers, ended=ended, trailers=False)]

    def _trailers_received(self, event: h2.events.TrailersReceived) -> list[Any]:
        return [HeadersArrived(event.stream_id, event.headers, ended=True, trailers=True)]

    def _stream_reset(self, event: h2.events.StreamReset) -> list[Any]:
        return [StreamReset(event.stream_id, int(event.error_code))] if event.remote_reset else []

    def _remote_settings_changed(self, event: h2.events.RemoteSettingsChanged) -> list[Any]:
        return [SettingsChanged()]

    def _stream_ended(self, event: h2.events.StreamEnded) -> list[Any]:
        return []  # said by HeadersArrived.ended

    # --- for the engine ---

    @property
    def remote_initial_window(self) -> int:
        """What the peer grants a new stream."""
        return int(self.h2_connection.remote_settings.initial_window_size)

    @property
    def remote_max_streams(self) -> int:
        """How many streams the peer lets us open."""
        return int(self.h2_connection.remote_settings.max_concurrent_streams)

    @property
    def remote_max_frame(self) -> int:
        """The largest frame the peer accepts."""
        return int(self.h2_connection.remote_settings.max_frame_size)

    def send_headers(self, stream_id: int, headers: RawHeaders, *, end_stream: bool) -> bytes:
        """Return the HEADERS (and CONTINUATION) frames for a header list."""
        if self.broken:
            return b""
        self.h2_connection.send_headers(stream_id, headers, end_stream=end_stream)
        return bytes(self.h2_connection.data_to_send())

    def forget(self, stream_id: int) -> None:
        """Let h2 drop a stream that is over."""
        if self.broken:
            return
        try:
            self.h2_connection.reset_stream(stream_id)
        except h2.exceptions.NoSuchStreamError:  # and its child StreamClosedError: h2 knew
            return
        self.h2_connection.clear_outbound_data_buffer()
