"""The example `ray_cluster` runs as its README says, in the cluster of the tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.example_folders import example
from tests.ray.cluster import Grid
from tests.stores.postgresql_server import postgresql_server
from trio_cogment.rl.datasets.sources import open_source
from trio_cogment.sdk import StoredTrial


def test_the_example(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid.have(2)
    monkeypatch.setenv("RAY_ADDRESS", grid.cluster.address)
    found = example("ray_cluster", tmp_path)
    assert found.run() == found.printed


@pytest.mark.postgresql
def test_self_play_that_is_recorded_in_postgresql(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the workers themselves; the program that learns reads it there."""
    grid.have(2)
    monkeypatch.setenv("RAY_ADDRESS", grid.cluster.address)
    found = example("ray_cluster", tmp_path)
    with postgresql_server() as server:
        database = server.database()
        command = [sys.executable, "self_play.py", f"--store={database}", "--trials=40", "--costs"]
        done = subprocess.run(command, cwd=found.folder, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        told, _, costs = done.stdout.splitlines()
        assert told == "40 trials recorded and learnt from, 3 versions"
        assert re.fullmatch(r"[\d.]+ s with the start of the workers, [\d.]+ ms of this program for each trial", costs)
        trials = trio.run(recorded, database)
    assert len(trials) == 40
    for trial in trials:
        assert trial.is_complete
        assert trial.samples_count == 16


async def recorded(database: str) -> list[StoredTrial]:
    async with open_source(database) as datastore:
        return await datastore.trials()
