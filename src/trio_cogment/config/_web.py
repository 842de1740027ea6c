"""Settings of what servers have for browsers."""

from __future__ import annotations

from trio_cogment._records import record
from trio_cogment.config._checks import SECONDS, SIZE, Range, check_ranges


@record(kw_only=True)
class WebConfig:
    """Limits of the connections of browsers; those on messages, metadata and calls are of `RpcConfig`.

    Attributes:
        max_connections: connections that one server has at a time; more are answered with 503.
        max_head_bytes: of a request's first line and header fields; a longer one is answered with 431.
        head_timeout_seconds: how long a request's head may take, once the connection is open; and the first message of
            a WebSocket.
        body_timeout_seconds: how long the body of a request may take that carries one message.
        page_timeout_seconds: how long a page, or what one asks for, may take to be made.
        max_page_message_bytes: of a message that a page sends by its WebSocket; a longer one ends that.
        page_session_seconds: for how long a browser may stay that has entered by the address that the server prints.
        idle_timeout_seconds: how long a connection stays open between two requests.
        write_high_water_bytes: with more unsent bytes, the messages of a call wait.
        write_stall_timeout_seconds: how long a client may take for the next 256 KiB of what it is sent.
        ping_seconds: a WebSocket gets a ping after so much silence of the client.
        ping_timeout_seconds: how long it may take to answer.
        preflight_seconds: for how long a browser remembers what a page of another origin may do.
    """

    max_connections: int = 2000
    max_head_bytes: int = 32 * 1024
    head_timeout_seconds: float = 20.0
    body_timeout_seconds: float = 60.0
    page_timeout_seconds: float = 30.0
    max_page_message_bytes: int = 256 * 1024
    page_session_seconds: float = 7 * 86400.0
    idle_timeout_seconds: float = 60.0
    write_high_water_bytes: int = 64 * 1024
    write_stall_timeout_seconds: float = 60.0
    ping_seconds: float = 20.0
    ping_timeout_seconds: float = 20.0
    preflight_seconds: float = 600.0

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES)


_RANGES: dict[str, Range] = {
    "max_connections": SIZE,
    "max_head_bytes": (1024, 2**20),
    "head_timeout_seconds": SECONDS,
    "body_timeout_seconds": SECONDS,
    "page_timeout_seconds": SECONDS,
    "max_page_message_bytes": SIZE,
    "page_session_seconds": SECONDS,
    "idle_timeout_seconds": SECONDS,
    "write_high_water_bytes": SIZE,
    "write_stall_timeout_seconds": SECONDS,
    "ping_seconds": SECONDS,
    "ping_timeout_seconds": SECONDS,
    "preflight_seconds": SECONDS,
}
