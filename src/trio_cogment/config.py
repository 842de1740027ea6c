"""Settings, with their units in their names. Every limit and every timeout of the package has its default here."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorConfig:
    """How an orchestrator treats its trials. Times are in seconds; 0 means without limit where it says so.

    Attributes:
        soft_end_patience_seconds: how long a soft end may take to reach the final observation before the trial is ended
            hard; 0 waits for ever.
        environment_init_timeout_seconds: how long an environment may take to answer its initial message; 0: for ever.
        environment_ack_timeout_seconds: how long an environment may take for its LAST_ACK.
        actor_ack_timeout_seconds: the same for an actor.
        heartbeat_seconds: a participant silent for so long is sent a HEARTBEAT, and again as often, but not while the
            trial waits for it; 0: none.
        farewell_seconds: how long END messages may take to leave once a trial has ended or is being cancelled.
        hook_timeout_seconds: how long one pre-trial hook may take.
        datalog_connect_timeout_seconds: how long the data log may take to accept a trial's stream.
        datalog_flush_seconds: how long the data log of an ended trial may go without taking any of what is left.
        datalog_grace_seconds: how long a trial whose queue is full waits for a data log that is away; after that it
            goes on, and the oldest samples are dropped. 0: it does not wait.
        datalog_reconnect_initial_seconds: the pause before a lost data log is tried again (give or take a fifth); each
            further one is 1.6 times as long.
        datalog_reconnect_max_seconds: the longest of these pauses.
        max_queued_samples: samples waiting for the data log before the trial is made to wait; and as many that a data
            log which confirms has not confirmed are kept beside them.
        max_outbox_messages: messages waiting for one participant beyond what its call holds, before it is given up (a
            large trial is allowed more: see `OUTBOX_MESSAGES_PER_PARTICIPANT`).
        max_outbox_bytes: their total size; one message of any size is always allowed.
        client_join_timeout_seconds: how long a client actor may take to say who it is.
        watch_queue_entries: entries waiting for a watcher before it is given up.
        max_properties_bytes: the names and values of one trial's properties, in total; they are in every description of
            the trial, and those must fit into a message.
        max_ended_trials: ended trials that can still be asked about.
        ended_trial_age_seconds: how long they can be asked about.
        gc_frequency: forget all of them on every so-manieth start, besides (0 or 1: on every one); None: on none.
    """

    soft_end_patience_seconds: float = 120.0
    environment_init_timeout_seconds: float = 60.0
    environment_ack_timeout_seconds: float = 60.0
    actor_ack_timeout_seconds: float = 30.0
    heartbeat_seconds: float = 20.0
    farewell_seconds: float = 2.0
    hook_timeout_seconds: float = 60.0
    datalog_connect_timeout_seconds: float = 10.0
    datalog_flush_seconds: float = 10.0
    datalog_grace_seconds: float = 10.0
    datalog_reconnect_initial_seconds: float = 0.5
    datalog_reconnect_max_seconds: float = 10.0
    max_queued_samples: int = 1024
    max_outbox_messages: int = 4096
    max_outbox_bytes: int = 16 * 1024 * 1024
    client_join_timeout_seconds: float = 60.0
    watch_queue_entries: int = 16384
    max_properties_bytes: int = 64 * 1024
    max_ended_trials: int = 1000
    ended_trial_age_seconds: float = 3600.0
    gc_frequency: int | None = None

    def __post_init__(self) -> None:
        _check_not_negative(self)
        # With none of these nothing would work: a trial would wait for ever for room in a queue that has none.
        _check_positive(
            self,
            "hook_timeout_seconds",
            "datalog_connect_timeout_seconds",
            "max_queued_samples",
            "client_join_timeout_seconds",
            "watch_queue_entries",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcConfig:
    """Limits and windows of a gRPC server or channel; `docs/rpc-limits.md` says what happens at each.

    Attributes:
        max_receive_message_bytes: a longer message is refused from its length prefix alone (RESOURCE_EXHAUSTED).
        max_send_message_bytes: a longer message is refused before it is sent; None for no limit of our own.
        max_concurrent_streams: calls one client may have open on one connection; more are refused (REFUSED_STREAM).
        max_header_list_bytes: metadata of one call, counted as HTTP/2 does (32 bytes are added for each entry).
        stream_window_bytes: what a peer may send on one call before the receiver has taken it, beside one message
            larger than that, which is let through whole as soon as `connection_memory_bytes` allows.
        connection_window_bytes: what a peer may have in flight on one connection (65535 at least); it is credited on
            receipt, until `connection_memory_bytes` are held.
        connection_memory_bytes: what one connection may hold of messages that nobody has taken, and again of messages
            that its peer does not take; one message larger than that passes at a time.
        max_frame_bytes: the largest DATA frame we accept (and, if the peer allows, send).
        call_outbox_messages: messages that may wait in one call until the peer takes them.
        call_outbox_bytes: their total size; one message of any size is always taken.
        write_high_water_bytes: unsent bytes of a connection above which its calls queue on their own.
        max_control_output_bytes: answers to frames of a peer (PING, SETTINGS, resets, refusals) that may wait for it to
            read.
        flood_interval_seconds: the time over which the next four count.
        max_resets: calls that a client resets, or that its faults end, before the first byte of a response, and calls
            beyond `max_concurrent_streams`.
        max_pings: PINGs without data between them.
        max_settings: SETTINGS frames.
        max_empty_frames: frames that carry nothing: DATA and CONTINUATION without payload, PRIORITY, unknown types,
            WINDOW_UPDATEs of next to nothing beyond those that what we send may bring about.
        handshake_timeout_seconds: how long a peer may take for its first SETTINGS.
        idle_timeout_seconds: how long a server keeps a connection without calls; 0 for ever.
        keepalive_seconds: a server PINGs a client from which it has heard nothing for so long; 0 never.
        client_keepalive_seconds: a channel with running calls PINGs a silent server so often (but once after
            `keepalive_seconds` when data has come since, which every server allows); 0 never.
        keepalive_timeout_seconds: how long a PINGed peer may stay silent before it is given up.
        message_stall_timeout_seconds: how long a large message may come no further while others wait for its share of
            `connection_memory_bytes`.
        drain_grace_seconds: how long running calls may go on when a server drains, and their clients take to read.
        connect_timeout_seconds: how long a channel tries to connect, until the server's SETTINGS have come.
        connect_backoff_initial_seconds: the pause after a first failure to connect (give or take a fifth); each further
            one is 1.6 times as long.
        connect_backoff_max_seconds: the longest of these pauses.
        max_channel_connections: connections of one channel; there is more than one when the server limits the calls on
            each.
        surplus_idle_seconds: how long all but the first of these stay when they have no calls.
        farewell_timeout_seconds: how long a closing end tries to tell its peer why, and waits for it to close too.
    """

    max_receive_message_bytes: int = 4 * 1024 * 1024
    max_send_message_bytes: int | None = None
    max_concurrent_streams: int = 1000
    max_header_list_bytes: int = 16 * 1024
    stream_window_bytes: int = 64 * 1024
    connection_window_bytes: int = 4 * 1024 * 1024
    connection_memory_bytes: int = 16 * 1024 * 1024
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
    handshake_timeout_seconds: float = 20.0
    idle_timeout_seconds: float = 1800.0
    keepalive_seconds: float = 20.0
    client_keepalive_seconds: float = 300.0
    keepalive_timeout_seconds: float = 10.0
    message_stall_timeout_seconds: float = 20.0
    drain_grace_seconds: float = 10.0
    connect_timeout_seconds: float = 20.0
    connect_backoff_initial_seconds: float = 1.0
    connect_backoff_max_seconds: float = 30.0
    max_channel_connections: int = 128
    surplus_idle_seconds: float = 30.0
    farewell_timeout_seconds: float = 1.0

    def __post_init__(self) -> None:
        for name, (least, most) in _RPC_RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:  # also refuses NaN
                raise ValueError(f"{name}: expected {least} to {most}, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """How metrics are measured and served.

    Attributes:
        request_timeout_seconds: how long one HTTP connection may last, its request and our answer together.
        max_connections: connections served at the same time; further ones are closed at once.
        max_request_bytes: a longer request head is refused (431).
        max_actor_classes: classes of actors told apart; those that come later are one, `other`.
    """

    request_timeout_seconds: float = 10.0
    max_connections: int = 16
    max_request_bytes: int = 16 * 1024
    max_actor_classes: int = 100

    def __post_init__(self) -> None:
        _check_not_negative(self)
        _check_positive(self, "request_timeout_seconds", "max_connections", "max_request_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatastoreConfig:
    """How a trial datastore writes and reads, whatever its storage.

    Attributes:
        commit_samples: so many writes, of all streams together, are committed at once.
        commit_bytes: or so many bytes of them.
        commit_delay_seconds: or what there is so long after the first.
        max_pending_writes: writes that wait or are being committed; then streams are made to wait.
        max_pending_bytes: their size; one of any size is always taken.
        max_stream_writes: how many of these a single stream may have.
        abandoned_after_seconds: a trial whose data log is away for so long is marked as ended abnormally. That a host
            is gone without a word is noticed within 30 s (`keepalive_seconds` and `keepalive_timeout_seconds`): with
            the default nobody waits for its trials 60 s later.
        abandoned_after_start_seconds: the same for trials that were open when the datastore started: their data logs
            may take 30 s to notice that its predecessor has gone, and a pause before they come back.
        page_samples: samples that a reader's call reads from the storage at a time.
        page_bytes: their size; one of any size is always read.
        max_reply_bytes: a reply with trials that would be longer is refused: the published SDK takes no longer one.
        farewell_seconds: how long a datastore that stops may take to write what it has been given.
    """

    commit_samples: int = 500
    commit_bytes: int = 4 * 1024 * 1024
    commit_delay_seconds: float = 0.02
    max_pending_writes: int = 4096
    max_pending_bytes: int = 16 * 1024 * 1024
    max_stream_writes: int = 700
    abandoned_after_seconds: float = 25.0
    abandoned_after_start_seconds: float = 45.0
    page_samples: int = 500
    page_bytes: int = 512 * 1024
    max_reply_bytes: int = 4 * 1024 * 1024
    farewell_seconds: float = 5.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            least, most = _DATASTORE_RANGES.get(name, _SIZE)
            value = getattr(self, name)
            if not least <= value <= most:  # also refuses NaN
                raise ValueError(f"{name}: expected {least} to {most}, got {value}")


#: A trial is given up within a minute of its orchestrator's end.
_DATASTORE_RANGES: dict[str, tuple[float, float]] = {
    "commit_delay_seconds": (0.0, 60.0),
    "abandoned_after_seconds": (0.001, 60.0),
    "abandoned_after_start_seconds": (0.001, 60.0),
    "farewell_seconds": (0.0, 60.0),
}


def _check_not_negative(config: OrchestratorConfig | MetricsConfig) -> None:
    for field in fields(config):
        value = getattr(config, field.name)
        if value is not None and not 0 <= value < math.inf:  # also refuses NaN
            raise ValueError(f"{field.name}: expected a number that is not negative, got {value}")


def _check_positive(config: OrchestratorConfig | MetricsConfig, *names: str) -> None:
    for name in names:
        if not getattr(config, name):
            raise ValueError(f"{name}: expected more than 0")


_SIZE = (1, 2**31 - 1)
_SECONDS = (0.001, 10.0**9)
_SECONDS_OR_NEVER = (0.0, 10.0**9)
_RPC_RANGES: dict[str, tuple[float, float]] = {
    "max_receive_message_bytes": _SIZE,
    "max_send_message_bytes": (0, 2**32 - 1),  # the prefix has four bytes
    "max_concurrent_streams": _SIZE,
    "max_header_list_bytes": (256, 128 * 1024),
    "stream_window_bytes": _SIZE,
    "connection_window_bytes": _SIZE,
    "connection_memory_bytes": (2**16, 2**40),
    "max_frame_bytes": (2**14, 2**24 - 1),  # RFC 9113, 6.5.2
    "call_outbox_messages": _SIZE,
    "call_outbox_bytes": _SIZE,
    "write_high_water_bytes": _SIZE,
    "max_control_output_bytes": (2**10, 2**31 - 1),
    "flood_interval_seconds": _SECONDS,
    "max_resets": _SIZE,
    "max_pings": _SIZE,
    "max_settings": _SIZE,
    "max_empty_frames": _SIZE,
    "handshake_timeout_seconds": _SECONDS,
    "idle_timeout_seconds": _SECONDS_OR_NEVER,
    "keepalive_seconds": _SECONDS_OR_NEVER,
    "client_keepalive_seconds": _SECONDS_OR_NEVER,
    "keepalive_timeout_seconds": _SECONDS,
    "message_stall_timeout_seconds": _SECONDS,
    "drain_grace_seconds": _SECONDS_OR_NEVER,
    "connect_timeout_seconds": _SECONDS,
    "connect_backoff_initial_seconds": _SECONDS,
    "connect_backoff_max_seconds": _SECONDS,
    "max_channel_connections": _SIZE,
    "surplus_idle_seconds": _SECONDS,
    "farewell_timeout_seconds": _SECONDS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryConfig:
    """How a directory is asked, and how registrations are kept in it.

    Attributes:
        inquiry_timeout_seconds: how long one inquiry may take, connecting and waiting for its first reply included.
            15 s suffice for noticing that a connection (older than 20 s) has died without a word, and for another one.
        registration_timeout_seconds: the same for a registration, and for a look whether it is still there. A directory
            that calls a service back before it answers may take more than 20 s to find that it cannot.
        deregistration_timeout_seconds: how long leaving may take, all registrations together.
        check_interval_seconds: how often the directory is asked whether it still knows us (give or take a fifth).
        retry_initial_seconds: the pause after a first failure to register (give or take a fifth); each further one is
            twice as long.
        retry_max_seconds: the longest of these pauses.
        reconnect_max_seconds: the longest pause between attempts to connect to the directory.
    """

    inquiry_timeout_seconds: float = 15.0
    registration_timeout_seconds: float = 30.0
    deregistration_timeout_seconds: float = 2.0
    check_interval_seconds: float = 10.0
    retry_initial_seconds: float = 1.0
    retry_max_seconds: float = 10.0
    reconnect_max_seconds: float = 2.0

    def __post_init__(self) -> None:
        least, most = _SECONDS
        for name in self.__slots__:
            value = getattr(self, name)
            if not least <= value <= most:  # also refuses NaN
                raise ValueError(f"{name}: expected {least} to {most}, got {value}")
