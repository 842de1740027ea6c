"""The limits that all callers of a server meet together, each with the share that one account has of it.

A limit for all alone is one that the first who comes takes from all others. So whoever adds one writes down here which
part of it one account may have, whose it counts as, and what gives it back. `docs/limits.md` has this list as a table,
and a test looks that no setting is missing: what is not here is in `OF_ONE`, with the one thing that it limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit.

    Attributes:
        what: is limited.
        setting: of the limit for all, as in the configuration file: `section.key`.
        share: the setting of what one account may have; or in words what keeps one from having all of it.
        owner: whose account it counts for.
        freed: what gives it back.
    """

    what: str
    setting: str
    share: str
    owner: str
    freed: str


_STARTER = "whoever has started the trial; a lobby's trials: the lobby"
_ENDED = "the end of the trial: its participants have gone, its times are over, or a lobby's people have left"
_PEER = "the caller"
_CLOSED = "the end of the connection: when it is closed, silent for too long, or its token is revoked"
_LOAN = "a ninth of what is free, whatever the others have"
_TURNS = "others wait, and go in turn"

LIMITS = (
    Limit("trials", "orchestrator.max_trials", "orchestrator.max_peer_trials", _STARTER, _ENDED),
    Limit(
        "trials that start",
        "orchestrator.max_starting_trials",
        "orchestrator.max_peer_starting_trials",
        _STARTER,
        "the reply to StartTrial; hooks, the directory and the data log have time limits",
    ),
    Limit("bytes of trials", "orchestrator.max_trials_bytes", "orchestrator.max_peer_trials_bytes", _STARTER, _ENDED),
    Limit(
        "bytes of latest observations",
        "orchestrator.max_observations_bytes",
        "orchestrator.max_peer_observations_bytes",
        _STARTER,
        "the next observation, and the end of the trial",
    ),
    Limit(
        "samples that are held back",
        "orchestrator.max_all_held_back_bytes",
        _LOAN,
        _STARTER,
        "the end of the trial",
    ),
    Limit(
        "streams that are being opened",
        "orchestrator.max_connecting",
        "orchestrator.max_peer_connecting",
        _STARTER,
        "the participant's answer, or `rpc.connect_timeout_seconds`",
    ),
    Limit(
        "ended trials",
        "orchestrator.max_ended_trials",
        "the account that has most of them loses its oldest",
        _STARTER,
        "`orchestrator.ended_trial_age_seconds`",
    ),
    Limit(
        "bytes of ended trials",
        "orchestrator.max_ended_trials_bytes",
        "the account that has most of them loses its oldest",
        _STARTER,
        "`orchestrator.ended_trial_age_seconds`",
    ),
    Limit("watchers", "orchestrator.max_watchers", "orchestrator.max_peer_watchers", _PEER, "the end of the call"),
    Limit(
        "bytes that wait for watchers",
        "orchestrator.watch_total_bytes",
        "those of the account end for which most waits",
        _PEER,
        "reading, or the end of the call",
    ),
    Limit(
        "connections",
        "rpc.max_connections",
        "rpc.max_peer_connections",
        "the caller, unless it is a program of this machine without a token",
        _CLOSED,
    ),
    Limit(
        "calls",
        "rpc.max_calls",
        "a connection may have as many as are free",
        "the connection",
        "the end of the call or of its connection",
    ),
    Limit("bytes that wait", "rpc.server_memory_bytes", _LOAN, "the connection, trial or data log", "reading them"),
    Limit("connections of browsers", "web.max_connections", "rpc.max_peer_connections", "as above", _CLOSED),
    Limit(
        "connections for metrics",
        "metrics.max_connections",
        "metrics.max_peer_connections",
        "the address, unless it is on this machine",
        "the answer, or `metrics.request_timeout_seconds`",
    ),
    Limit(
        "worlds of dm_env_rpc",
        "dm_env_rpc.max_worlds",
        "dm_env_rpc.max_peer_worlds",
        "whoever has created the world",
        "DestroyWorld; nobody in it for `world_idle_seconds`, or `dm_env_rpc.abandoned_seconds` after the last "
        "connection of whoever has created it",
    ),
    Limit(
        "connections of dm_env_rpc",
        "dm_env_rpc.max_connections",
        "dm_env_rpc.max_peer_connections",
        _PEER,
        _CLOSED,
    ),
    Limit(
        "sockets of OpenEnv",
        "openenv.max_sockets",
        "openenv.max_peer_sockets",
        _PEER,
        f"{_CLOSED}; `openenv.idle_seconds` in the client's turn",
    ),
    Limit(
        "seats by REST",
        "web_proxy.max_seats",
        "web_proxy.max_peer_seats",
        "whoever has started the trial by REST; all other trials: one account",
        "the end of the trial, `leave`, a revoked token; `web_proxy.idle_seconds` in the actor's turn",
    ),
    Limit(
        "people in a lobby",
        "lobby.most",
        "who is here takes the place of who is away; connections have shares",
        "the page",
        "the way out; `lobby.away_seconds` after the page has gone",
    ),
    Limit(
        "trials of a lobby",
        "lobby.most_trials",
        "as many as there are people who are ready and here",
        "the lobby",
        "nobody is there: at once when nobody comes (`lobby.take_up_seconds`) or all have left, else "
        "`play.empty_seconds` after the grace",
    ),
    Limit(
        "finished seats of people",
        "play.max_finished_seats",
        "the oldest are forgotten: nothing but a last look is lost",
        "this process",
        "the next ones",
    ),
    Limit(
        "bytes of finished seats",
        "play.max_finished_bytes",
        "the oldest are forgotten; nothing is kept of a seat that nobody has taken",
        "this process",
        "the next ones",
    ),
    Limit(
        "registrations",
        "directory_server.max_entries",
        "directory_server.max_owner_entries",
        "whoever has registered it",
        "Deregister; for those that are checked, checks that fail",
    ),
    Limit(
        "bytes of registrations",
        "directory_server.max_total_bytes",
        "directory_server.max_owner_bytes",
        "whoever has registered it",
        "as above",
    ),
    Limit("changes that wait", "directory_server.max_pending_changes", _TURNS, _PEER, "writing the file"),
    Limit("health checks", "directory_server.max_concurrent_checks", _TURNS, "the service", "the check's time limit"),
    Limit(
        "reads of samples",
        "datastore.max_reading",
        "datastore.max_peer_transfers",
        "the caller, or the connection of a program of this machine without a token",
        "taking them: `transfer_least_bytes` in `transfer_least_seconds` when others wait",
    ),
    Limit(
        "writes that wait", "datastore.max_pending_writes", "datastore.max_stream_writes", "the stream", "the commit"
    ),
    Limit(
        "bytes of writes that wait",
        "datastore.max_pending_bytes",
        f"one write of any size; {_TURNS}",
        "the stream",
        "the commit",
    ),
    Limit(
        "ended trials that are stored",
        "datastore.keep_trials",
        "none: the oldest are deleted, whoever's they are; off by default",
        "whoever has started the trial",
        "the next ones, DeleteTrials",
    ),
    Limit(
        "uploads of models",
        "model_registry.max_uploads",
        "model_registry.max_peer_transfers",
        "the caller, or the connection of a program of this machine without a token",
        "its end; a slow one loses its place when others wait",
    ),
    Limit(
        "downloads of models",
        "model_registry.max_downloads",
        "model_registry.max_peer_transfers",
        "as above",
        "as above",
    ),
    Limit(
        "versions in memory",
        "model_registry.cache_max_items",
        "the account that has most of them loses its oldest",
        "the owner of the model",
        "newer ones",
    ),
    Limit(
        "bytes of versions in memory",
        "model_registry.cache_max_bytes",
        "the account that has most of them loses its oldest; uploads have `model_registry.max_peer_transfers`",
        "the owner of the model",
        "newer ones",
    ),
    Limit("rows that wait", "trainer.max_pending_rows", "trainer.credit_high", "the worker of a run", "the commit"),
    Limit(
        "bytes of rows that wait",
        "trainer.max_pending_bytes",
        f"one row of any size; {_TURNS}",
        "the worker of a run",
        "the commit",
    ),
    Limit(
        "changes of runs that are kept",
        "trainer.kept_events",
        "the oldest are forgotten: who comes back later sees the runs as they are",
        "whoever may submit runs: administrators",
        "the next ones",
    ),
)

#: The settings that limit one thing, by that thing; `process`: what a server does of its own.
OF_ONE: Mapping[str, tuple[str, ...]] = {
    "trial": (
        "orchestrator.max_queued_samples",
        "orchestrator.max_tick_messages_bytes",
        "orchestrator.max_held_back_bytes",
        "orchestrator.max_trial_actors",
        "orchestrator.max_trial_endpoints",
        "orchestrator.max_properties_bytes",
        "datastore.max_trial_actors",
    ),
    "participant": ("orchestrator.max_outbox_messages", "orchestrator.max_outbox_bytes", "web_proxy.max_unread_bytes"),
    "watcher": (
        "orchestrator.watch_queue_entries",
        "orchestrator.watch_queue_bytes",
        "orchestrator.max_watched_trials",
        "model_registry.watch_queue_versions",
    ),
    "account": (
        "orchestrator.max_peer_replies_bytes",
        "rpc.max_peer_connects",
        "rpc.max_peer_calls_per_second",
        "rpc.peer_call_burst",
        "rpc.max_peer_resets",
        "directory_server.max_duplicates",
    ),
    "message": (
        "orchestrator.max_info_reply_bytes",
        "rpc.max_receive_message_bytes",
        "rpc.max_message_entries",
        "rpc.max_send_message_bytes",
        "rpc.max_frame_bytes",
        "rpc.max_header_list_bytes",
        "web.max_head_bytes",
        "web.max_page_message_bytes",
        "web_proxy.max_body_bytes",
        "openenv.max_message_bytes",
        "play.max_page_message_bytes",
        "play.max_blob_bytes",
        "metrics.max_request_bytes",
        "datastore.max_request_trials",
        "datastore.max_reply_bytes",
        "directory_server.max_entry_bytes",
        "model_registry.max_metadata_bytes",
        "model_registry.max_page_bytes",
        "model_registry.sent_version_chunk_bytes",
        "trainer.max_config_characters",
        "workers.max_line_bytes",
    ),
    "call": (
        "rpc.stream_window_bytes",
        "rpc.call_outbox_messages",
        "rpc.call_outbox_bytes",
        "datastore.page_samples",
        "datastore.page_bytes",
        "datastore.transfer_least_bytes",
        "model_registry.transfer_least_bytes",
        "trainer.page_rows",
        "trainer.page_bytes",
    ),
    "connection": (
        "rpc.max_concurrent_streams",
        "rpc.connection_window_bytes",
        "rpc.connection_memory_bytes",
        "rpc.write_high_water_bytes",
        "rpc.max_control_output_bytes",
        "rpc.max_resets",
        "rpc.max_pings",
        "rpc.max_settings",
        "rpc.max_empty_frames",
        "web.write_high_water_bytes",
        "dm_env_rpc.max_kept_messages",
        "play.page_burst",
        "play.max_notices",
    ),
    "run": ("trainer.recent_rows", "trainer.max_workers", "workers.max_log_bytes", "workers.error_lines"),
    "worker": ("trainer.credit_low",),
    "service": ("directory_server.max_failures",),
    "process": (
        "orchestrator.gc_frequency",
        "rpc.reserved_descriptors",
        "rpc.max_channel_connections",
        "metrics.max_actor_classes",
        "datastore.commit_samples",
        "datastore.commit_bytes",
        "model_registry.storage_threads",
        "trainer.commit_rows",
        "trainer.max_commit_rows",
        "trainer.interactive_weight",
        "trainer.batch_weight",
    ),
    "lobby": ("lobby.seats", "lobby.fewest"),
}
