#!/usr/bin/env bash
# minari.combine_datasets leaves the seeds of the episodes behind.
#
# Versions:  minari==0.5.4, gymnasium==1.4.0, numpy==2.4.6
# Guessed:   a combined data set has the episodes of its parts, with their metadata: the seed with which each was begun,
#            above all.
# Behaviour: observations, actions and lengths are there, the seeds are not: the metadata of every episode has lost the
#            key, without a word. Those of the parts have it.
# Matters:   what was gathered by several workers, and then combined, can not be played again from its seeds, nor told
#            apart by them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "minari[hdf5]==0.5.4" gymnasium==1.4.0 numpy==2.4.6 pillow
MINARI_DATASETS_PATH="$folder/sets" "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import gymnasium
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer


def made(name: str, seeds: list[int]) -> minari.MinariDataset:
    episodes = [
        EpisodeBuffer(
            id=number,
            seed=seed,
            observations=np.zeros((3, 1), np.float32),
            actions=np.zeros(2, np.int64),
            rewards=[0.0, float(seed)],
            terminations=[False, True],
            truncations=[False, False],
            infos={},
        )
        for number, seed in enumerate(seeds)
    ]
    return minari.create_dataset_from_buffers(
        name,
        episodes,
        observation_space=gymnasium.spaces.Box(-1, 1, (1,), np.float32),
        action_space=gymnasium.spaces.Discrete(2),
    )


def seeds_of(data_set: minari.MinariDataset) -> list[object]:
    count = range(data_set.total_episodes)
    found = [dict(one).get("seed") for one in data_set.storage.get_episode_metadata(count)]
    return [None if seed is None else int(seed) for seed in found]


parts = [made("parts/one-v0", [11, 12]), made("parts/two-v0", [21, 22])]
whole = minari.combine_datasets(parts, "parts/all-v0")
rewards = [float(episode.rewards[-1]) for episode in whole]
print([seeds_of(part) for part in parts], seeds_of(whole), rewards)
assert [seeds_of(part) for part in parts] == [[11, 12], [21, 22]], "it behaves otherwise now"
assert rewards == [11.0, 12.0, 21.0, 22.0], "it behaves otherwise now"
assert seeds_of(whole) == [None] * 4, "it behaves otherwise now"
PYTHON
