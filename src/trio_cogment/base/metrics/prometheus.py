"""Metrics for Prometheus, in a registry of their own: two servers in one process do not share them.

What is measured in every tick is summed up in `_figures`, and made into the library's metrics when it is collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from trio_cogment.base.config import MetricsConfig
from trio_cogment.base.metrics import OrchestratorGauges
from trio_cogment.base.metrics._figures import Distribution, Sum

#: Stands for every class of actors beyond `MetricsConfig.max_actor_classes`.
OTHER_CLASSES = "other"

_PREFIX = "orchestrator_"


def new_registry() -> CollectorRegistry:
    """Return a registry with the metrics of the process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


class PrometheusMetrics:
    """An orchestrator's metrics; `docs/operations.md` lists them.

    Args:
        config: limits on the number of labels.
        registry: the registry to register with; one from `new_registry` by default.

    Attributes:
        registry: the registry that an endpoint serves.
    """

    def __init__(self, config: MetricsConfig | None = None, *, registry: CollectorRegistry | None = None) -> None:
        self.registry = new_registry() if registry is None else registry
        self.trial_durations, self.tick_durations, self.collections = Sum(), Sum(), Sum()
        self.tick_latencies = Distribution()
        self.actor_latencies: dict[str, Distribution] = {}
        self.ticks = 0
        self.samples = 0
        self.missed_ticks = self.late_actions = self.absent_actions = 0
        self.lost = {"actor": 0, "environment": 0}
        self.read: Callable[[], OrchestratorGauges] | None = None
        self._most_classes = (config or MetricsConfig()).max_actor_classes
        self.trial_ended = self.trial_durations.observe
        self.tick_lasted = self.tick_durations.observe
        self.collected = self.collections.observe
        self.tick_answered = self.tick_latencies.observe
        self.registry.register(_Orchestrator(self))

    def attach(self, read: Callable[[], OrchestratorGauges]) -> None:
        """See `OrchestratorMetrics.attach`."""
        self.read = read

    def tick_began(self) -> None:
        """See `OrchestratorMetrics.tick_began`."""
        self.ticks += 1

    def actor_acted(self, actor_class: str, latency_seconds: float) -> None:
        """See `OrchestratorMetrics.actor_acted`."""
        found = self.actor_latencies.get(actor_class)
        if found is None:
            # Users choose class names: without a limit, one series for each could exhaust the memory.
            if len(self.actor_latencies) >= self._most_classes:
                actor_class = OTHER_CLASSES
            found = self.actor_latencies.setdefault(actor_class, Distribution())
        found.observe(latency_seconds)

    def participant_lost(self, kind: str) -> None:
        """See `OrchestratorMetrics.participant_lost`."""
        self.lost[kind] += 1

    def samples_emitted(self, count: int) -> None:
        """See `OrchestratorMetrics.samples_emitted`."""
        self.samples += count

    def rate_kept(self, missed_ticks: int, late_actions: int, absent_actions: int) -> None:
        """See `OrchestratorMetrics.rate_kept`."""
        self.missed_ticks += missed_ticks
        self.late_actions += late_actions
        self.absent_actions += absent_actions


class _Orchestrator(Collector):
    """Makes metrics of the measurements when they are collected."""

    def __init__(self, metrics: PrometheusMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        metrics = self._metrics
        # These three have the names and the type that the reference gives them.
        for name, text, summed in (
            ("trial_duration", "From a trial's creation to its end", metrics.trial_durations),
            ("tick_duration", "Between successive action sets of a trial", metrics.tick_durations),
            ("garbage_collection_duration", "Forgetting ended trials", metrics.collections),
        ):
            yield SummaryMetricFamily(f"{_PREFIX}{name}_seconds", text, summed.count, summed.total)
        text, latency = "From an observation set to its action set", metrics.tick_latencies
        yield HistogramMetricFamily(f"{_PREFIX}tick_latency_seconds", text, latency.buckets(), latency.total)
        text = "From an observation being sent to the actor's action"
        actors = HistogramMetricFamily(f"{_PREFIX}actor_latency_seconds", text, labels=["actor_class"])
        for actor_class, latency in metrics.actor_latencies.items():
            actors.add_metric([actor_class], latency.buckets(), latency.total)
        yield actors
        yield CounterMetricFamily(f"{_PREFIX}ticks", "Observation sets that came from environments", metrics.ticks)
        text = "Samples on their way to a data log"
        yield CounterMetricFamily(f"{_PREFIX}samples_emitted", text, metrics.samples)
        for name, text, count in (
            ("missed_ticks", "Times of ticks at a rate at which there were no observations", metrics.missed_ticks),
            ("late_actions", "Actions that came after the time of their tick", metrics.late_actions),
            ("absent_actions", "Actions that were made up since the time of a tick was over", metrics.absent_actions),
        ):
            yield CounterMetricFamily(f"{_PREFIX}{name}", text, count)
        text = "Participants lost before the end of their trials"
        lost = CounterMetricFamily(f"{_PREFIX}lost_participants", text, labels=["kind"])
        for kind, count in metrics.lost.items():
            lost.add_metric([kind], count)
        yield lost
        if metrics.read is not None:
            yield from _gauges(metrics.read())


def _gauges(now: OrchestratorGauges) -> Iterable[Metric]:
    trials = GaugeMetricFamily(f"{_PREFIX}trials", "Trials that the orchestrator remembers", labels=["state"])
    for state, count in now.trials.items():
        trials.add_metric([state], count)
    yield trials
    for name, text, value in (
        ("queued_samples", "Samples waiting for their data logs", now.queued_samples),
        ("queued_messages", "Messages waiting for participants that read slowly", now.queued_messages),
        (
            "oldest_waiting_trial_seconds",
            "Age of the oldest trial that waits for its start",
            now.oldest_waiting_seconds,
        ),
        (
            "longest_silence_seconds",
            "Since the last event of the running trial that is silent longest",
            now.longest_silence_seconds,
        ),
        ("data_logs_away", "Trials whose data logs take no samples", now.data_logs_away),
    ):
        yield GaugeMetricFamily(f"{_PREFIX}{name}", text, value)
    text = "Samples that did not reach their data logs"
    yield CounterMetricFamily(f"{_PREFIX}samples_dropped", text, now.lost_samples)
