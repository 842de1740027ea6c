"""HTTP/2 on the byte level: frame types, layouts, error codes (RFC 9113); and the events of the engine."""

from __future__ import annotations

import enum
from struct import Struct
from typing import Any, Final, TypeAlias

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: How TLS begins (RFC 8446, 5.1): a client's first bytes, and those of a server that did not understand the client.
TLS_HANDSHAKE: Final = b"\x16\x03"
TLS_ALERT: Final = b"\x15\x03"
# What is `Final` is a constant in compiled modules, too, and not a look-up.
DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
ENABLE_PUSH: Final = 0x2  # a setting
PRIORITIZED: Final = 0x20
MAX_WINDOW: Final = 2**31 - 1
INITIAL_WINDOW: Final = 65535
#: Frames other than DATA are collected whole before they are looked at. This bounds what is collected, whatever size
#: of frame the settings allow for DATA; no such frame of use is near this size.
MAX_CONTROL_FRAME: Final = 64 * 1024

HEADER: Final = Struct(">HBBBI")  # length (2 + 1), type, flags, stream
#: The same with length and type as one number, then a message's flag and length. DATA is type 0, so of a DATA frame of
#: `size` bytes the number is ``size << 8``: one field less to pack and to compare for each message.
MESSAGE_HEADER: Final = Struct(">IBIBI")
#: Of a WINDOW_UPDATE of the right size it is this.
WINDOW_UPDATE_WORD: Final = 4 << 8 | WINDOW_UPDATE
#: All of a frame of that size.
WINDOW_UPDATE_FRAME: Final = Struct(">IBII")
SETTING: Final = Struct(">HI")


class ErrorCode(enum.IntEnum):
    """HTTP/2 error codes (RFC 9113, 7) that an engine sends."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    ENHANCE_YOUR_CALM = 0xB


class Kind(enum.IntEnum):  # which is hashed faster than others
    """What an event says; the value that goes with it is in brackets.

    An event is a tuple ``(kind, stream, value)`` and not a class: there is one for each message.
    """

    REQUEST = enum.auto()  # server: a call begins (RequestHead)
    RESPONSE = enum.auto()  # client: response headers (Metadata)
    MESSAGE = enum.auto()  # a message (bytes); the shell owes `consumed`
    HALF_CLOSED = enum.auto()  # server: the client has sent its last message (None)
    STATUS = enum.auto()  # client: the call is over (Trailers)
    BROKEN = enum.auto()  # what came on the stream cannot be used (BadMessageError); the shell must end it
    RESET = enum.auto()  # the peer reset the stream (its error code)
    PONG = enum.auto()  # no stream: a PING of this end is answered (its payload)
    SETTINGS = enum.auto()  # no stream: the peer has said its limits, or new ones (None)
    GOAWAY = enum.auto()  # no stream: the peer takes no new streams above (last stream id)


Event: TypeAlias = tuple[Kind, Any, Any]


class ConnectionFaultError(Exception):
    """A connection error (RFC 9113, 5.4.1) on its way to `Engine.receive_data`, which alone catches it.

    Attributes:
        code: for GOAWAY; the text goes with it, so it names nothing that the peer should not see.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
