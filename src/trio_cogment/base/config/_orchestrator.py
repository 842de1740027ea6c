"""Settings of an orchestrator and of its metrics."""

from __future__ import annotations

from trio_cogment.base.config.declarations import (
    ENDED,
    LOAN,
    NOT_NEGATIVE,
    PEER,
    POSITIVE,
    STARTER,
    Flag,
    Settings,
    Shared,
    setting,
)
from trio_cogment.base.records import record


@record(kw_only=True)
class OrchestratorConfig(Settings):
    """How an orchestrator treats its trials. Times are in seconds; 0 means no limit where the text says so."""

    soft_end_patience_seconds: float = setting(
        120.0,
        "time limit of a soft end, until the final observation; then the trial is ended hard; 0: no limit",
        within=NOT_NEGATIVE,
    )
    environment_init_timeout_seconds: float = setting(
        60.0, "how long an environment may take to answer its initial message; 0: no limit", within=NOT_NEGATIVE
    )
    environment_ack_timeout_seconds: float = setting(
        60.0, "how long an environment may take for its LAST_ACK", within=NOT_NEGATIVE
    )
    actor_ack_timeout_seconds: float = setting(30.0, "the same for an actor", within=NOT_NEGATIVE)
    heartbeat_seconds: float = setting(
        20.0,
        "a participant that is silent for this long is sent a HEARTBEAT, and again after each such interval, "
        "but not while the trial waits for it; 0: none",
        within=NOT_NEGATIVE,
    )
    checkpoint_ticks: int = setting(
        0,
        "after how many ticks an environment that saves itself is asked to, so that a trial can go on from there; "
        "0: never",
        flag=Flag("--checkpoint_ticks", "COGMENT_CHECKPOINT_TICKS"),
        within=NOT_NEGATIVE,
        of="trial",
    )
    checkpoint_seconds: float = setting(
        0.0,
        "after how many seconds, likewise; with both, whichever is first",
        flag=Flag("--checkpoint_seconds", "COGMENT_CHECKPOINT_SECONDS"),
        within=NOT_NEGATIVE,
    )
    resume: bool = setting(
        False,
        "go on with stored trials whose orchestrator is gone; and hand the own ones over when this one stops",
        flag=Flag("--resume", "TRIO_COGMENT_RESUME"),
    )
    datastore: str = setting(
        "",
        "trial datastore in another process, `grpc://host:port` or `cogment://discover`: the data log of trials whose "
        "parameters name none, and where `resume` finds the trials to go on with; refused beside a storage of its own",
        flag=Flag(
            "--datastore",
            "COGMENT_ORCHESTRATOR_DATASTORE",
            metavar="ENDPOINT",
            text="Trial datastore, grpc://host:port or cogment://discover: the data log of trials whose parameters "
            "name none; with --resume its trials go on. The default is none.",
        ),
    )
    resume_attempts: int = setting(
        10,
        "how many attempts of a trial may break off, one after the other; after that it is ended. A stop that hands it "
        "over breaks nothing off",
        within=POSITIVE,
        of="trial",
    )
    resume_patience_seconds: float = setting(
        30.0,
        "how long a trial that goes on waits for participants that are discovered, and for its storage; after that it "
        "is ended",
        within=NOT_NEGATIVE,
    )
    farewell_seconds: float = setting(
        2.0, "how long END messages may take to leave once a trial has ended or is being cancelled", within=NOT_NEGATIVE
    )
    hook_timeout_seconds: float = setting(60.0, "how long one pre-trial hook may take", within=POSITIVE)
    datalog_connect_timeout_seconds: float = setting(
        10.0, "how long the data log may take to accept a trial's stream", within=POSITIVE
    )
    datalog_flush_seconds: float = setting(
        10.0,
        "how long the data log of an ended trial may make no progress with the remaining samples",
        within=NOT_NEGATIVE,
    )
    datalog_grace_seconds: float = setting(
        10.0,
        "how long a trial whose queue is full waits for a data log that cannot be reached; after that it goes "
        "on, and the oldest samples are dropped. 0: it does not wait. One that goes on elsewhere (`resume`, with a "
        "`datastore`) plays on for so long at most without its datastore, and then waits",
        within=NOT_NEGATIVE,
    )
    datalog_full_seconds: float = setting(
        600.0,
        "the same for a data log that says that it cannot store samples now: its disk is full, or fails. Where "
        "samples cannot be stored an ended trial waits as long, too. One that waits for its `datastore` (`resume`) "
        "ends after that time",
        within=NOT_NEGATIVE,
    )
    datalog_reconnect_initial_seconds: float = setting(
        0.5,
        "the pause before the first reconnection to a data log (plus or minus a fifth); each further pause is "
        "1.6 times as long",
        within=NOT_NEGATIVE,
    )
    datalog_reconnect_max_seconds: float = setting(10.0, "the longest of these pauses", within=NOT_NEGATIVE)
    max_queued_samples: int = setting(
        1024,
        "the most samples that wait for the data log; then the trial waits. As many again are kept until a data "
        "log that confirms samples has confirmed them",
        within=POSITIVE,
        of="trial",
    )
    max_outbox_messages: int = setting(
        4096,
        "the most messages that wait for one participant, beyond those that its call holds; with more it is "
        "considered lost (a large trial is allowed more: see `OUTBOX_MESSAGES_PER_PARTICIPANT`)",
        within=NOT_NEGATIVE,
        of="participant",
    )
    max_outbox_bytes: int = setting(
        16 * 1024 * 1024,
        "their total size; one message of any size is always allowed. For a participant that has not come yet "
        "at most 256 messages wait, and half of this (8 MiB at most); further ones are dropped and counted",
        within=NOT_NEGATIVE,
        of="participant",
    )
    max_tick_messages_bytes: int = setting(
        64 * 1024 * 1024,
        "the size of all messages and rewards that the participants of a trial may send in one tick; further "
        "ones are dropped and counted",
        within=NOT_NEGATIVE,
        of="trial",
    )
    max_held_back_bytes: int = setting(
        16 * 1024 * 1024,
        "the size of the samples that a trial holds back for late rewards (`nb_buffered_ticks`), beyond those "
        "of the last two ticks; with more, the oldest leave early",
        within=NOT_NEGATIVE,
        of="trial",
    )
    max_all_held_back_bytes: int = setting(
        48 * 1024 * 1024,
        "the same for all trials together. Each that starts is promised a ninth of what is left",
        within=NOT_NEGATIVE,
        shared=Shared("samples that are held back", LOAN, STARTER, "the end of the trial"),
    )
    client_join_timeout_seconds: float = setting(
        60.0, "how long a client actor may take to send its first message", within=POSITIVE
    )
    watch_queue_entries: int = setting(
        16384, "the most entries that wait for a watcher; with more its call is ended", within=POSITIVE, of="watcher"
    )
    watch_queue_bytes: int = setting(
        4 * 1024 * 1024,
        "their total size; one entry of any size may always wait. The trials that are there when it begins to "
        "watch do not count",
        within=NOT_NEGATIVE,
        of="watcher",
    )
    watch_total_bytes: int = setting(
        32 * 1024 * 1024,
        "the size of what waits for all watchers; with more, those of the peer end for which most waits",
        within=NOT_NEGATIVE,
        shared=Shared(
            "bytes that wait for watchers",
            "those of the account end for which most waits",
            PEER,
            "reading, or the end of the call",
        ),
    )
    max_watchers: int = setting(
        4000,
        "how many watchers of trials there may be at a time",
        within=POSITIVE,
        shared=Shared("watchers", "max_peer_watchers", PEER, "the end of the call"),
    )
    max_peer_watchers: int = setting(1000, "how many of them one peer may have", within=POSITIVE)
    max_watched_trials: int = setting(
        10_000, "how many trials one watcher may name; without names it watches all", within=NOT_NEGATIVE, of="watcher"
    )
    max_info_reply_bytes: int = setting(
        4 * 1024 * 1024,
        "the size of one reply that describes trials to a peer; a larger one is refused, as clients would not "
        "accept it. One trial's description of any size is sent",
        within=NOT_NEGATIVE,
        of="message",
    )
    max_peer_replies_bytes: int = setting(
        16 * 1024 * 1024,
        "the size of all such replies that one peer has not been sent yet; further calls are refused",
        within=NOT_NEGATIVE,
        of="account",
    )
    max_trial_actors: int = setting(2000, "how many actors a trial may have", within=POSITIVE, of="trial")
    max_trial_endpoints: int = setting(
        256, "at how many different endpoints they may be; client actors are at none", within=POSITIVE, of="trial"
    )
    max_trials: int = setting(
        8000,
        "how many trials there may be at a time, without those that ended",
        within=POSITIVE,
        shared=Shared("trials", "max_peer_trials", STARTER, ENDED),
    )
    max_peer_trials: int = setting(
        2000,
        "how many of them one peer may have started; [limits.md](limits.md) says what a peer is. For those that "
        "this process starts only the limits for all hold",
        within=POSITIVE,
    )
    max_starting_trials: int = setting(
        2000,
        "how many trials may be starting at a time: hooks, the directory or the data log are waited for",
        within=POSITIVE,
        shared=Shared(
            "trials that start",
            "max_peer_starting_trials",
            STARTER,
            "the reply to StartTrial; hooks, the directory and the data log have time limits",
        ),
    )
    max_peer_starting_trials: int = setting(1000, "the same for one peer", within=POSITIVE)
    max_trials_bytes: int = setting(
        128 * 1024 * 1024,
        "about how much memory the parameters and participants of all these trials may take",
        within=NOT_NEGATIVE,
        shared=Shared("bytes of trials", "max_peer_trials_bytes", STARTER, ENDED),
    )
    max_peer_trials_bytes: int = setting(48 * 1024 * 1024, "the same for those of one peer", within=NOT_NEGATIVE)
    max_observations_bytes: int = setting(
        64 * 1024 * 1024,
        "the size of all latest observations of more than 32 KiB, which are kept for those who ask for them; "
        "without room only their tick and time are",
        within=NOT_NEGATIVE,
        shared=Shared(
            "bytes of latest observations",
            "max_peer_observations_bytes",
            STARTER,
            "the next observation, and the end of the trial",
        ),
    )
    max_peer_observations_bytes: int = setting(
        32 * 1024 * 1024, "the same for the trials of one peer", within=NOT_NEGATIVE
    )
    max_connecting: int = setting(
        256,
        "how many streams to participants elsewhere may be opening at a time; others wait their turn",
        within=POSITIVE,
        shared=Shared(
            "streams that are being opened",
            "max_peer_connecting",
            STARTER,
            "the participant's answer, or `rpc.connect_timeout_seconds`",
        ),
    )
    max_peer_connecting: int = setting(128, "the same for the trials of one peer", within=POSITIVE)
    max_properties_bytes: int = setting(
        64 * 1024,
        "the total size of the names and values of one trial's properties; every description of the trial "
        "contains them, and must fit into a message",
        within=NOT_NEGATIVE,
        of="trial",
    )
    max_ended_trials: int = setting(
        1000,
        "how many ended trials are remembered",
        within=NOT_NEGATIVE,
        shared=Shared(
            "ended trials",
            "the account that has most of them loses its oldest",
            STARTER,
            "`orchestrator.ended_trial_age_seconds`",
        ),
    )
    max_ended_trials_bytes: int = setting(
        24 * 1024 * 1024,
        "about how much memory these may take: properties, participants, how it ended",
        within=NOT_NEGATIVE,
        shared=Shared(
            "bytes of ended trials",
            "the account that has most of them loses its oldest",
            STARTER,
            "`orchestrator.ended_trial_age_seconds`",
        ),
    )
    ended_trial_age_seconds: float = setting(3600.0, "how long ended trials are remembered", within=NOT_NEGATIVE)
    gc_frequency: int | None = setting(
        None,
        "also forget all ended trials at every n-th start of a trial (0 or 1: at every start); by default never",
        within=NOT_NEGATIVE,
        flag=Flag("--gc_frequency", "COGMENT_GC_FREQUENCY", metavar="STARTS"),
        of="process",
    )


@record(kw_only=True)
class MetricsConfig(Settings):
    """How metrics are measured and served."""

    request_timeout_seconds: float = setting(
        10.0, "how long one HTTP connection may last, including request and response", within=POSITIVE
    )
    max_connections: int = setting(
        16,
        "connections served at the same time; further ones are closed at once",
        within=POSITIVE,
        shared=Shared(
            "connections for metrics",
            "max_peer_connections",
            "the address, unless it is on this machine",
            "the answer, or `metrics.request_timeout_seconds`",
        ),
    )
    max_peer_connections: int = setting(
        8, "how many of them one address may have, unless it is on this machine", within=POSITIVE
    )
    max_request_bytes: int = setting(16 * 1024, "a longer request head is refused (431)", within=POSITIVE, of="message")
    max_actor_classes: int = setting(
        100,
        "how many actor classes get metrics of their own; further ones share the label `other`",
        within=NOT_NEGATIVE,
        of="process",
    )
