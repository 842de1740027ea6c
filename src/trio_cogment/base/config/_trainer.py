"""Settings of the trainer."""

from __future__ import annotations

from trio_cogment.base.config.declarations import (
    MINUTE_OR_NONE,
    SECONDS_OR_NEVER,
    Flag,
    Settings,
    Shared,
    check_settings,
    setting,
)
from trio_cogment.base.records import record


@record(kw_only=True)
class TrainerConfig:
    """How a trainer keeps its runs, and what it expects of workers and controllers."""

    commit_rows: int = setting(
        256, "with this many steps, episodes and changes of runs, of all runs together, there is a commit", of="process"
    )
    max_commit_rows: int = setting(4096, "the most of them in one", of="process")
    commit_delay_seconds: float = setting(
        0.05, "the longest time one of them waits for others to be committed with it", within=MINUTE_OR_NONE
    )
    max_pending_rows: int = setting(
        8192,
        "the most that wait or are being committed; with more, publishers wait",
        shared=Shared("rows that wait", "credit_high", "the worker of a run", "the commit"),
    )
    max_pending_bytes: int = setting(
        16 * 1024 * 1024,
        "their total size; one row of any size is always accepted",
        shared=Shared(
            "bytes of rows that wait",
            "one row of any size; others wait, and go in turn",
            "the worker of a run",
            "the commit",
        ),
    )
    page_rows: int = setting(500, "how many rows a reader takes from the storage at a time", of="call")
    page_bytes: int = setting(512 * 1024, "their total size; one row of any size is always read", of="call")
    recent_rows: int = setting(
        1024,
        "how many of the latest steps, and as many episodes, are kept in memory for each run that goes on",
        of="run",
    )
    kept_events: int = setting(
        100_000,
        "how many changes of runs are stored, for watchers that come back",
        shared=Shared(
            "changes of runs that are kept",
            "the oldest are forgotten: who comes back later sees the runs as they are",
            "whoever may submit runs: administrators",
            "the next ones",
        ),
    )
    max_config_characters: int = setting(1024 * 1024, "a longer configuration of a run is refused", of="message")
    max_workers: int = setting(1024, "how many workers a run may have", of="run")
    heartbeat_timeout_seconds: float = setting(
        300.0,
        "a run whose workers were not heard for so long has failed; 0: never. Telemetry and registrations count "
        "as heartbeats",
        within=SECONDS_OR_NEVER,
    )
    heartbeat_store_seconds: float = setting(5.0, "how old the stored time of a heartbeat may be")
    registration_timeout_seconds: float = setting(
        60.0,
        "a run has failed whose worker has not registered so long after its start; 0: never",
        within=SECONDS_OR_NEVER,
    )
    cancel_seconds: float = setting(10.0, "how long a cancellation waits for the end of a run's processes and trials")
    credit_low: int = setting(100, "below this many credits a worker gets more", of="worker")
    credit_high: int = setting(500, "the most credits that a worker has")
    credits_enforced: bool = setting(
        True,
        "without a credit nothing is accepted from a worker that has a control stream",
        flag=Flag(
            "--credits",
            "COGMENT_TRAINER_CREDITS",
            choices={"enforced": True, "advisory": False},
            text="Whether workers with a control stream need credits to send; the default is enforced.",
        ),
    )
    credits_fail_open: bool = setting(True, "a worker whose control stream is lost may send without credits")
    credit_grace_seconds: float = setting(
        2.0, "how long a publisher without a credit is held back before its stream ends", within=MINUTE_OR_NONE
    )
    interactive_weight: int = setting(
        3, "turns of interactive runs while workers of both classes wait for credits", of="process"
    )
    batch_weight: int = setting(1, "turns of batch runs then", of="process")
    interactive_rate_hz: float = setting(
        0.0, "the most credits a second for all interactive runs together; 0: no limit", within=SECONDS_OR_NEVER
    )
    batch_rate_hz: float = setting(0.0, "the same for all batch runs", within=SECONDS_OR_NEVER)
    pause_grace_seconds: float = setting(
        0.2, "how long a publisher to a paused run is held back before its stream ends", within=MINUTE_OR_NONE
    )
    pause_ack_seconds: float = setting(
        2.0, "how long a pause waits for workers that can pause to say that they do", within=MINUTE_OR_NONE
    )
    token_required: bool = setting(False, "who publishes sends the token of a registration")
    controller_secret: str = setting(
        "", "who controls runs sends it as the metadata `controller-secret`; empty: nobody needs to"
    )
    retention_seconds: float = setting(
        0.0, "how long an ended run is kept, with its steps and episodes; 0: no limit", within=SECONDS_OR_NEVER
    )
    farewell_seconds: float = setting(
        5.0, "how long a trainer that stops may take to store what it has accepted", within=MINUTE_OR_NONE
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.credit_low > self.credit_high:
            raise ValueError(f"credit_low: expected 1 to {self.credit_high} (credit_high), got {self.credit_low}")


@record(kw_only=True)
class WorkersConfig(Settings):
    """How the processes of workers are treated."""

    term_seconds: float = setting(
        5.0, "how long processes may take to end after SIGTERM; then they get SIGKILL", within=(0.0, 3600.0)
    )
    kill_seconds: float = setting(2.0, "how long it is waited for them then")
    drain_seconds: float = setting(
        1.0, "how long the end of a worker's output is waited for when its processes have ended"
    )
    heartbeat_seconds: float = setting(
        10.0, "how often a worker that sends no heartbeats is taken for alive because its process is"
    )
    max_line_bytes: int = setting(16 * 1024 * 1024, "a longer line of standard output is left out", of="message")
    max_log_bytes: int = setting(64 * 1024 * 1024, "of each of a worker's two log files", of="run")
    error_lines: int = setting(
        20, "the maximum number of last lines of standard error that are kept with a run that failed", of="run"
    )
    token_days: float = setting(
        30.0,
        "how long a worker's [access token](security.md#tokens-of-workers) counts at other servers of the "
        "platform; at the trainer's it ends with the run",
    )
