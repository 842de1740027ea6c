"""The interface between servers and metrics. Only `metrics.prometheus` and its siblings import a metrics library.

A server measures only if it is given an implementation; without one, the measuring code is not even called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from trio_cogment.base.records import record

__all__ = [
    "ModelMetrics",
    "OrchestratorGauges",
    "OrchestratorMetrics",
    "ParticipantMetrics",
    "RunFigures",
    "SessionMetrics",
    "TrainerGauges",
    "TrainerMetrics",
]


@record()
class OrchestratorGauges:
    """An orchestrator at one moment.

    Attributes:
        trials: how many trials it knows, by the name of their state.
        queued_samples: samples waiting for their data logs.
        queued_messages: messages waiting for participants that do not read fast enough.
        lost_samples: samples that did not reach their data logs, of all trials so far.
        oldest_waiting_seconds: how long the oldest of the trials lasts that wait for their start, which are
            INITIALIZING or PENDING; 0: none does.
        longest_silence_seconds: how long nothing has happened in the RUNNING trial where that is longest, beside
            heartbeats; 0: none is running. A trial that waits for its data log is not among them.
        data_logs_away: trials whose data logs take no samples now.
    """

    trials: Mapping[str, int]
    queued_samples: int
    queued_messages: int
    lost_samples: int
    oldest_waiting_seconds: float = 0.0
    longest_silence_seconds: float = 0.0
    data_logs_away: int = 0


class OrchestratorMetrics(Protocol):
    """Receives the measurements of an orchestrator. The methods run within ticks: they are fast and never raise."""

    def attach(self, read: Callable[[], OrchestratorGauges]) -> None:
        """Set the function that reads the gauges when the metrics are collected."""

    def tick_began(self) -> None:
        """Count an observation set received from an environment."""

    def tick_answered(self, latency_seconds: float) -> None:
        """Record the time from an observation set to its action set."""

    def tick_lasted(self, seconds: float) -> None:
        """Record the time between two successive ordinary action sets of a trial."""

    def actor_acted(self, actor_class: str, latency_seconds: float) -> None:
        """Record the time from sending an observation to the actor's action."""

    def participant_lost(self, kind: str) -> None:
        """Count a participant that was lost before the end; `kind` is `actor` or `environment`."""

    def samples_emitted(self, count: int) -> None:
        """Count samples on their way to a data log."""

    def rate_kept(self, missed_ticks: int, late_actions: int, absent_actions: int) -> None:
        """Count what has gone wrong in a trial with ticks at a rate; see `TickRate` in the API."""

    def trial_ended(self, seconds: float) -> None:
        """Record the time from a trial's creation to ENDED."""

    def collected(self, seconds: float) -> None:
        """Record how long forgetting ended trials took."""


@record()
class RunFigures:
    """A run of a trainer at one moment. All but the last two count from the trainer's start.

    Attributes:
        credits_granted: credits that its workers were given.
        credits_consumed: steps and episodes accepted.
        grants_sent: how many grants.
        pauses: how often it was paused.
        resumes: how often it went on.
        drops_due_to_credit: messages that were refused because there was no credit.
        current_outstanding: credits that its workers have left.
        ingest_rate_hz: steps and episodes accepted a second, of late.
    """

    credits_granted: int
    credits_consumed: int
    grants_sent: int
    pauses: int
    resumes: int
    drops_due_to_credit: int
    current_outstanding: int
    ingest_rate_hz: float


@record()
class TrainerGauges:
    """A trainer at one moment.

    Attributes:
        runs: how many runs it knows, by the name of their status.
        active: those that have not ended, by their ids.
    """

    runs: Mapping[str, int]
    active: Mapping[str, RunFigures]


class TrainerMetrics(Protocol):
    """Receives the measurements of a trainer."""

    def attach(self, read: Callable[[], TrainerGauges]) -> None:
        """Set the function that reads them when the metrics are collected."""


class SessionMetrics(Protocol):
    """Receives the measurements of one participant in one trial. The methods are fast and never raise."""

    def message_received(self) -> None:
        """Count a message received."""

    def message_sent(self) -> None:
        """Count a message sent, once for each receiver that was named."""

    def reward_received(self, value: float) -> None:
        """Count a reward received."""

    def ended(self, seconds: float, tick_id: int) -> None:
        """Record how long the implementation ran, and the last tick that it saw."""


class ParticipantMetrics(Protocol):
    """Receives the measurements of participants."""

    def actor_started(self, name: str, implementation: str) -> SessionMetrics:
        """Count an actor that starts in a trial; return what takes the measurements of its session."""

    def environment_started(self, implementation: str) -> SessionMetrics:
        """Count an environment that starts in a trial; return what takes the measurements of its session."""


class ModelMetrics(Protocol):
    """Receives the measurements of a client of a model registry."""

    def model_published(self, name: str, seconds: float) -> None:
        """Record how long sending a version took."""

    def model_retrieved(self, name: str, seconds: float) -> None:
        """Record how long retrieving a version took."""
