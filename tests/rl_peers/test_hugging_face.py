"""Hugging Face's `datasets` reads what is exported, types and all, by the folder alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from tests.rl.datasets.recorded import Duel, play, recording
from trio_cogment.rl import export_async
from trio_cogment.spaces import Box, Discrete, Space

pytestmark = pytest.mark.rl_peers


class Chase(Duel):
    """A hunter and a prey, with spaces of their own."""

    def __init__(self) -> None:
        super().__init__(4, out_at=2)
        spaces: Mapping[str, Space] = {"hunter_0": Box(0, 1, (2,), np.float32), "prey_0": Discrete(5)}
        self.agents = list(spaces)
        self.observation_spaces = spaces
        self.action_spaces = dict.fromkeys(spaces, Discrete(3))


def exported(game: Duel, folder: Path) -> str:
    async def record() -> None:
        async with recording(game) as platform:
            await play(platform, game, "one", seed=7)
            await play(platform, game, "two")
            await export_async(platform, parquet=folder)

    trio.run(record)
    return str(folder)


def loaded(folder: str, name: str | None = None, **given: Any) -> Any:
    import datasets

    return datasets.load_dataset(folder, name, split="train", cache_dir=f"{folder}-cache", **given)


@pytest.mark.parametrize("streaming", [False, True])
def test_steps(tmp_path: Path, streaming: bool) -> None:
    game = Duel(out_at=3)
    rows = list(loaded(exported(game, tmp_path / "data"), streaming=streaming))
    assert len(rows) == 22
    for row in rows:
        told = game.told[row["episode_index"]][row["tick"]][row["actor"]]
        assert np.array_equal(np.array(row["observation.image"], np.uint8), told.value["image"])
        assert row["observation.position"] == told.value["position"].tolist()
        assert (row["action"] is None) == row["is_last"]
        if not row["is_last"]:
            after = game.told[row["episode_index"]][row["tick"] + 1][row["actor"]]
            assert (row["reward"], row["terminated"]) == (after.reward, after.terminated)
            assert row["action"] == game.actions[row["episode_index"]][row["tick"]][row["actor"]]


def test_types(tmp_path: Path) -> None:
    from datasets import List, Value

    features = loaded(exported(Duel(2, out_at=None), tmp_path / "data")).features
    assert features["observation.image"] == List(List(List(Value("uint8"), length=3), length=32), length=40)
    assert features["observation.position"] == List(Value("float64"), length=2)
    assert (features["action"], features["reward"]) == (Value("int64"), Value("float64"))


def test_each_form_and_the_trials_are_configurations(tmp_path: Path) -> None:
    import datasets

    folder = exported(Chase(), tmp_path / "data")
    assert datasets.get_dataset_config_names(folder) == ["hunter", "prey", "trials"]
    assert set(loaded(folder, "prey")["actor"]) == {"prey_0"}
    assert len(loaded(folder, "hunter")["observation"][0]) == 2
    assert loaded(folder, "trials")["trial_id"][:] == ["one", "two"]
    assert loaded(folder, "trials")[0]["seed"] == 7
