"""Figures of services as metrics."""

from __future__ import annotations

import shutil
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from trio_cogment.base.metrics.services import ServiceMetrics, disk_figures, file_figures


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        " ".join([sample.name, *(value for _, value in sorted(sample.labels.items()))]): sample.value
        for family in families
        for sample in family.samples
    }


def test_services_share_metrics_and_are_told_apart() -> None:
    registry = CollectorRegistry()
    metrics = ServiceMetrics(registry)
    assert scraped(registry) == {}
    size = 5.0
    metrics.add("trial_datastore", lambda: {"store_size_bytes": size, "samples_stored": 3})
    metrics.add("model_registry", lambda: {"store_size_bytes": 7, "models": 2})
    size = 6.0
    assert scraped(registry) == {
        "trio_cogment_store_size_bytes trial_datastore": 6,
        "trio_cogment_store_size_bytes model_registry": 7,
        "trio_cogment_samples_stored_total trial_datastore": 3,
        "trio_cogment_models model_registry": 2,
    }


def test_values_by_another_label_or_by_services() -> None:
    registry = CollectorRegistry()
    metrics = ServiceMetrics(registry)
    metrics.add("play", lambda: {"lobby_people": {"chess": 3, "go": 0}, "seats": {"held": 1}})
    metrics.add("", lambda: {"tokens_refused": {"A": 1, "B": 0}})
    assert scraped(registry) == {
        "trio_cogment_lobby_people chess play": 3,
        "trio_cogment_lobby_people go play": 0,
        "trio_cogment_seats play held": 1,
        "trio_cogment_tokens_refused_total A": 1,
        "trio_cogment_tokens_refused_total B": 0,
    }


def test_a_database_takes_what_its_files_take(tmp_path: Path) -> None:
    file = tmp_path / "trials.db"
    file.write_bytes(b"12345")
    (tmp_path / "trials.db-wal").write_bytes(b"123")
    (tmp_path / "another.db").write_bytes(b"1")
    found = file_figures(file, 100)
    assert (found["store_size_bytes"], found["store_limit_bytes"]) == (8, 100)
    assert "store_limit_bytes" not in file_figures(file)
    assert found["disk_size_bytes"] == shutil.disk_usage(tmp_path).total
    assert 0 < found["disk_free_bytes"] < found["disk_size_bytes"]


def test_a_disk_that_cannot_be_asked_has_no_figures(tmp_path: Path) -> None:
    assert disk_figures(tmp_path / "nowhere" / "trials.db") == {}
    assert file_figures(tmp_path / "nowhere" / "trials.db") == {"store_size_bytes": 0}
