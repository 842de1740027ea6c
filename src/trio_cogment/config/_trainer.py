"""Settings of the trainer."""

from __future__ import annotations

from dataclasses import fields

from trio_cogment._records import record
from trio_cogment.config._checks import SECONDS, SECONDS_OR_NEVER, SIZE, Range, check_ranges


@record(kw_only=True)
class TrainerConfig:
    """How a trainer keeps its runs, and what it expects of workers and controllers.

    Attributes:
        commit_rows: with so many steps, episodes and changes of runs, of all runs together, there is a commit.
        max_commit_rows: the most of them in one.
        commit_delay_seconds: the longest time one of them waits for others to be committed with it.
        max_pending_rows: the most that wait or are being committed; with more, publishers wait.
        max_pending_bytes: their total size; one row of any size is always accepted.
        page_rows: how many rows a reader takes from the storage at a time.
        page_bytes: their total size; one row of any size is always read.
        recent_rows: how many of the latest steps, and as many episodes, are kept in memory for each run that goes on.
        kept_events: how many changes of runs are stored, for watchers that come back.
        max_config_characters: a longer configuration of a run is refused.
        max_workers: how many workers a run may have.
        heartbeat_timeout_seconds: a run whose workers were not heard for so long has failed; 0: never. Telemetry and
            registrations count as heartbeats.
        heartbeat_store_seconds: how old the stored time of a heartbeat may be.
        registration_timeout_seconds: a run has failed whose worker has not registered so long after its start; 0:
            never.
        cancel_seconds: how long a cancellation waits for the end of a run's processes and trials.
        credit_low: below so many credits a worker gets more.
        credit_high: the most credits that a worker has.
        credits_enforced: without a credit nothing is accepted from a worker that has a control stream.
        credits_fail_open: a worker whose control stream is lost may send without credits.
        credit_grace_seconds: how long a publisher without a credit is held back before its stream ends.
        interactive_weight: turns of interactive runs while workers of both classes wait for credits.
        batch_weight: turns of batch runs then.
        interactive_rate_hz: the most credits a second for all interactive runs together; 0: no limit.
        batch_rate_hz: the same for all batch runs.
        pause_grace_seconds: how long a publisher to a paused run is held back before its stream ends.
        pause_ack_seconds: how long a pause waits for workers that can pause to say that they do.
        token_required: who publishes sends the token of a registration.
        controller_secret: who controls runs sends it as the metadata `controller-secret`; empty: nobody needs to.
        retention_seconds: how long an ended run is kept, with its steps and episodes; 0: no limit.
        farewell_seconds: how long a trainer that stops may take to store what it has accepted.
    """

    commit_rows: int = 256
    max_commit_rows: int = 4096
    commit_delay_seconds: float = 0.05
    max_pending_rows: int = 8192
    max_pending_bytes: int = 16 * 1024 * 1024
    page_rows: int = 500
    page_bytes: int = 512 * 1024
    recent_rows: int = 1024
    kept_events: int = 100_000
    max_config_characters: int = 1024 * 1024
    max_workers: int = 1024
    heartbeat_timeout_seconds: float = 300.0
    heartbeat_store_seconds: float = 5.0
    registration_timeout_seconds: float = 60.0
    cancel_seconds: float = 10.0
    credit_low: int = 100
    credit_high: int = 500
    credits_enforced: bool = True
    credits_fail_open: bool = True
    credit_grace_seconds: float = 2.0
    interactive_weight: int = 3
    batch_weight: int = 1
    interactive_rate_hz: float = 0.0
    batch_rate_hz: float = 0.0
    pause_grace_seconds: float = 0.2
    pause_ack_seconds: float = 2.0
    token_required: bool = False
    controller_secret: str = ""
    retention_seconds: float = 0.0
    farewell_seconds: float = 5.0

    def __post_init__(self) -> None:
        kinds = {"int": SIZE, "float": SECONDS}
        check_ranges(self, {field.name: kinds[str(field.type)] for field in fields(self) if field.type in kinds} | _ODD)
        if self.credit_low > self.credit_high:
            raise ValueError(f"credit_low: expected 1 to {self.credit_high} (credit_high), got {self.credit_low}")


@record(kw_only=True)
class WorkersConfig:
    """How the processes of workers are treated.

    Attributes:
        term_seconds: how long processes may take to end after SIGTERM; then they get SIGKILL.
        kill_seconds: how long it is waited for them then.
        drain_seconds: how long the end of a worker's output is waited for when its processes have ended.
        heartbeat_seconds: how often a worker that sends no heartbeats is taken for alive because its process is.
        max_line_bytes: a longer line of standard output is left out.
        max_log_bytes: of each of a worker's two log files.
        error_lines: so many of the last lines of standard error are kept with a run that failed.
        token_days: how long a worker's access token counts at other servers of the platform; at the trainer's it
            ends with the run.
    """

    term_seconds: float = 5.0
    kill_seconds: float = 2.0
    drain_seconds: float = 1.0
    heartbeat_seconds: float = 10.0
    max_line_bytes: int = 16 * 1024 * 1024
    max_log_bytes: int = 64 * 1024 * 1024
    error_lines: int = 20
    token_days: float = 30.0

    def __post_init__(self) -> None:
        kinds = {"int": SIZE, "float": SECONDS}
        check_ranges(self, {field.name: kinds[str(field.type)] for field in fields(self)} | {"term_seconds": _GRACE})


_GRACE: Range = (0.0, 3600.0)
_RATE: Range = (0.0, 10.0**9)
_ODD: dict[str, Range] = {
    "commit_delay_seconds": (0.0, 60.0),
    "heartbeat_timeout_seconds": SECONDS_OR_NEVER,
    "registration_timeout_seconds": SECONDS_OR_NEVER,
    "retention_seconds": SECONDS_OR_NEVER,
    "interactive_rate_hz": _RATE,
    "batch_rate_hz": _RATE,
    "credit_grace_seconds": (0.0, 60.0),
    "pause_grace_seconds": (0.0, 60.0),
    "pause_ack_seconds": (0.0, 60.0),
    "farewell_seconds": (0.0, 60.0),
}
