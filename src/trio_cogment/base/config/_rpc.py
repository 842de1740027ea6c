"""Settings of connections, for servers and clients."""

from __future__ import annotations

from trio_cogment.base.config.declarations import CALLER, CLOSED, LOAN, SECONDS_OR_NEVER, Settings, Shared, setting
from trio_cogment.base.records import record


@record(kw_only=True)
class RpcConfig(Settings):
    """Limits and windows of a gRPC server or channel; `docs/rpc-limits.md` says what happens at each."""

    max_receive_message_bytes: int = setting(
        4 * 1024 * 1024, "a longer message is refused from its length prefix alone (RESOURCE_EXHAUSTED)", of="message"
    )
    max_message_entries: int = setting(
        128 * 1024,
        "a message with more entries in its repeated fields, at all levels together and not counting numbers, "
        "is refused (RESOURCE_EXHAUSTED). Only messages that may have that many are looked at: from 256 KiB on, "
        "and compressed ones",
        of="message",
    )
    max_send_message_bytes: int | None = setting(
        None,
        "a longer message is refused before it is sent; by default no message is too long",
        within=(0, 2**32 - 1),  # the prefix has four bytes
        of="message",
    )
    max_concurrent_streams: int = setting(
        1000, "calls one client may have open on one connection; more are refused (REFUSED_STREAM)", of="connection"
    )
    max_header_list_bytes: int = setting(
        16 * 1024,
        "metadata of one call, counted as HTTP/2 does (32 bytes are added for each entry)",
        within=(256, 128 * 1024),
        of="message",
    )
    stream_window_bytes: int = setting(
        64 * 1024,
        "what a peer may send on one call before the application receives it (at least 5). One message larger "
        "than that is let through whole as soon as `connection_memory_bytes` allows. While everything is received at "
        "once it grows, up to half of `connection_window_bytes`",
        within=(5, 2**31 - 1),  # a message's prefix: what is held of one is not credited
        of="call",
    )
    connection_window_bytes: int = setting(
        4 * 1024 * 1024,
        "what a peer may have in flight on one connection (at least 65535); it is credited on receipt, until "
        "`connection_memory_bytes` are held",
        of="connection",
    )
    connection_memory_bytes: int = setting(
        16 * 1024 * 1024,
        "what one connection may hold of messages that the application has not received, and again of messages "
        "that its peer does not read; one message larger than that passes at a time",
        within=(2**16, 2**40),
        of="connection",
    )
    server_memory_bytes: int = setting(
        64 * 1024 * 1024,
        "what all connections of a server together, with those that its process has opened, may hold of "
        "messages that wait, in both directions; the first 64 KiB of each connection are free",
        within=(2**20, 2**50),
        shared=Shared("bytes that wait", LOAN, "the connection, trial or data log", "reading them"),
    )
    max_frame_bytes: int = setting(
        1024 * 1024,
        "the largest DATA frame that is accepted. Those that are sent are no larger than that, and than the "
        "peer allows",
        within=(2**14, 2**24 - 1),  # RFC 9113, 6.5.2
        of="message",
    )
    call_outbox_messages: int = setting(
        256, "the most messages that wait in one call until the peer reads them", of="call"
    )
    call_outbox_bytes: int = setting(
        1024 * 1024, "their total size; one message of any size is always accepted", of="call"
    )
    write_high_water_bytes: int = setting(
        256 * 1024, "with more unsent bytes on a connection, messages wait in their calls", of="connection"
    )
    max_control_output_bytes: int = setting(
        1024 * 1024,
        "the most bytes of responses to control frames (PING, SETTINGS, resets, refusals) that wait for the "
        "peer to read",
        within=(2**10, 2**31 - 1),
        of="connection",
    )
    flood_interval_seconds: float = setting(10.0, "the interval to which the next four limits apply")
    max_resets: int = setting(
        200,
        "calls that a client resets, or that end by its errors, before the first byte of a response, and calls "
        "beyond `max_concurrent_streams`",
        of="connection",
    )
    max_pings: int = setting(200, "PINGs without data between them", of="connection")
    max_settings: int = setting(100, "SETTINGS frames", of="connection")
    max_empty_frames: int = setting(
        1000,
        "frames that carry nothing: DATA and CONTINUATION without payload, PRIORITY, unknown types, and tiny "
        "WINDOW_UPDATEs beyond those that sent data explains",
        of="connection",
    )
    max_connections: int = setting(
        4096,
        "the most connections of a server; more are refused (GOAWAY, ENHANCE_YOUR_CALM)",
        shared=Shared(
            "connections",
            "max_peer_connections",
            CALLER,
            CLOSED,
        ),
    )
    max_calls: int = setting(
        10_000,
        "the most open calls of a server, on all its connections; a connection may have as many as are free. "
        "More are refused (RESOURCE_EXHAUSTED)",
        shared=Shared(
            "calls",
            "a connection may have as many as are free",
            "the connection",
            "the end of the call or of its connection",
        ),
    )
    max_peer_connections: int = setting(
        1000,
        "the most connections of one peer to a server. A peer is a token, a certificate, or an address, but not "
        "one on this machine; for this and the next four",
    )
    max_peer_connects: int = setting(3000, "how often one peer may connect in `flood_interval_seconds`", of="account")
    max_peer_calls_per_second: float = setting(
        5000.0,
        "how many calls one peer may begin each second, over all its connections",
        within=(0.001, 10.0**9),
        of="account",
    )
    peer_call_burst: int = setting(20_000, "how many calls one peer may begin at once", of="account")
    max_peer_resets: int = setting(2000, "as `max_resets`, for all connections of one peer together", of="account")
    reserved_descriptors: int = setting(
        32,
        "file descriptors that a server leaves for files and for connections of its own: with fewer free ones "
        "it refuses connections",
        within=(0, 2**20),
        of="process",
    )
    handshake_timeout_seconds: float = setting(20.0, "how long a peer may take for its first SETTINGS")
    idle_timeout_seconds: float = setting(
        1800.0, "how long a server keeps a connection without calls; 0: no limit", within=SECONDS_OR_NEVER
    )
    keepalive_seconds: float = setting(
        20.0, "a server sends a PING to a client that has been silent for this long; 0: never", within=SECONDS_OR_NEVER
    )
    client_keepalive_seconds: float = setting(
        300.0,
        "how often a channel with running calls sends a PING to a silent server (but once after "
        "`keepalive_seconds` when data has come since, which every server allows); 0: never",
        within=SECONDS_OR_NEVER,
    )
    keepalive_timeout_seconds: float = setting(
        10.0, "how long a peer may take to answer a PING before the connection is closed"
    )
    message_stall_timeout_seconds: float = setting(
        20.0,
        "how long a large message may make no progress while others wait for its share of `connection_memory_bytes`",
    )
    drain_grace_seconds: float = setting(
        10.0,
        "how long running calls may go on when a server drains, and their clients may read",
        within=SECONDS_OR_NEVER,
    )
    access_recheck_seconds: float = setting(
        5.0,
        "how often a server that asks for tokens looks for running calls whose token has expired or was "
        "revoked, and ends them",
    )
    connect_timeout_seconds: float = setting(
        20.0, "how long a channel may take to connect, until the server's SETTINGS have come"
    )
    connect_backoff_initial_seconds: float = setting(
        1.0,
        "the pause after the first failure to connect (plus or minus a fifth); each further pause is 1.6 times as long",
    )
    connect_backoff_max_seconds: float = setting(30.0, "the longest of these pauses")
    await_server_seconds: float = setting(
        10.0,
        "how long the first calls of a channel wait for a server that does not listen yet; 0: they fail at "
        "once. The time counts from the first call, and ends with the first connection",
        within=SECONDS_OR_NEVER,
    )
    max_channel_connections: int = setting(
        128,
        "the most connections of one channel; it opens more than one when the server limits the calls on each",
        of="process",
    )
    surplus_idle_seconds: float = setting(30.0, "how long all but the first of these stay open without calls")
    farewell_timeout_seconds: float = setting(1.0, "time limit for sending GOAWAY and waiting for the peer to close")
