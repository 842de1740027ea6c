"""The example `ray_cluster` runs as its README says, in the cluster of the tests."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import trio

from tests.example_folders import EXAMPLES, example
from tests.ray.cluster import Grid
from tests.stores.postgresql_server import postgresql_server
from trio_cogment.rl.datasets.sources import open_source
from trio_cogment.sdk import StoredTrial
from trio_cogment.spaces import encode_action


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
        assert 4 <= trial.samples_count <= 12, "four moves at least, and the end"


def program(name: str) -> Any:
    """Import a program of the example."""
    spec = importlib.util.spec_from_file_location(f"ray_cluster_{name}", EXAMPLES / "ray_cluster" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def game(draw: Any, table: Any, self_play: Any) -> list[Any]:
    """Return the samples of a game that a policy has played against itself."""
    stones, turn, samples = self_play.STONES, 0, []
    while stones:
        move = int(draw.choice(self_play.MOVES, p=self_play.chances(table[stones])))
        action = encode_action(move)
        moved = SimpleNamespace(
            action=action, action_bytes=b"move", observation_array=lambda stones=stones: np.array(stones), reward=None
        )
        waits = SimpleNamespace(action=None, action_bytes=b"", reward=None)
        samples.append(SimpleNamespace(actors={f"player_{turn}": moved, f"player_{1 - turn}": waits}))
        stones, turn = stones - min(move + 1, stones), 1 - turn
    ends = {f"player_{turn}": -1.0, f"player_{1 - turn}": 1.0}
    over = {name: SimpleNamespace(action=None, action_bytes=b"", reward=reward) for name, reward in ends.items()}
    return [*samples, SimpleNamespace(actors=over)]


@pytest.mark.parametrize(("rate", "learns"), [(None, True), (0.0, False), (-0.3, False)])
async def test_what_self_play_prints_depends_on_what_is_learnt(
    monkeypatch: pytest.MonkeyPatch, rate: float | None, learns: bool
) -> None:
    self_play = program("self_play")
    if rate is not None:
        monkeypatch.setattr(self_play, "RATE", rate)
    table, draw = np.zeros((self_play.STONES + 1, self_play.MOVES)), np.random.default_rng(1)

    async def each(samples: list[Any]) -> AsyncIterator[Any]:
        for sample in samples:
            yield sample

    assert self_play.wins(table) == pytest.approx(0.5)
    for _ in range(200):
        await self_play.learn(table, each(game(draw, table, self_play)))
    assert (self_play.wins(table) > 0.8) is learns


def test_orchestrators_for_which_there_is_no_room(grid: Grid, tmp_path: Path) -> None:
    """The program does not wait for ever."""
    grid.have(2)
    code = f"import orchestrators as o; o.ray.init({grid.cluster.address!r}); o.trio.run(o.main, 50, 1.0)"
    command, folder = [sys.executable, "-c", code], example("ray_cluster", tmp_path).folder
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1
    assert "trio.TooSlowError" in done.stderr


async def recorded(database: str) -> list[StoredTrial]:
    async with open_source(database) as datastore:
        return await datastore.trials()
