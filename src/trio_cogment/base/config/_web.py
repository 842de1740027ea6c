"""Settings of what servers have for browsers."""

from __future__ import annotations

from trio_cogment.base.config.declarations import CALLER, CLOSED, Settings, Shared, setting
from trio_cogment.base.records import record


@record(kw_only=True)
class WebConfig(Settings):
    """Limits of the connections of browsers; those on messages, metadata and calls are of `RpcConfig`."""

    max_connections: int = setting(
        2000,
        "connections that one process has for browsers at a time; more are answered with 503",
        shared=Shared("connections of browsers", "rpc.max_peer_connections", CALLER, CLOSED),
    )
    max_head_bytes: int = setting(
        32 * 1024,
        "of a request's first line and header fields; a longer one is answered with 431",
        within=(1024, 2**20),
        of="message",
    )
    head_timeout_seconds: float = setting(
        20.0, "how long a request's head may take, and the first message of a WebSocket"
    )
    body_timeout_seconds: float = setting(60.0, "how long the body of a request may take that carries one message")
    page_timeout_seconds: float = setting(30.0, "how long a page, or what one asks for, may take to be made")
    max_page_message_bytes: int = setting(
        256 * 1024,
        "of a message that a page sends by its WebSocket; a longer one ends that. Pages of people who play have a "
        "smaller one of their own",
        of="message",
    )
    page_session_seconds: float = setting(
        7 * 86400.0, "for how long a browser may stay that has entered by the address that the server prints"
    )
    idle_timeout_seconds: float = setting(60.0, "how long a connection stays open between two requests")
    write_high_water_bytes: int = setting(
        64 * 1024, "with more unsent bytes, the messages of a call wait", of="connection"
    )
    write_stall_timeout_seconds: float = setting(
        60.0, "how long a client may take for the next 256 KiB of what it is sent"
    )
    ping_seconds: float = setting(20.0, "a WebSocket gets a ping after so much silence of the client")
    ping_timeout_seconds: float = setting(20.0, "how long it may take to answer")
    preflight_seconds: float = setting(600.0, "for how long a browser remembers what a page of another origin may do")
