"""Settings of an orchestrator and of its metrics."""

from __future__ import annotations

from dataclasses import dataclass

from trio_cogment.config._checks import check_not_negative, check_positive


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
        check_not_negative(self)
        # With none of these nothing would work: a trial would wait for ever for room in a queue that has none.
        check_positive(
            self,
            "hook_timeout_seconds",
            "datalog_connect_timeout_seconds",
            "max_queued_samples",
            "client_join_timeout_seconds",
            "watch_queue_entries",
        )


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
        check_not_negative(self)
        check_positive(self, "request_timeout_seconds", "max_connections", "max_request_bytes")
