"""The metrics as Prometheus sees them, read back by its own parser."""

from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from trio_cogment.base.config import MetricsConfig
from trio_cogment.base.metrics import OrchestratorGauges, OrchestratorMetrics
from trio_cogment.base.metrics.prometheus import OTHER_CLASSES, PrometheusMetrics


def scraped(metrics: PrometheusMetrics) -> dict[str, float]:
    """Return every value by its name and labels."""
    values = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            values[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return values


def types(metrics: PrometheusMetrics) -> dict[str, str]:
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {family.name: family.type for family in families}


def test_the_summaries_of_the_reference_have_its_names() -> None:
    metrics = PrometheusMetrics()
    metrics.trial_ended(10)
    metrics.trial_ended(2.5)
    metrics.tick_lasted(0.5)
    metrics.collected(0.001)
    for name, count, total in (("trial", 2, 12.5), ("tick", 1, 0.5), ("garbage_collection", 1, 0.001)):
        full = f"orchestrator_{name}_duration_seconds"
        assert types(metrics)[full] == "summary"
        assert scraped(metrics)[f"{full}_count"] == count
        assert scraped(metrics)[f"{full}_sum"] == pytest.approx(total)
        assert not any(key.startswith(f"{full}{{quantile") for key in scraped(metrics))


def test_latencies_are_histograms() -> None:
    metrics = PrometheusMetrics()
    metrics.tick_began()
    metrics.tick_answered(0.003)
    metrics.tick_answered(0.005)  # a bucket has its bound
    metrics.tick_answered(1000)
    metrics.actor_acted("player", 0.2)
    values = scraped(metrics)
    assert values["orchestrator_tick_latency_seconds_bucket{le=0.0025}"] == 0
    assert values["orchestrator_tick_latency_seconds_bucket{le=0.005}"] == 2
    assert values["orchestrator_tick_latency_seconds_bucket{le=60.0}"] == 2
    assert values["orchestrator_tick_latency_seconds_bucket{le=+Inf}"] == 3
    assert values["orchestrator_tick_latency_seconds_count"] == 3
    assert values["orchestrator_tick_latency_seconds_sum"] == pytest.approx(1000.008)
    assert values["orchestrator_actor_latency_seconds_count{actor_class=player}"] == 1
    assert values["orchestrator_actor_latency_seconds_bucket{actor_class=player,le=0.25}"] == 1
    assert values["orchestrator_ticks_total"] == 1


def test_classes_beyond_the_limit_are_one() -> None:
    metrics = PrometheusMetrics(MetricsConfig(max_actor_classes=2))
    for name in ("a", "b", "c", "d", "a"):
        metrics.actor_acted(name, 1)
    counts = {key: value for key, value in scraped(metrics).items() if "actor_latency_seconds_count" in key}
    counted = {key.partition("actor_class=")[2].rstrip("}"): value for key, value in counts.items()}
    assert counted == {"a": 2, "b": 1, OTHER_CLASSES: 2}


def test_labels_of_endless_classes_take_no_memory() -> None:
    metrics = PrometheusMetrics(MetricsConfig(max_actor_classes=2))
    for number in range(1000):
        metrics.actor_acted(f"class {number}", 1)
    assert len(metrics.actor_latencies) <= 3


def test_gauges_are_read_when_asked() -> None:
    metrics = PrometheusMetrics()
    reads: list[None] = []

    def read() -> OrchestratorGauges:
        reads.append(None)
        return OrchestratorGauges({"RUNNING": 3, "ENDED": 1}, 5, 7, 11)

    metrics.attach(read)
    assert not reads
    metrics.participant_lost("actor")
    metrics.samples_emitted(4)
    values = scraped(metrics)
    assert len(reads) == 1
    assert values["orchestrator_trials{state=RUNNING}"] == 3
    assert values["orchestrator_trials{state=ENDED}"] == 1
    assert values["orchestrator_queued_samples"] == 5
    assert values["orchestrator_queued_messages"] == 7
    assert values["orchestrator_samples_dropped_total"] == 11
    assert values["orchestrator_samples_emitted_total"] == 4
    # What has not happened yet is there, with 0: a rate over it is not a gap.
    assert values["orchestrator_lost_participants_total{kind=actor}"] == 1
    assert values["orchestrator_lost_participants_total{kind=environment}"] == 0


def test_two_servers_in_a_process_share_nothing() -> None:
    one, two = PrometheusMetrics(), PrometheusMetrics()
    one.tick_began()
    assert scraped(two)["orchestrator_ticks_total"] == 0


def test_it_is_what_an_orchestrator_takes() -> None:
    metrics: OrchestratorMetrics = PrometheusMetrics()
    assert metrics is not None


def test_nobody_who_does_not_measure_imports_the_library() -> None:
    code = (
        "import sys\n"
        "for name in ('prometheus_client', 'h11'): sys.modules[name] = None\n"
        "import trio_cogment.servers.orchestrator, trio_cogment.platform, trio_cogment.cli.services.server\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
