"""Metrics of the calls of any gRPC server, and of what its peers are refused, with the field's usual names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from trio_cogment.base.errors import StatusCode
from trio_cogment.base.metrics._figures import Distribution

# Metrics of what a server's peers were refused before or beside their calls.


class RefusalMetrics(Collector):
    """Shows counts by kind as `trio_cogment_refusals_total`.

    Args:
        registry: the registry to register the metric with.
        counts: by kind; it may change while it is shown.
    """

    def __init__(self, registry: CollectorRegistry, counts: Mapping[str, int]) -> None:
        self._counts = counts
        registry.register(self)

    @override
    def collect(self) -> Iterable[Metric]:
        text = "Handshakes that failed, protocol errors, and requests that were refused"
        found = CounterMetricFamily("trio_cogment_refusals", text, labels=["kind"])
        for kind, count in dict(self._counts).items():
            found.add_metric([kind], count)
        return [found]


_PREFIX = "grpc_server_"
_LABELS = ["grpc_type", "grpc_service", "grpc_method"]
#: The names that grpc-go uses: `Canceled` has one l, and `OK` is in capitals.
_CODES = {code: code.name.title().replace("_", "") for code in StatusCode} | {
    StatusCode.OK: "OK",
    StatusCode.CANCELLED: "Canceled",
}


class CallMetrics:
    """Counts the calls of one or several servers, by method and status; a `rpc.ServerObserver`.

    Args:
        registry: the registry to register the metrics with.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._methods: dict[str, _Method] = {}
        registry.register(_Calls(self._methods))

    def method(self, path: str, shape: str) -> _Method:
        """See `rpc.ServerObserver.method`."""
        if path not in self._methods:
            service, _, name = path[1:].rpartition("/")
            self._methods[path] = _Method([shape, service, name])
        return self._methods[path]


class _Method:
    """The calls of one method."""

    def __init__(self, labels: list[str]) -> None:
        self.labels = labels
        self.starts = 0
        # Present from the start: a series that appears with its first value shows no increase.
        self.ends = {StatusCode.OK: 0}
        self.durations = Distribution()

    def started(self) -> None:
        """See `rpc.MethodObserver.started`."""
        self.starts += 1

    def ended(self, code: StatusCode, seconds: float) -> None:
        """See `rpc.MethodObserver.ended`."""
        self.ends[code] = self.ends.get(code, 0) + 1
        self.durations.observe(seconds)


class _Calls(Collector):
    """Makes metrics of the counts when they are collected."""

    def __init__(self, methods: dict[str, _Method]) -> None:
        self._methods = methods

    def collect(self) -> Iterable[Metric]:
        started = CounterMetricFamily(f"{_PREFIX}started", "Calls whose handlers were started", labels=_LABELS)
        text = "Calls that have ended, by their status"
        handled = CounterMetricFamily(f"{_PREFIX}handled", text, labels=[*_LABELS, "grpc_code"])
        text = "From the start of a call's handler to its end"
        durations = HistogramMetricFamily(f"{_PREFIX}handling_seconds", text, labels=_LABELS)
        for method in self._methods.values():
            started.add_metric(method.labels, method.starts)
            for code, count in method.ends.items():
                handled.add_metric([*method.labels, _CODES[code]], count)
            durations.add_metric(method.labels, method.durations.buckets(), method.durations.total)
        return started, handled, durations
