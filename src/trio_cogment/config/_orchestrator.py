"""Settings of an orchestrator and of its metrics."""

from __future__ import annotations

from trio_cogment._records import record
from trio_cogment.config._checks import check_not_negative, check_positive


@record(kw_only=True)
class OrchestratorConfig:
    """How an orchestrator treats its trials. Times are in seconds; 0 means no limit where the text says so.

    Attributes:
        soft_end_patience_seconds: time limit of a soft end, until the final observation; then the trial is ended hard;
            0: no limit.
        environment_init_timeout_seconds: how long an environment may take to answer its initial message; 0: no limit.
        environment_ack_timeout_seconds: how long an environment may take for its LAST_ACK.
        actor_ack_timeout_seconds: the same for an actor.
        heartbeat_seconds: a participant that is silent for this long is sent a HEARTBEAT, and again after each such
            interval, but not while the trial waits for it; 0: none.
        farewell_seconds: how long END messages may take to leave once a trial has ended or is being cancelled.
        hook_timeout_seconds: how long one pre-trial hook may take.
        datalog_connect_timeout_seconds: how long the data log may take to accept a trial's stream.
        datalog_flush_seconds: how long the data log of an ended trial may make no progress with the remaining samples.
        datalog_grace_seconds: how long a trial whose queue is full waits for a data log that cannot be reached; after
            that it goes on, and the oldest samples are dropped. 0: it does not wait.
        datalog_full_seconds: the same for a data log that says that it cannot store samples now: its disk is full, or
            fails. An ended trial waits as long, too, until its samples are stored.
        datalog_reconnect_initial_seconds: the pause before the first reconnection to a data log (plus or minus a
            fifth); each further pause is 1.6 times as long.
        datalog_reconnect_max_seconds: the longest of these pauses.
        max_queued_samples: the most samples that wait for the data log; then the trial waits. As many again are kept
            until a data log that confirms samples has confirmed them.
        max_outbox_messages: the most messages that wait for one participant, beyond those that its call holds; with
            more it is considered lost (a large trial is allowed more: see `OUTBOX_MESSAGES_PER_PARTICIPANT`).
        max_outbox_bytes: their total size; one message of any size is always allowed.
        max_tick_messages_bytes: the size of all messages and rewards that the participants of a trial may send in one
            tick; further ones are dropped and counted.
        max_held_back_bytes: the size of the samples that a trial holds back for late rewards (`nb_buffered_ticks`),
            beyond those of the last two ticks; with more, the oldest leave early.
        max_all_held_back_bytes: the same for all trials together. Each that starts is promised a ninth of what is left.
        client_join_timeout_seconds: how long a client actor may take to send its first message.
        watch_queue_entries: the most entries that wait for a watcher; with more its call is ended.
        watch_queue_bytes: their total size; one entry of any size may always wait. The trials that are there when it
            begins to watch do not count.
        watch_total_bytes: the size of what waits for all watchers; with more, those of the peer end for which most
            waits.
        max_watchers: how many there may be at a time.
        max_peer_watchers: how many of them one peer may have.
        max_watched_trials: how many trials one watcher may name; without names it watches all.
        max_info_reply_bytes: the size of one reply that describes trials to a peer; a larger one is refused, as clients
            would not accept it. One trial's description of any size is sent.
        max_peer_replies_bytes: the size of all such replies that one peer has not been sent yet; further calls are
            refused.
        max_trial_actors: how many actors a trial may have.
        max_trial_endpoints: at how many different endpoints they may be; client actors are at none.
        max_trials: how many trials there may be at a time, without those that ended.
        max_peer_trials: how many of them one peer may have started. A peer is an account: a token, a certificate or an
            address, over all its connections. For those that this process starts only the limits for all hold.
        max_starting_trials: how many trials may be starting at a time: hooks, the directory or the data log are waited
            for.
        max_peer_starting_trials: the same for one peer.
        max_trials_bytes: about how much memory the parameters and participants of all these trials may take.
        max_peer_trials_bytes: the same for those of one peer.
        max_observations_bytes: the size of all latest observations of more than 32 KiB, which are kept for those who
            ask for them; without room only their tick and time are.
        max_peer_observations_bytes: the same for the trials of one peer.
        max_connecting: how many streams to participants elsewhere may be opening at a time; others wait their turn.
        max_peer_connecting: the same for the trials of one peer.
        max_properties_bytes: the total size of the names and values of one trial's properties; every description of the
            trial contains them, and must fit into a message.
        max_ended_trials: how many ended trials are remembered.
        max_ended_trials_bytes: about how much memory these may take: properties, participants, how it ended.
        ended_trial_age_seconds: how long ended trials are remembered.
        gc_frequency: also forget all ended trials at every n-th start of a trial (0 or 1: at every start); None: never.
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
    datalog_full_seconds: float = 600.0
    datalog_reconnect_initial_seconds: float = 0.5
    datalog_reconnect_max_seconds: float = 10.0
    max_queued_samples: int = 1024
    max_outbox_messages: int = 4096
    max_outbox_bytes: int = 16 * 1024 * 1024
    max_tick_messages_bytes: int = 64 * 1024 * 1024
    max_held_back_bytes: int = 16 * 1024 * 1024
    max_all_held_back_bytes: int = 48 * 1024 * 1024
    client_join_timeout_seconds: float = 60.0
    watch_queue_entries: int = 16384
    watch_queue_bytes: int = 4 * 1024 * 1024
    watch_total_bytes: int = 32 * 1024 * 1024
    max_watchers: int = 4000
    max_peer_watchers: int = 1000
    max_watched_trials: int = 10_000
    max_info_reply_bytes: int = 4 * 1024 * 1024
    max_peer_replies_bytes: int = 16 * 1024 * 1024
    max_trial_actors: int = 2000
    max_trial_endpoints: int = 256
    max_trials: int = 8000
    max_peer_trials: int = 2000
    max_starting_trials: int = 2000
    max_peer_starting_trials: int = 1000
    max_trials_bytes: int = 128 * 1024 * 1024
    max_peer_trials_bytes: int = 48 * 1024 * 1024
    max_observations_bytes: int = 64 * 1024 * 1024
    max_peer_observations_bytes: int = 32 * 1024 * 1024
    max_connecting: int = 256
    max_peer_connecting: int = 128
    max_properties_bytes: int = 64 * 1024
    max_ended_trials: int = 1000
    max_ended_trials_bytes: int = 24 * 1024 * 1024
    ended_trial_age_seconds: float = 3600.0
    gc_frequency: int | None = None

    def __post_init__(self) -> None:
        check_not_negative(self)
        # With 0 nothing would work: a trial would wait indefinitely for room in a queue without any.
        check_positive(
            self,
            "hook_timeout_seconds",
            "datalog_connect_timeout_seconds",
            "max_queued_samples",
            "client_join_timeout_seconds",
            "watch_queue_entries",
            "max_watchers",
            "max_peer_watchers",
            "max_trial_actors",
            "max_trial_endpoints",
            "max_trials",
            "max_peer_trials",
            "max_starting_trials",
            "max_peer_starting_trials",
            "max_connecting",
            "max_peer_connecting",
        )


@record(kw_only=True)
class MetricsConfig:
    """How metrics are measured and served.

    Attributes:
        request_timeout_seconds: how long one HTTP connection may last, including request and response.
        max_connections: connections served at the same time; further ones are closed at once.
        max_peer_connections: how many of them one address may have, unless it is on this machine.
        max_request_bytes: a longer request head is refused (431).
        max_actor_classes: how many actor classes get metrics of their own; further ones share the label `other`.
    """

    request_timeout_seconds: float = 10.0
    max_connections: int = 16
    max_peer_connections: int = 8
    max_request_bytes: int = 16 * 1024
    max_actor_classes: int = 100

    def __post_init__(self) -> None:
        check_not_negative(self)
        check_positive(self, "request_timeout_seconds", "max_connections", "max_peer_connections", "max_request_bytes")
