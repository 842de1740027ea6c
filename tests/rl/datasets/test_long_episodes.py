"""Episodes of Minari that are longer than what its reader takes for one."""

from __future__ import annotations

from pathlib import Path

import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from trio_cogment.rl import replay_environment

LONG = 33_000  # Minari's reader takes 32,768 observations for a whole episode


def counted(length: int) -> EpisodeBuffer:
    """Return an episode whose observations and rewards are the steps' numbers."""
    numbers = np.arange(length + 1)
    return EpisodeBuffer(
        observations={"count": numbers, "pair": (numbers[:, None].repeat(2, 1), [str(length)] * (length + 1))},
        actions=numbers[:-1] % 3,
        rewards=numbers[1:].astype(float).tolist(),
        terminations=[False] * (length - 1) + [True],
        truncations=[False] * length,
        infos={"deep": {"near": np.stack([numbers, -numbers], 1).astype(np.int32)}, "name": list(map(str, numbers))},
    )


def made_by_minari(format_: str, *lengths: int) -> None:
    pair = spaces.Tuple([spaces.Box(0, LONG, (2,), np.int64), spaces.Text(9)])
    minari.create_dataset_from_buffers(
        "mine-v0",
        [counted(length) for length in lengths],
        observation_space=spaces.Dict({"count": spaces.Discrete(LONG + 1), "pair": pair}),
        action_space=spaces.Discrete(3),
        data_format=format_,
    )


@pytest.mark.filterwarnings("ignore:.* is (set to )?None:UserWarning")
@pytest.mark.parametrize("format_", ["parquet", "arrow", "hdf5"])
def test_long_episodes_are_whole(tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    made_by_minari(format_, LONG, 3)
    replay = replay_environment("mine-v0", check_actions=True)
    for length in (LONG, 3):
        told = [replay.reset(None, None)["player_0"]]
        while not replay.over:
            told.append(replay.step({"player_0": np.int64((len(told) - 1) % 3)})["player_0"])
        assert len(told) == length + 1
        for tick in (1, length - 1, length):
            seen = told[tick]
            assert seen.value["count"] == tick
            assert seen.value["pair"][0].tolist() == [tick, tick]
            assert seen.value["pair"][1] == str(length)
            assert (seen.reward, seen.terminated) == (tick, tick == length)
            assert (seen.info["deep"]["near"].tolist(), seen.info["name"]) == ([tick, -tick], str(tick))
            assert seen.info["deep"]["near"].dtype == np.int32
