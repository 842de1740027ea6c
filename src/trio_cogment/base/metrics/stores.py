"""Metrics of a storage that counts what it does: its batches, what was tried again, and its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

_COUNTERS = {
    "batches": "Batches of writes that were committed",
    "retries": "Batches and queries that were tried again because their connection broke",
    "reconnections": "How often the session in the database was lost and made anew",
}


class StoreMetrics(Collector):
    """Shows what a storage has counted, as `trio_cogment_store_batches_total` and so on.

    Args:
        registry: the registry to register the metrics with.
        figures: returns what `PostgresqlStore.figures` does.
    """

    def __init__(self, registry: CollectorRegistry, figures: Callable[[], Mapping[str, int]]) -> None:
        self._figures = figures
        registry.register(self)

    @override
    def collect(self) -> Iterable[Metric]:
        figures = self._figures()
        yield GaugeMetricFamily(
            "trio_cogment_store_connections", "Connections to the database", value=figures["connections"]
        )
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"trio_cogment_store_{name}", text, value=figures[name])
