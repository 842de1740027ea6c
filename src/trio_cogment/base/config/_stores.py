"""Settings of the trial datastore and the model registry."""

from __future__ import annotations

from trio_cogment.base.config.declarations import LARGE, MINUTE, MINUTE_OR_NONE, Flag, Settings, Shared, setting
from trio_cogment.base.records import record


@record(kw_only=True)
class DatastoreConfig(Settings):
    """How a trial datastore writes and reads, whatever its storage."""

    commit_samples: int = setting(
        500,
        "so many writes, of all streams together, are committed at once. A commit has up to four times as many, where "
        "they came while the one before was under way",
        of="process",
    )
    commit_bytes: int = setting(4 * 1024 * 1024, "the most bytes in one commit", of="process")
    commit_delay_seconds: float = setting(
        0.02,
        "the longest time a write waits for others to be committed with it; less where commits are fast",
        within=MINUTE_OR_NONE,
    )
    max_pending_writes: int = setting(
        4096,
        "the most writes that wait or are being committed; with more, streams wait",
        shared=Shared("writes that wait", "max_stream_writes", "the stream", "the commit"),
    )
    max_pending_bytes: int = setting(
        16 * 1024 * 1024,
        "their total size; one write of any size is always accepted",
        shared=Shared(
            "bytes of writes that wait",
            "one write of any size; others wait, and go in turn",
            "the stream",
            "the commit",
        ),
    )
    max_stream_writes: int = setting(
        700,
        "how many of these writes a single stream may have. In process it is what the orchestrator keeps of a "
        "trial (`max_queued_samples`)",
    )
    abandoned_after_seconds: float = setting(
        25.0,
        "a trial whose data log has been disconnected for this long is marked as ended abnormally. A host that "
        "vanished is noticed within 30 s (`keepalive_seconds` and `keepalive_timeout_seconds`), so that with "
        "the default readers of its trials wait at most 60 s. Where orchestrators elsewhere go on with trials "
        "(`resume`) nobody takes one over before that; at least 10, so that two never play it",
        within=MINUTE,
    )
    abandoned_after_start_seconds: float = setting(
        45.0,
        "the same for trials that were open when the datastore started: their data logs may take 30 s to notice "
        "that the previous process is gone, and pause before they reconnect",
        within=MINUTE,
    )
    resumable_seconds: float = setting(
        600.0,
        "a trial of an orchestrator elsewhere that goes on with trials (`resume`) is kept for so long after that, for "
        "this orchestrator or another one, before it is marked as ended abnormally: long enough for a machine to start",
        within=(0.0, 86400.0),
    )
    page_samples: int = setting(500, "how many samples a reader's call reads from the storage at a time", of="call")
    page_bytes: int = setting(512 * 1024, "their total size; one sample of any size is always read", of="call")
    max_trial_actors: int = setting(2000, "how many actors a trial may have; one with more is not stored", of="trial")
    max_request_trials: int = setting(
        20_000, "how many trials one request may name; more are refused. Without names all are meant", of="message"
    )
    max_reading: int = setting(
        16,
        "how many calls may have read samples at a time that they have not sent; others wait their turn",
        shared=Shared(
            "reads of samples",
            "max_peer_transfers",
            "the caller, or the connection of a program of this machine without a token",
            "taking them: `transfer_least_bytes` in `transfer_least_seconds` when others wait",
        ),
    )
    max_peer_transfers: int = setting(
        8,
        "how many of them may be of one peer while others are free: a token, a certificate or an address, but "
        "not one on this machine",
    )
    transfer_least_bytes: int = setting(
        16 * 1024,
        "a call of whose samples fewer bytes were taken in `transfer_least_seconds` is ended when others wait",
        of="call",
    )
    transfer_least_seconds: float = setting(1.0, "the time in which `transfer_least_bytes` have to be taken")
    max_reply_bytes: int = setting(
        4 * 1024 * 1024, "a larger reply with trials is refused, as the published SDK does not accept it", of="message"
    )
    farewell_seconds: float = setting(
        5.0, "how long a datastore that stops may take to write what it has accepted", within=MINUTE_OR_NONE
    )
    keep_trials: int = setting(
        0,
        "how many ended trials are kept, those that ended last; older ones are deleted. 0: all",
        within=(0, 2**31 - 1),
        flag=Flag("--keep_trials", "COGMENT_TRIAL_DATASTORE_KEEP_TRIALS", metavar="TRIALS"),
        shared=Shared(
            "ended trials that are stored",
            "none: the oldest are deleted, whoever's they are; off by default",
            "whoever has started the trial",
            "the next ones, DeleteTrials",
        ),
    )


@record(kw_only=True)
class ModelRegistryConfig(Settings):
    """How a model registry stores and sends versions."""

    sent_version_chunk_bytes: int = setting(
        2 * 1024 * 1024,
        "the size of the chunks in which a version is sent; clients accept messages of 4 MiB unless configured "
        "otherwise",
        flag=Flag(
            "--sent_version_chunk_size", "COGMENT_MODEL_REGISTRY_SENT_MODEL_VERSION_DATA_CHUNK_SIZE", metavar="BYTES"
        ),
        of="message",
    )
    cache_max_items: int = setting(
        100,
        "how many versions are kept without being archived, of all models together",
        within=LARGE,
        flag=Flag("--cache_max_items", "COGMENT_MODEL_REGISTRY_VERSION_CACHE_MAX_ITEMS", metavar="VERSIONS"),
        shared=Shared(
            "versions in memory",
            "the account that has most of them loses its oldest",
            "the owner of the model",
            "newer ones",
        ),
    )
    cache_max_bytes: int = setting(
        128 * 1024 * 1024,
        "their total size, and separately that of all uploads in progress; a larger version is refused",
        within=LARGE,
        shared=Shared(
            "bytes of versions in memory",
            "the account that has most of them loses its oldest; uploads have `model_registry.max_peer_transfers`",
            "the owner of the model",
            "newer ones",
        ),
    )
    max_metadata_bytes: int = setting(
        1024 * 1024,
        "the total size of the id and user data of one model or version; they must fit into one message",
        of="message",
    )
    max_page_bytes: int = setting(
        2 * 1024 * 1024,
        "the approximate size of the descriptions in one reply; the rest is on the next page",
        of="message",
    )
    max_uploads: int = setting(
        32,
        "how many versions are received at the same time; further uploads wait",
        shared=Shared(
            "uploads of models",
            "max_peer_transfers",
            "the caller, or the connection of a program of this machine without a token",
            "its end; a slow one loses its place when others wait",
        ),
    )
    max_downloads: int = setting(
        32,
        "how many versions are sent at the same time; further downloads wait",
        shared=Shared("downloads of models", "max_peer_transfers", "as above", "as above"),
    )
    max_peer_transfers: int = setting(
        8,
        "how many of these slots, in each direction, one peer may have: a token, a certificate, or an address "
        "that is not on this machine",
    )
    transfer_least_bytes: int = setting(
        16 * 1024,
        "a transfer of which fewer bytes pass in `transfer_least_seconds` loses its slot when others wait for one",
        of="call",
    )
    transfer_least_seconds: float = setting(1.0, "the time in which `transfer_least_bytes` have to pass")
    transfer_stall_seconds: float = setting(
        120.0, "how long an upload or download may wait for its client to send or read a chunk"
    )
    watch_queue_versions: int = setting(
        256,
        "how many versions wait for a client that follows a model; a slow client misses the oldest of them, "
        "never the newest",
        of="watcher",
    )
    storage_threads: int = setting(4, "how many threads read and write at the same time", of="process")
