"""Ray Tune over runs of trials, and Ray Data over what was exported of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import trio_cogment.rl as tc
from tests.docs.measured_tables import cells, require_table
from tests.ray.cluster import Grid
from tests.rl_peers.test_readers import KINDS, ROWS, SHAPES, cell, written

#: Ray Data would read a small file with many tasks, each of which may need another process.
ONE_TASK: dict[str, Any] = {"override_num_blocks": 1}


def test_tune_over_runs(grid: Grid, tmp_path: Path) -> None:
    from ray import tune

    grid.have(2)

    def played(config: dict[str, Any]) -> dict[str, float]:
        threshold = config["threshold"]
        seat = tc.policy(lambda state: int(state[2] + threshold * state[3] > 0))
        results = tc.run_trials(5, environment="CartPole-v1", seats={"player_0": seat}, seeds=0, check=True)
        return {"mean": float(results.returns.mean())}

    tuner = tune.Tuner(
        tune.with_resources(played, {"cpu": 1}),
        param_space={"threshold": tune.grid_search([0.0, 0.5])},
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    )
    best = tuner.fit().get_best_result("mean", "max")
    assert best.config["threshold"] == 0.5
    assert best.metrics["mean"] > 100


def test_data_over_an_export(grid: Grid, tmp_path: Path) -> None:
    import ray.data

    grid.have(2)
    store = f"sqlite:{tmp_path}/trials.db"
    results = tc.run_trials(4, environment="CartPole-v1", seats={"player_0": tc.random(seed=1)}, seeds=0, store=store)
    tc.export(store, parquet=str(tmp_path / "data"))
    rows = list(ray.data.read_parquet(str(tmp_path / "data" / "data"), **ONE_TASK).iter_rows())
    assert len(rows) == results.ticks.sum()
    assert sum(row["reward"] or 0.0 for row in rows) == results.returns.sum()
    tc.export(store, parquet=str(tmp_path / "tensors"), tensors="fixed_shape_tensor")
    found = ray.data.read_parquet(str(tmp_path / "tensors" / "data"), **ONE_TASK)
    (batch, *_) = found.iter_batches(batch_size=16, batch_format="numpy")
    assert (batch["observation"].dtype, batch["observation"].shape) == (np.dtype(np.float32), (16, 4))


def by_ray_data(file: Path, _shape: tuple[int, ...]) -> tuple[Any, bool]:
    import ray.data

    batch = ray.data.read_parquet(str(file), **ONE_TASK).take_batch(ROWS, batch_format="numpy")
    return batch["observation"], False


def test_arrays_are_what_the_page_says(grid: Grid, tmp_path: Path) -> None:
    """The row of Ray Data in the table of readers."""
    grid.have(2)
    row = []
    for kind in KINDS.values():
        for number, shape in enumerate(SHAPES.values()):
            file = tmp_path / f"{kind} {number}.parquet"
            written(shape, kind, file)
            row.append(cell(by_ray_data, file, shape))
    head = [f"{kind}, {shape}" if not place else shape for kind in KINDS for place, shape in enumerate(SHAPES)]
    lines = [cells("reader", *head), cells(*["---"] * (len(head) + 1)), cells("Ray Data 2.60", *row)]
    require_table("rl-datasets.md", "arrays of Ray Data", lines)
