"""Damage in data sets of Minari, made by Minari itself or by `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

import trio_cogment.rl as tc
from tests.rl.datasets.recorded import play, recording
from tests.rl.datasets.test_long_episodes import LONG, made_by_minari
from tests.rl.datasets.test_minari import Solo
from tests.rl.datasets.test_replaying import Unsorted
from trio_cogment.base.errors import NotFoundError
from trio_cogment.spaces import Box, Dict, Tuple

pytestmark = pytest.mark.filterwarnings("ignore:.* is (set to )?None:UserWarning")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def made(format_: str, *, infos: dict[str, Any], rewards: list[float], pictures: bool = False, **buffer: Any) -> None:
    space = spaces.Box(0, 255, (32, 40, 3), np.uint8) if pictures else spaces.Box(-1, 1, (2,), np.float32)
    one = EpisodeBuffer(
        observations=np.zeros((3, *space.shape), space.dtype),
        actions=np.array([0, 1], np.int32),
        rewards=rewards,
        terminations=[False, True],
        truncations=[False, False],
        infos=infos,
        **buffer,
    )
    minari.create_dataset_from_buffers(
        "mine-v0", [one], observation_space=space, action_space=spaces.Discrete(2, dtype=np.int32), data_format=format_
    )


def kinds(name: str = "mine-v0") -> dict[str, tuple[str, bool]]:
    return {one.kind: (one.text, one.replayed) for one in tc.check_dataset(name)}


def test_nothing_is_wrong() -> None:
    episode = EpisodeBuffer(
        seed=3,
        observations=np.zeros((2, 1), np.float32),
        actions=np.array([1]),
        rewards=[1.0],
        terminations=[True],
        truncations=[False],
    )
    minari.create_dataset_from_buffers(
        "mine-v0",
        [episode],
        observation_space=spaces.Box(-1, 1, (1,), np.float32),
        action_space=spaces.Discrete(2),
    )
    assert tc.check_dataset("mine-v0") == []


@pytest.mark.parametrize("format_", ["parquet", "hdf5"])
def test_long_episodes(format_: str) -> None:
    made_by_minari(format_, LONG, 3)
    found = kinds()
    assert ("long_episodes" in found) == (format_ == "parquet")
    if format_ == "parquet":
        text, replayed = found["long_episodes"]
        assert text.startswith("1 episode (0): more than 32,767 steps in the format 'parquet'")
        assert replayed


def test_infos_that_minari_cannot_read_and_pictures_that_it_has_changed() -> None:
    made("parquet", infos={"lives": np.arange(3)}, rewards=[1.0, float("nan")], pictures=True)
    found = kinds()
    assert found["unreadable_infos"][0].startswith("1 episode (0): information of one number for each step")
    assert found["lossy_pictures"][0] == "observation_space: pictures (all) are stored as JPEG, which changes them"
    assert found["nan_rewards"][0] == "1 episode (0): rewards that are no finite numbers"
    assert found["no_seeds"][0].startswith("1 episode (0): no seed")


def test_types_that_the_loaded_space_has_not() -> None:
    made("hdf5", infos={}, rewards=[1.0, 1.0], seed=5)
    assert kinds() == {"types": ("action: stored as int32, and its space is loaded as one of int64", False)}


async def test_keys_that_were_played_in_another_order() -> None:
    game = Unsorted()
    async with recording(game) as platform:
        await play(platform, game, "one", seed=4)
        await tc.export_async(platform, minari="tests/game-v0")
    found = kinds("tests/game-player_0-v0")
    assert found["unsorted_keys"][0].startswith("observation_space: the keys were ['z', 'a'] when it was played")
    assert found["unsorted_keys"][1]
    assert found["types"][1], "replays have the types that were played"


async def test_keys_within_keys_that_were_played_in_another_order() -> None:
    inner = Dict({"d": Box(-1, 1, (1,), np.float64), "c": Box(-1, 1, (1,), np.float64)})
    game = Solo(Dict({"a": Box(-1, 1, (1,), np.float64), "b": Tuple((inner,))}))
    async with recording(game) as platform:
        await play(platform, game, "one", seed=4)
        await tc.export_async(platform, minari="tests/deep-v0")
    assert kinds("tests/deep-v0") == {
        "unsorted_keys": (
            "observation_space.b.0: the keys were ['d', 'c'] when it was played, and are loaded as ['c', 'd']: "
            "flattened values have their columns in another order",
            True,
        )
    }


def test_what_is_not_there() -> None:
    with pytest.raises(NotFoundError, match="no data set of Minari of this id here"):
        tc.check_dataset("nowhere-v0")


def test_a_folder_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"expected the id of a data set of Minari, got a folder"):
        tc.check_dataset(str(tmp_path))


async def test_pictures_that_are_stored_as_they_are() -> None:
    game = Solo()
    async with recording(game) as platform:
        await play(platform, game, "one", seed=4)
        await tc.export_async(platform, minari="tests/solo-v0", minari_metadata={"author_email": "ann@localhost"})
    assert kinds("tests/solo-v0") == {}
    metadata = minari.load_dataset("tests/solo-v0").storage.metadata
    assert metadata["author_email"] == {"ann@localhost"}
    # Sets are read by later versions, too.
    assert set(metadata["trio_cogment"]) >= {"observation_space", "action_space"}
