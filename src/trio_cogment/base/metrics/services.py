"""Metrics of the services of a process that are read when they are collected: stores, disks, queues, models, people.

Each service adds a function that reads its figures. Several services of one process share a metric, and its label
`service` tells them apart.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

_PREFIX = "trio_cogment_"
#: Figure -> its text, and the label beside `service`; empty: it has none.
_GAUGES = {
    "store_size_bytes": ("What a store takes: its files, or its memory", ""),
    "store_limit_bytes": ("What it may take at most; absent: what there is", ""),
    "disk_free_bytes": ("Free space of the disk on which a store is", ""),
    "disk_size_bytes": ("Size of that disk", ""),
    "queued_writes": ("Writes that wait for a store, or are being stored", ""),
    "queued_write_bytes": ("Their size", ""),
    "models": ("Models of a registry", ""),
    "model_versions": ("Their versions", ""),
    "lobby_people": ("People in the lobbies", "game"),
    "seats": ("Seats for people in trials that have not ended", "state"),
}
_COUNTERS = {
    "samples_stored": ("Samples that have been made durable", ""),
    "writes_refused": ("Writes that a store had no room for; those that are tried again count again", ""),
    "tokens_refused": ("Calls without a valid token", ""),
    "spans": ("Spans of traces: that have ended, and of these sent, or not taken by the receiver", "outcome"),
}

#: By the names of figures: a value, or values by the value of the label.
Figures: TypeAlias = Mapping[str, float | Mapping[str, float]]


class ServiceMetrics(Collector):
    """Shows figures of services.

    Args:
        registry: the registry to register the metrics with.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._read: list[tuple[str, Callable[[], Figures]]] = []
        registry.register(self)

    def add(self, service: str, read: Callable[[], Figures]) -> None:
        """Show the figures of one more service.

        Args:
            service: the value of its label; empty: `read` gives values by services in place of values.
            read: returns what is known now, by the names of the metrics without their prefix.
        """
        self._read.append((service, read))

    @override
    def collect(self) -> Iterable[Metric]:
        found = [(service, read()) for service, read in self._read]
        families: list[tuple[str, str, GaugeMetricFamily | CounterMetricFamily]] = []
        for name, (text, label) in _GAUGES.items():
            labels = ["service", label] if label else ["service"]
            families.append((name, label, GaugeMetricFamily(_PREFIX + name, text, labels=labels)))
        for name, (text, label) in _COUNTERS.items():
            labels = ["service", label] if label else ["service"]
            families.append((name, label, CounterMetricFamily(_PREFIX + name, text, labels=labels)))
        for name, label, family in families:
            for service, figures in found:
                value = figures.get(name)
                if value is None:
                    continue
                if not isinstance(value, Mapping):
                    family.add_metric([service], value)
                    continue
                for key, one in value.items():
                    family.add_metric([service, key] if label else [key], one)
            if family.samples:
                yield family


def disk_figures(place: Path) -> dict[str, float]:
    """Return the figures of the disk on which a file or a folder is; none where it cannot be asked."""
    try:
        usage = shutil.disk_usage(place if place.is_dir() else place.parent)
    except OSError:
        return {}
    return {"disk_free_bytes": usage.free, "disk_size_bytes": usage.total}


def file_figures(file: Path, limit: int = 0) -> dict[str, float]:
    """Return the figures of a database of SQLite.

    Args:
        file: the database; what SQLite puts beside it counts, too.
        limit: what it may take at most; 0: it has no limit.
    """
    size = 0
    for suffix in ("", "-wal", "-shm"):
        try:
            size += os.stat(f"{file}{suffix}").st_size
        except OSError:
            pass  # it is not there
    return {"store_size_bytes": size, **({"store_limit_bytes": limit} if limit else {}), **disk_figures(file)}
