"""Metrics for Prometheus, in a registry of their own: two servers in a process do not share figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, Summary
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trio_cogment.config import MetricsConfig
from trio_cogment.metrics import OrchestratorGauges

#: From what a tick takes within a process to what a person takes.
BUCKETS_SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)  # fmt: skip

#: Stands for every class of actors beyond `MetricsConfig.max_actor_classes`.
OTHER_CLASSES = "other"


class PrometheusMetrics:
    """An orchestrator's metrics; `docs/operations.md` lists them.

    Args:
        config: how many labels there may be.

    Attributes:
        registry: what an endpoint serves.
    """

    def __init__(self, config: MetricsConfig | None = None) -> None:
        self.registry = CollectorRegistry()
        self._most_classes = (config or MetricsConfig()).max_actor_classes
        # The first three have the names and the types that the reference gives them.
        self.trial_ended = self._summary("trial_duration", "From a trial's creation to its end").observe
        self.tick_lasted = self._summary("tick_duration", "Between successive action sets of a trial").observe
        self.collected = self._summary("garbage_collection_duration", "Forgetting ended trials").observe
        self.tick_answered = self._histogram("tick_latency", "From an observation set to its action set").observe
        self._actors = self._histogram(
            "actor_latency", "From an observation being sent to the actor's action", ["actor_class"]
        )
        self._observe: dict[str, Callable[[float], None]] = {}
        self.tick_began = self._counter("ticks", "Observation sets that came from environments").inc
        self._lost = self._counter("lost_participants", "Participants lost before the end of their trials", ["kind"])
        for kind in ("actor", "environment"):
            self._lost.labels(kind)
        self.samples_emitted = self._counter("samples_emitted", "Samples on their way to a data log").inc
        ProcessCollector(registry=self.registry)

    def attach(self, read: Callable[[], OrchestratorGauges]) -> None:
        """See `OrchestratorMetrics.attach`; once."""
        self.registry.register(_Gauges(read))

    def actor_acted(self, actor_class: str, latency_seconds: float) -> None:
        """See `OrchestratorMetrics.actor_acted`."""
        observe = self._observe.get(actor_class)
        if observe is None:
            # Users name classes: without a limit a series for each of them would fill the memory.
            if len(self._observe) >= self._most_classes:
                actor_class = OTHER_CLASSES
            observe = self._observe[actor_class] = self._actors.labels(actor_class).observe
        observe(latency_seconds)

    def participant_lost(self, kind: str) -> None:
        """See `OrchestratorMetrics.participant_lost`."""
        self._lost.labels(kind).inc()

    def _summary(self, name: str, text: str) -> Summary:
        return Summary(f"orchestrator_{name}_seconds", text, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: Iterable[str] = ()) -> Histogram:
        return Histogram(f"orchestrator_{name}_seconds", text, labels, registry=self.registry, buckets=BUCKETS_SECONDS)

    def _counter(self, name: str, text: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(f"orchestrator_{name}", text, labels, registry=self.registry)


class _Gauges(Collector):
    """What is read when somebody asks."""

    def __init__(self, read: Callable[[], OrchestratorGauges]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        # Else registering would read it.
        return []

    def collect(self) -> Iterable[Metric]:
        now = self._read()
        trials = GaugeMetricFamily("orchestrator_trials", "Trials that can be asked about", labels=["state"])
        for state, count in now.trials.items():
            trials.add_metric([state], count)
        yield trials
        for name, text, value in (
            ("queued_samples", "Samples waiting for their data logs", now.queued_samples),
            ("queued_messages", "Messages waiting for participants that read slowly", now.queued_messages),
        ):
            yield GaugeMetricFamily(f"orchestrator_{name}", text, value)
        text = "Samples that did not reach their data logs"
        yield CounterMetricFamily("orchestrator_samples_dropped", text, now.lost_samples)
