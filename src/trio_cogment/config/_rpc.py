"""Settings of connections, for servers and clients."""

from __future__ import annotations

from trio_cogment._records import record
from trio_cogment.config._checks import SECONDS, SECONDS_OR_NEVER, SIZE, Range, check_ranges


@record(kw_only=True)
class RpcConfig:
    """Limits and windows of a gRPC server or channel; `docs/rpc-limits.md` says what happens at each.

    Attributes:
        max_receive_message_bytes: a longer message is refused from its length prefix alone (RESOURCE_EXHAUSTED).
        max_message_entries: a message with more entries in its repeated fields, at all levels together and not counting
            numbers, is refused (RESOURCE_EXHAUSTED). Only messages that may have so many are looked at: from 256 KiB
            on, and compressed ones.
        max_send_message_bytes: a longer message is refused before it is sent; None for no limit.
        max_concurrent_streams: calls one client may have open on one connection; more are refused (REFUSED_STREAM).
        max_header_list_bytes: metadata of one call, counted as HTTP/2 does (32 bytes are added for each entry).
        stream_window_bytes: what a peer may send on one call before the application receives it (at least 5). One
            message larger than that is let through whole as soon as `connection_memory_bytes` allows.
        connection_window_bytes: what a peer may have in flight on one connection (at least 65535); it is credited on
            receipt, until `connection_memory_bytes` are held.
        connection_memory_bytes: what one connection may hold of messages that the application has not received, and
            again of messages that its peer does not read; one message larger than that passes at a time.
        server_memory_bytes: what all connections of a server together, with those that its process has opened, may hold
            of messages that wait, in both directions; the first 64 KiB of each connection are free.
        max_frame_bytes: the largest DATA frame that is accepted. Those that are sent are no larger than that, and than
            the peer allows.
        call_outbox_messages: the most messages that wait in one call until the peer reads them.
        call_outbox_bytes: their total size; one message of any size is always accepted.
        write_high_water_bytes: with more unsent bytes on a connection, messages wait in their calls.
        max_control_output_bytes: the most bytes of responses to control frames (PING, SETTINGS, resets, refusals) that
            wait for the peer to read.
        flood_interval_seconds: the interval to which the next four limits apply.
        max_resets: calls that a client resets, or that end by its errors, before the first byte of a response, and
            calls beyond `max_concurrent_streams`.
        max_pings: PINGs without data between them.
        max_settings: SETTINGS frames.
        max_empty_frames: frames that carry nothing: DATA and CONTINUATION without payload, PRIORITY, unknown types,
            and tiny WINDOW_UPDATEs beyond those that sent data explains.
        max_connections: the most connections of a server; more are refused (GOAWAY, ENHANCE_YOUR_CALM).
        max_calls: the most open calls of a server, on all its connections; a connection may have as many as are free.
            More are refused (RESOURCE_EXHAUSTED).
        max_peer_connections: the most connections of one peer to a server. A peer is a token, a certificate, or an
            address, but not one on this machine; for this and the next four.
        max_peer_connects: how often one peer may connect in `flood_interval_seconds`.
        max_peer_calls_per_second: how many calls one peer may begin each second, over all its connections.
        peer_call_burst: how many calls one peer may begin at once.
        max_peer_resets: as `max_resets`, for all connections of one peer together.
        reserved_descriptors: file descriptors that a server leaves for files and for connections of its own: with
            fewer free ones it refuses connections.
        handshake_timeout_seconds: how long a peer may take for its first SETTINGS.
        idle_timeout_seconds: how long a server keeps a connection without calls; 0: no limit.
        keepalive_seconds: a server sends a PING to a client that has been silent for this long; 0: never.
        client_keepalive_seconds: how often a channel with running calls sends a PING to a silent server (but once after
            `keepalive_seconds` when data has come since, which every server allows); 0: never.
        keepalive_timeout_seconds: how long a peer may take to answer a PING before the connection is closed.
        message_stall_timeout_seconds: how long a large message may make no progress while others wait for its share of
            `connection_memory_bytes`.
        drain_grace_seconds: how long running calls may go on when a server drains, and their clients may read.
        access_recheck_seconds: how often a server that asks for tokens looks for running calls whose token has expired
            or was revoked, and ends them.
        connect_timeout_seconds: how long a channel may take to connect, until the server's SETTINGS have come.
        connect_backoff_initial_seconds: the pause after the first failure to connect (plus or minus a fifth); each
            further pause is 1.6 times as long.
        connect_backoff_max_seconds: the longest of these pauses.
        await_server_seconds: how long the first calls of a channel wait for a server that does not listen yet; 0: they
            fail at once. The time counts from the first call, and ends with the first connection.
        max_channel_connections: the most connections of one channel; it opens more than one when the server limits the
            calls on each.
        surplus_idle_seconds: how long all but the first of these stay open without calls.
        farewell_timeout_seconds: time limit for sending GOAWAY and waiting for the peer to close.
    """

    max_receive_message_bytes: int = 4 * 1024 * 1024
    max_message_entries: int = 128 * 1024
    max_send_message_bytes: int | None = None
    max_concurrent_streams: int = 1000
    max_header_list_bytes: int = 16 * 1024
    stream_window_bytes: int = 64 * 1024
    connection_window_bytes: int = 4 * 1024 * 1024
    connection_memory_bytes: int = 16 * 1024 * 1024
    server_memory_bytes: int = 64 * 1024 * 1024
    max_frame_bytes: int = 1024 * 1024
    call_outbox_messages: int = 256
    call_outbox_bytes: int = 1024 * 1024
    write_high_water_bytes: int = 256 * 1024
    max_control_output_bytes: int = 1024 * 1024
    flood_interval_seconds: float = 10.0
    max_resets: int = 200
    max_pings: int = 200
    max_settings: int = 100
    max_empty_frames: int = 1000
    max_connections: int = 4096
    max_calls: int = 10_000
    max_peer_connections: int = 1000
    max_peer_connects: int = 3000
    max_peer_calls_per_second: float = 5000.0
    peer_call_burst: int = 20_000
    max_peer_resets: int = 2000
    reserved_descriptors: int = 32
    handshake_timeout_seconds: float = 20.0
    idle_timeout_seconds: float = 1800.0
    keepalive_seconds: float = 20.0
    client_keepalive_seconds: float = 300.0
    keepalive_timeout_seconds: float = 10.0
    message_stall_timeout_seconds: float = 20.0
    drain_grace_seconds: float = 10.0
    access_recheck_seconds: float = 5.0
    connect_timeout_seconds: float = 20.0
    connect_backoff_initial_seconds: float = 1.0
    connect_backoff_max_seconds: float = 30.0
    await_server_seconds: float = 10.0
    max_channel_connections: int = 128
    surplus_idle_seconds: float = 30.0
    farewell_timeout_seconds: float = 1.0

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES)


_RANGES: dict[str, Range] = {
    "max_receive_message_bytes": SIZE,
    "max_message_entries": SIZE,
    "max_send_message_bytes": (0, 2**32 - 1),  # the prefix has four bytes
    "max_concurrent_streams": SIZE,
    "max_header_list_bytes": (256, 128 * 1024),
    "stream_window_bytes": (5, 2**31 - 1),  # a message's prefix: what is held of one is not credited
    "connection_window_bytes": SIZE,
    "connection_memory_bytes": (2**16, 2**40),
    "server_memory_bytes": (2**20, 2**50),
    "max_frame_bytes": (2**14, 2**24 - 1),  # RFC 9113, 6.5.2
    "call_outbox_messages": SIZE,
    "call_outbox_bytes": SIZE,
    "write_high_water_bytes": SIZE,
    "max_control_output_bytes": (2**10, 2**31 - 1),
    "flood_interval_seconds": SECONDS,
    "max_resets": SIZE,
    "max_pings": SIZE,
    "max_settings": SIZE,
    "max_empty_frames": SIZE,
    "max_connections": SIZE,
    "max_calls": SIZE,
    "max_peer_connections": SIZE,
    "max_peer_connects": SIZE,
    "max_peer_calls_per_second": (0.001, 10.0**9),
    "peer_call_burst": SIZE,
    "max_peer_resets": SIZE,
    "reserved_descriptors": (0, 2**20),
    "handshake_timeout_seconds": SECONDS,
    "idle_timeout_seconds": SECONDS_OR_NEVER,
    "keepalive_seconds": SECONDS_OR_NEVER,
    "client_keepalive_seconds": SECONDS_OR_NEVER,
    "keepalive_timeout_seconds": SECONDS,
    "message_stall_timeout_seconds": SECONDS,
    "drain_grace_seconds": SECONDS_OR_NEVER,
    "access_recheck_seconds": SECONDS,
    "connect_timeout_seconds": SECONDS,
    "connect_backoff_initial_seconds": SECONDS,
    "connect_backoff_max_seconds": SECONDS,
    "await_server_seconds": SECONDS_OR_NEVER,
    "max_channel_connections": SIZE,
    "surplus_idle_seconds": SECONDS,
    "farewell_timeout_seconds": SECONDS,
}
