"""The example `ray_cluster` runs as its README says, in the cluster of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.example_folders import example
from tests.ray.cluster import Grid


def test_the_example(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid.have(2)
    monkeypatch.setenv("RAY_ADDRESS", grid.cluster.address)
    found = example("ray_cluster", tmp_path)
    assert found.run() == found.printed
