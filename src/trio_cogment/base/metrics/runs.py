"""Metrics of a trainer for Prometheus: its runs, and the credits of those that go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trio_cogment.base.metrics import TrainerGauges

#: Of this many runs that go on, the oldest ones, there are figures: each is a label.
MOST_RUNS = 100

_PREFIX = "trainer_"
_COUNTERS = {
    "credits_granted": "Credits that the workers of a run were given",
    "credits_consumed": "Steps and episodes of a run that were accepted",
    "grants_sent": "Grants of credits to the workers of a run",
    "pauses": "Pauses of a run",
    "resumes": "Ends of its pauses",
    "drops_due_to_credit": "Messages of a run that were refused because there was no credit",
}
_GAUGES = {
    "current_outstanding": "Credits that the workers of a run have left",
    "ingest_rate_hz": "Steps and episodes of a run that are accepted a second",
}


class PrometheusTrainerMetrics:
    """A trainer's metrics; `docs/operations.md` lists them. See `TrainerMetrics`.

    Args:
        registry: the registry to register with.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.read: Callable[[], TrainerGauges] | None = None
        registry.register(_Runs(self))

    def attach(self, read: Callable[[], TrainerGauges]) -> None:
        """See `TrainerMetrics.attach`."""
        self.read = read


class _Runs(Collector):
    """Makes metrics of the measurements when they are collected."""

    def __init__(self, metrics: PrometheusTrainerMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        if self._metrics.read is None:
            return
        now = self._metrics.read()
        runs = GaugeMetricFamily(f"{_PREFIX}runs", "Runs that the trainer knows", labels=["status"])
        for status, count in now.runs.items():
            runs.add_metric([status], count)
        yield runs
        active = list(islice(now.active.items(), MOST_RUNS))
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"{_PREFIX}{name}", text, labels=["run_id"])
            for run_id, figures in active:
                counter.add_metric([run_id], getattr(figures, name))
            yield counter
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"{_PREFIX}{name}", text, labels=["run_id"])
            for run_id, figures in active:
                gauge.add_metric([run_id], getattr(figures, name))
            yield gauge
