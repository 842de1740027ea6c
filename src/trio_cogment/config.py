"""Settings, with their units in their names. Every limit and every timeout of the package has its default here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorConfig:
    """How an orchestrator treats its trials. Times are in seconds; 0 means without limit where it says so.

    Attributes:
        soft_end_patience_seconds: how long a soft end may take to reach the final observation before the trial is ended
            hard; 0 waits for ever.
        environment_init_timeout_seconds: how long an environment may take to answer its initial message; 0: for ever.
        environment_ack_timeout_seconds: how long an environment may take for its LAST_ACK.
        actor_ack_timeout_seconds: the same for an actor.
        farewell_seconds: how long END messages may take to leave once a trial has ended or is being cancelled.
        hook_timeout_seconds: how long one pre-trial hook may take.
        datalog_connect_timeout_seconds: how long the data log may take to accept a trial's stream.
        datalog_flush_seconds: how long the samples of an ended trial may take to reach the data log.
        max_queued_samples: samples waiting for the data log before the environment is made to wait.
        max_outbox_messages: messages waiting for one participant beyond what its call holds, before it is given up (a
            large trial is allowed more: see `OUTBOX_MESSAGES_PER_PARTICIPANT`).
        max_outbox_bytes: their total size; one message of any size is always allowed.
        client_join_timeout_seconds: how long a client actor may take to say who it is.
        watch_queue_entries: entries waiting for a watcher before it is given up.
        max_ended_trials: ended trials that can still be asked about.
        ended_trial_age_seconds: how long they can be asked about.
    """

    soft_end_patience_seconds: float = 120.0
    environment_init_timeout_seconds: float = 60.0
    environment_ack_timeout_seconds: float = 60.0
    actor_ack_timeout_seconds: float = 30.0
    farewell_seconds: float = 2.0
    hook_timeout_seconds: float = 60.0
    datalog_connect_timeout_seconds: float = 10.0
    datalog_flush_seconds: float = 10.0
    max_queued_samples: int = 1024
    max_outbox_messages: int = 4096
    max_outbox_bytes: int = 16 * 1024 * 1024
    client_join_timeout_seconds: float = 60.0
    watch_queue_entries: int = 4096
    max_ended_trials: int = 1000
    ended_trial_age_seconds: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcConfig:
    """Limits and windows of a gRPC server or channel.

    Attributes:
        max_receive_message_bytes: a longer message is refused from its length prefix alone (RESOURCE_EXHAUSTED).
        max_send_message_bytes: a longer message is refused before it is sent; None for no limit of our own.
        max_concurrent_streams: calls one client may have open on one connection; more are refused (REFUSED_STREAM).
        max_header_list_bytes: metadata of one call, counted as HTTP/2 does (32 bytes are added for each entry).
        stream_window_bytes: what a peer may send on one call before the receiver has taken it, beside one message
            larger than that, which is always let through whole.
        connection_window_bytes: what a peer may have in flight on one connection (65535 at least); it is credited on
            receipt.
        max_frame_bytes: the largest DATA frame we accept (and, if the peer allows, send).
        call_outbox_messages: messages that may wait in one call until the peer takes them.
        call_outbox_bytes: their total size; one message of any size is always taken.
        write_high_water_bytes: unsent bytes of a connection above which its calls queue on their own.
        connect_timeout_seconds: how long a channel tries to connect.
        farewell_timeout_seconds: how long a closing end tries to tell its peer why.
    """

    max_receive_message_bytes: int = 4 * 1024 * 1024
    max_send_message_bytes: int | None = None
    max_concurrent_streams: int = 1000
    max_header_list_bytes: int = 16 * 1024
    stream_window_bytes: int = 256 * 1024
    connection_window_bytes: int = 4 * 1024 * 1024
    max_frame_bytes: int = 1024 * 1024
    call_outbox_messages: int = 256
    call_outbox_bytes: int = 1024 * 1024
    write_high_water_bytes: int = 256 * 1024
    connect_timeout_seconds: float = 20.0
    farewell_timeout_seconds: float = 1.0

    def __post_init__(self) -> None:
        if not 2**14 <= self.max_frame_bytes < 2**24:  # RFC 9113, 6.5.2
            raise ValueError(f"max_frame_bytes: expected {2**14} to {2**24 - 1}, got {self.max_frame_bytes}")
        for name in ("stream_window_bytes", "connection_window_bytes", "max_receive_message_bytes"):
            if not 1 <= getattr(self, name) < 2**31:
                raise ValueError(f"{name}: expected 1 to {2**31 - 1}, got {getattr(self, name)}")
