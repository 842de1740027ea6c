"""Settings of the trial datastore and the model registry."""

from __future__ import annotations

from dataclasses import fields

from trio_cogment._records import record
from trio_cogment.config._checks import SECONDS, SIZE, Range, check_ranges, names_of

_LARGE: Range = (1, 2**62)


@record(kw_only=True)
class DatastoreConfig:
    """How a trial datastore writes and reads, whatever its storage.

    Attributes:
        commit_samples: the most writes in one commit, of all streams together.
        commit_bytes: the most bytes in one commit.
        commit_delay_seconds: the longest time a write waits for others to be committed with it; less where commits
            are fast.
        max_pending_writes: the most writes that wait or are being committed; with more, streams wait.
        max_pending_bytes: their total size; one write of any size is always accepted.
        max_stream_writes: how many of these writes a single stream may have.
        abandoned_after_seconds: a trial whose data log has been disconnected for this long is marked as ended
            abnormally. A host that vanished is noticed within 30 s (`keepalive_seconds` and
            `keepalive_timeout_seconds`), so that with the default readers of its trials wait at most 60 s.
        abandoned_after_start_seconds: the same for trials that were open when the datastore started: their data logs
            may take 30 s to notice that the previous process is gone, and pause before they reconnect.
        page_samples: how many samples a reader's call reads from the storage at a time.
        page_bytes: their total size; one sample of any size is always read.
        max_trial_actors: how many actors a trial may have; one with more is not stored.
        max_request_trials: how many trials one request may name; more are refused. Without names all are meant.
        max_reading: how many calls may have read samples at a time that they have not sent; others wait their turn.
        max_peer_transfers: how many of them may be of one peer while others are free: a token, a certificate or an
            address, but not one on this machine.
        transfer_least_bytes: a call of whose samples fewer bytes were taken in `transfer_least_seconds` is ended when
            others wait.
        transfer_least_seconds: see `transfer_least_bytes`.
        max_reply_bytes: a larger reply with trials is refused, as the published SDK does not accept it.
        farewell_seconds: how long a datastore that stops may take to write what it has accepted.
        keep_trials: how many ended trials are kept, those that ended last; older ones are deleted. 0: all.
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
    max_trial_actors: int = 2000
    max_request_trials: int = 20_000
    max_reading: int = 16
    max_peer_transfers: int = 8
    transfer_least_bytes: int = 16 * 1024
    transfer_least_seconds: float = 1.0
    max_reply_bytes: int = 4 * 1024 * 1024
    farewell_seconds: float = 5.0
    keep_trials: int = 0

    def __post_init__(self) -> None:
        check_ranges(self, dict.fromkeys(names_of(self), SIZE) | _DATASTORE_RANGES)


#: So that a trial is marked as ended within a minute of its orchestrator's end.
_DATASTORE_RANGES: dict[str, Range] = {
    "commit_delay_seconds": (0.0, 60.0),
    "transfer_least_seconds": SECONDS,
    "abandoned_after_seconds": (0.001, 60.0),
    "abandoned_after_start_seconds": (0.001, 60.0),
    "farewell_seconds": (0.0, 60.0),
    "keep_trials": (0, SIZE[1]),
}


@record(kw_only=True)
class ModelRegistryConfig:
    """How a model registry stores and sends versions.

    Attributes:
        sent_version_chunk_bytes: the size of the chunks in which a version is sent; clients accept messages of 4 MiB
            unless configured otherwise.
        cache_max_items: the most versions that are kept without being archived, of all models together.
        cache_max_bytes: their total size, and separately that of all uploads in progress; a larger version is refused.
        max_metadata_bytes: the total size of the id and user data of one model or version; they must fit into one
            message.
        max_page_bytes: the approximate size of the descriptions in one reply; the rest is on the next page.
        max_uploads: how many versions are received at the same time; further uploads wait.
        max_downloads: how many versions are sent at the same time; further downloads wait.
        max_peer_transfers: how many of these slots, in each direction, one peer may have: a token, a certificate, or an
            address that is not on this machine.
        transfer_least_bytes: a transfer of which fewer bytes pass in `transfer_least_seconds` loses its slot when
            others wait for one.
        transfer_least_seconds: see there.
        transfer_stall_seconds: how long an upload or download may wait for its client to send or read a chunk.
        watch_queue_versions: how many versions wait for a client that follows a model; a slow client misses the oldest
            of them, never the newest.
        storage_threads: how many threads read and write at the same time.
    """

    sent_version_chunk_bytes: int = 2 * 1024 * 1024
    cache_max_items: int = 100
    cache_max_bytes: int = 128 * 1024 * 1024
    max_metadata_bytes: int = 1024 * 1024
    max_page_bytes: int = 2 * 1024 * 1024
    max_uploads: int = 32
    max_downloads: int = 32
    max_peer_transfers: int = 8
    transfer_least_bytes: int = 16 * 1024
    transfer_least_seconds: float = 1.0
    transfer_stall_seconds: float = 120.0
    watch_queue_versions: int = 256
    storage_threads: int = 4

    def __post_init__(self) -> None:
        ranges = {field.name: SECONDS if field.type == "float" else SIZE for field in fields(self)}
        check_ranges(self, ranges | {"cache_max_items": _LARGE, "cache_max_bytes": _LARGE})
