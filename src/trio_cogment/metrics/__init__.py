"""What servers tell whoever measures them. Nothing here imports a metrics library: `metrics.prometheus` does.

Measuring is chosen by handing an implementation in; without one the code that would call it is not even there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class OrchestratorGauges:
    """An orchestrator at one moment.

    Attributes:
        trials: how many trials it knows, by the name of their state.
        queued_samples: samples waiting for their data logs.
        queued_messages: messages waiting for participants that do not read fast enough.
        lost_samples: samples that did not reach their data logs, of all trials so far.
    """

    trials: Mapping[str, int]
    queued_samples: int
    queued_messages: int
    lost_samples: int


class OrchestratorMetrics(Protocol):
    """Where an orchestrator's measurements go: called within ticks, so quick, and never raising."""

    def attach(self, read: Callable[[], OrchestratorGauges]) -> None:
        """Learn how to read what need not be counted all the time."""

    def tick_began(self) -> None:
        """Count an observation set that came from an environment."""

    def tick_answered(self, latency_seconds: float) -> None:
        """Take the time from an observation set to its action set."""

    def tick_lasted(self, seconds: float) -> None:
        """Take the time between two successive ordinary action sets of a trial."""

    def actor_acted(self, actor_class: str, latency_seconds: float) -> None:
        """Take the time from an observation being sent to the actor's action."""

    def participant_lost(self, kind: str) -> None:
        """Count a participant that was lost before the end; `kind` is `actor` or `environment`."""

    def samples_emitted(self, count: int) -> None:
        """Count samples on their way to a data log."""

    def trial_ended(self, seconds: float) -> None:
        """Take a trial's time from its creation to ENDED."""

    def collected(self, seconds: float) -> None:
        """Take the time it took to forget ended trials."""
