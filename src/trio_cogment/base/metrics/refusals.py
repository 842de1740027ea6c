"""Metrics of what a server's peers were refused before or beside their calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class RefusalMetrics(Collector):
    """Shows counts by kind as `trio_cogment_refusals_total`.

    Args:
        registry: the registry to register the metric with.
        counts: by kind; it may change while it is shown.
    """

    def __init__(self, registry: CollectorRegistry, counts: Mapping[str, int]) -> None:
        self._counts = counts
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """See `Collector.collect`."""
        text = "Handshakes that failed, protocol errors, and requests that were refused"
        found = CounterMetricFamily("trio_cogment_refusals", text, labels=["kind"])
        for kind, count in dict(self._counts).items():
            found.add_metric([kind], count)
        return [found]
