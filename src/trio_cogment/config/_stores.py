"""Settings of what keeps things: the trial datastore and the model registry."""

from __future__ import annotations

from dataclasses import dataclass, fields

from trio_cogment.config._checks import SECONDS, SIZE, Range, check_ranges

_LARGE: Range = (1, 2**62)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatastoreConfig:
    """How a trial datastore writes and reads, whatever its storage.

    Attributes:
        commit_samples: so many writes, of all streams together, are committed at once.
        commit_bytes: or so many bytes of them.
        commit_delay_seconds: or what there is so long after the first, at most: where commits are quick it is sooner.
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
        check_ranges(self, dict.fromkeys(self.__slots__, SIZE) | _DATASTORE_RANGES)


#: A trial is given up within a minute of its orchestrator's end.
_DATASTORE_RANGES: dict[str, Range] = {
    "commit_delay_seconds": (0.0, 60.0),
    "abandoned_after_seconds": (0.001, 60.0),
    "abandoned_after_start_seconds": (0.001, 60.0),
    "farewell_seconds": (0.0, 60.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRegistryConfig:
    """How a model registry keeps and hands out versions.

    Attributes:
        sent_version_chunk_bytes: how much of a version goes into one message to who retrieves it; clients take 4 MiB
            unless they were told otherwise.
        cache_max_items: versions that are not archived, of all models together, that are kept.
        cache_max_bytes: their bytes together, and again those of all that are being uploaded; a larger one is refused.
        max_metadata_bytes: the id and user data of one model or version, in total; they must fit into one message.
        max_page_bytes: descriptions in one reply, about; the rest is on the next page.
        max_uploads: versions that are received at a time; more wait for their turn.
        max_downloads: versions that are sent at a time; more wait for their turn.
        transfer_stall_seconds: how long an upload or download may wait for its client to send or take a chunk.
        watch_queue_versions: versions waiting for a client that follows a model; one that falls behind misses the
            oldest of them, never the newest.
        storage_threads: threads that read and write at a time.
    """

    sent_version_chunk_bytes: int = 2 * 1024 * 1024
    cache_max_items: int = 100
    cache_max_bytes: int = 256 * 1024 * 1024
    max_metadata_bytes: int = 1024 * 1024
    max_page_bytes: int = 2 * 1024 * 1024
    max_uploads: int = 32
    max_downloads: int = 32
    transfer_stall_seconds: float = 120.0
    watch_queue_versions: int = 256
    storage_threads: int = 4

    def __post_init__(self) -> None:
        ranges = {field.name: SECONDS if field.type == "float" else SIZE for field in fields(self)}
        check_ranges(self, ranges | {"cache_max_items": _LARGE, "cache_max_bytes": _LARGE})
