"""LeRobot's own reader, and what an export gives it; in `nox -s lerobot`, because it needs Python 3.12."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import trio_cogment.rl as tc
from tests.docs.measured_tables import DOCS
from tests.rl_peers.test_readers import KINDS, ROWS, SHAPES, cell
from trio_cogment.rl.datasets.tables import SpaceColumns
from trio_cogment.spaces import Box

pytestmark = [
    pytest.mark.rl_peers,
    pytest.mark.filterwarnings("ignore"),  # of its own, and of the packages that it brings
    pytest.mark.timeout(300),  # it imports much
]

FEATURES = {"action": {"dtype": "int64", "shape": (1,), "names": None}}


def lerobot() -> Any:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset


def with_column(folder: Path, shape: tuple[int, ...], kind: str) -> Path:
    """Let LeRobot write a data set, and put a column into it as an export would have written it."""
    features = {**FEATURES, "observation": {"dtype": "float32", "shape": shape, "names": None}}
    made = lerobot().create(repo_id="a/b", root=folder, fps=10, features=features, use_videos=False)
    for number in range(ROWS):
        frame = {"observation": np.zeros(shape, np.float32), "action": np.array([number]), "task": "none"}
        made.add_frame(frame)
    made.save_episode()
    made.finalize()
    (file,) = folder.glob("data/*/*.parquet")
    table = pq.read_table(file)
    space = Box(-np.inf, np.inf, shape, np.float32)
    columns = SpaceColumns(space, "observation", optional=False, tensors=kind == "fixed_shape_tensor")
    for value in values_of(shape):
        columns.append(value)
    column = columns.columns["observation"].take()
    place = table.schema.get_field_index("observation")
    table = table.set_column(place, pa.field("observation", column.type), column)
    pq.write_table(table.replace_schema_metadata(None), file)
    return folder


def values_of(shape: tuple[int, ...]) -> Any:
    return np.arange(ROWS * np.prod(shape), dtype=np.float32).reshape(ROWS, *shape)


def read(folder: Path, shape: tuple[int, ...]) -> tuple[Any, bool]:
    loaded = lerobot()("a/b", root=folder)
    found = np.stack([loaded[number]["observation"].numpy() for number in range(ROWS)])
    assert np.array_equal(found, values_of(shape))
    return found, False


def test_its_own_reader_gives_what_the_page_says(tmp_path: Path) -> None:
    """The row was made by `datasets`, called as LeRobot calls it."""
    page = (DOCS / "rl-datasets.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| LeRobot 0.6's way |")]
    seen = [
        cell(read, with_column(tmp_path / f"{kind} {number}", shape, kind), shape)
        for kind in KINDS.values()
        for number, shape in enumerate(SHAPES.values())
    ]
    assert seen == [part.strip() for part in row.strip("|").split(" | ")][1:]


def test_the_page_makes_its_layout_of_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seats = {"player_0": tc.random(seed=1)}
    tc.run_trials(3, environment="CartPole-v1", seats=seats, seeds=[1, 2, 3], store="sqlite:trials.db", check=True)
    tc.export("sqlite:trials.db", parquet="data/cartpole")
    with pytest.raises(Exception, match=r"tasks\.parquet|codebase_version|features|fps"):
        lerobot()("me/cartpole", root=shutil.copytree("data/cartpole", "not-its-own"))
    page = (DOCS / "rl-datasets.md").read_text(encoding="utf-8")
    (block,) = [part.partition("```")[0] for part in page.split("```python\n") if "import LeRobotDataset" in part]
    names: dict[str, Any] = {}
    exec(compile(block, "rl-datasets.md", "exec"), names)
    loaded = names["loaded"]
    rows = pyarrow.dataset.dataset("data/cartpole/data").to_table().to_pylist()
    steps = [row for row in rows if row["action"] is not None]
    assert (loaded.num_episodes, loaded.num_frames) == (3, len(steps))
    for number, step in enumerate(steps):
        item = loaded[number]
        assert np.array_equal(item["observation.state"].numpy(), np.array(step["observation"], np.float32))
        assert (int(item["action"]), float(item["next.reward"])) == (step["action"], step["reward"])
        assert bool(item["next.done"]) == (step["terminated"] or step["truncated"])
        assert int(item["episode_index"]) == step["episode_index"]
    assert sum(bool(loaded[number]["next.done"]) for number in range(len(steps))) == 3
