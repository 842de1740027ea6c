"""The metrics of calls, with the names and labels that gRPC's dashboards know."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from trio_cogment.base.errors import StatusCode
from trio_cogment.base.metrics.calls import CallMetrics
from trio_cogment.rpc import ServerObserver

PATH = "/cogmentAPI.TrialDatastoreSP/RetrieveTrials"
LABELS = {
    "grpc_type": "unary",
    "grpc_service": "cogmentAPI.TrialDatastoreSP",
    "grpc_method": "RetrieveTrials",
}


def values(registry: CollectorRegistry, name: str, **labels: str) -> list[float]:
    """Return the values of the samples that have this name and all these labels."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return [sample.value for sample in samples if labels.items() <= sample.labels.items()]


def test_methods_are_there_before_their_first_call() -> None:
    registry = CollectorRegistry()
    metrics: ServerObserver = CallMetrics(registry)
    metrics.method(PATH, "unary")
    assert values(registry, "grpc_server_started_total", **LABELS) == [0]
    assert values(registry, "grpc_server_handled_total", **LABELS, grpc_code="OK") == [0]
    assert values(registry, "grpc_server_handling_seconds_count", **LABELS) == [0]


def test_calls_by_status_and_duration() -> None:
    registry = CollectorRegistry()
    metrics = CallMetrics(registry)
    method = metrics.method(PATH, "unary")
    other = metrics.method("/a.B/C", "bidi_stream")
    for code, seconds in ((StatusCode.OK, 0.003), (StatusCode.OK, 0.2), (StatusCode.NOT_FOUND, 100.0)):
        method.started()
        method.ended(code, seconds)
    method.started()
    other.started()
    other.ended(StatusCode.CANCELLED, 1)
    assert values(registry, "grpc_server_started_total", **LABELS) == [4]
    assert values(registry, "grpc_server_handled_total", **LABELS, grpc_code="OK") == [2]
    assert values(registry, "grpc_server_handled_total", **LABELS, grpc_code="NotFound") == [1]
    assert values(registry, "grpc_server_handled_total", **LABELS) == [2, 1]
    assert values(registry, "grpc_server_handled_total", grpc_method="C", grpc_code="Canceled") == [1]
    assert values(registry, "grpc_server_started_total", grpc_type="bidi_stream") == [1]
    buckets = "grpc_server_handling_seconds_bucket"
    assert values(registry, buckets, **LABELS, le="0.005") == [1]
    assert values(registry, buckets, **LABELS, le="60.0") == [2]
    assert values(registry, buckets, **LABELS, le="+Inf") == [3]
    assert values(registry, "grpc_server_handling_seconds_sum", **LABELS) == [pytest.approx(100.203)]


def test_two_servers_with_the_same_method_share_its_figures() -> None:
    registry = CollectorRegistry()
    metrics = CallMetrics(registry)
    for _ in range(2):
        metrics.method("/grpc.health.v1.Health/Check", "unary").started()
    assert values(registry, "grpc_server_started_total") == [2]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (StatusCode.OK, "OK"),
        (StatusCode.CANCELLED, "Canceled"),
        (StatusCode.INVALID_ARGUMENT, "InvalidArgument"),
        (StatusCode.DEADLINE_EXCEEDED, "DeadlineExceeded"),
        (StatusCode.UNIMPLEMENTED, "Unimplemented"),
        (StatusCode.DATA_LOSS, "DataLoss"),
    ],
)
def test_names_of_statuses(code: StatusCode, name: str) -> None:
    registry = CollectorRegistry()
    CallMetrics(registry).method(PATH, "unary").ended(code, 0)
    assert values(registry, "grpc_server_handled_total", grpc_code=name) == [1]
