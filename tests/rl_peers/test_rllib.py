"""RLlib's wrapper of PettingZoo environments, on trials. It needs an older Gymnasium than the others have."""

from __future__ import annotations

from typing import Any

import pytest

import trio_cogment.rl as tc

pytestmark = [
    pytest.mark.rl_peers,
    # Of Ray's own use of itself and of others.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def played(env: Any, rounds: int) -> list[Any]:
    """Play rounds of rock, paper, scissors in RLlib's interface; return all that it said."""
    observations, infos = env.reset(seed=5)
    said: list[Any] = [observations, infos]
    for number in range(rounds):
        said.append(env.step({"player_0": number % 3, "player_1": (number // 3) % 3}))
        if said[-1][2]["__all__"] or said[-1][3]["__all__"]:
            break
    env.close()
    return [plain(part) for part in said]


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(part) for part in value)
    return value.tolist() if hasattr(value, "tolist") else value


def test_parallel_pettingzoo_env() -> None:
    from pettingzoo.classic import rps_v2
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    ours = ParallelPettingZooEnv(tc.make_parallel("rps_v2", max_cycles=9))
    assert set(ours.possible_agents) == {"player_0", "player_1"}
    bare = played(ParallelPettingZooEnv(rps_v2.parallel_env(max_cycles=9)), 30)
    assert len(bare) == 11
    assert played(ours, 30) == bare
