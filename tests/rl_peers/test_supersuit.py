"""SuperSuit, PettingZoo's usual way to Stable-Baselines3, over trials: it pickles the environments that it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import trio_cogment.rl as tc

pytestmark = pytest.mark.rl_peers


def test_ppo_learns_for_all_agents_of_several_games(tmp_path: Path) -> None:
    import supersuit
    from stable_baselines3 import PPO

    store = f"sqlite:{tmp_path / 'trials.db'}"
    game: Any = tc.make_parallel("rps_v2", store=store)
    rows = supersuit.pettingzoo_env_to_vec_env_v1(game)
    envs = supersuit.concat_vec_envs_v1(rows, 2, base_class="stable_baselines3")
    assert envs.num_envs == 4
    model = PPO("MlpPolicy", envs, n_steps=64, device="cpu")
    before = [each.detach().clone() for each in model.policy.parameters()]
    model.learn(512)
    assert any(not after.equal(then) for after, then in zip(model.policy.parameters(), before, strict=True))
    # Of a zero-sum game, with rewards for both players of both games.
    rewards = model.rollout_buffer.rewards
    assert rewards.shape == (64, 4)
    assert (rewards[:, ::2] == -rewards[:, 1::2]).all()
    assert rewards.any(axis=0).all()
    envs.close()
    game.close()
    # A game ends after fifteen rounds, and both played 512 / 4.
    assert tc.export(store, parquet=tmp_path / "data").trials >= 2 * (512 // 4 // 15)


class Drawn(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Shows two agents numbers of its own generator, three times."""

    metadata = {"name": "drawn_v0"}  # noqa: RUF012  PettingZoo's own form
    possible_agents = ["a", "b"]  # noqa: RUF012  the same
    render_mode = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (1,), np.float64)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None or not hasattr(self, "generator"):
            self.generator = np.random.default_rng(seed)
        self.agents, self.left = list(self.possible_agents), 3
        return self._shown(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        agents, self.left = self.agents, self.left - 1
        self.agents = agents if self.left else []
        zeros, none = dict.fromkeys(agents, 0.0), dict.fromkeys(agents, False)
        return self._shown(), zeros, dict.fromkeys(agents, not self.left), none, {agent: {} for agent in agents}

    def _shown(self) -> dict[str, Any]:
        return {agent: self.generator.random(1) for agent in self.possible_agents}


def test_a_seed_of_several_games() -> None:
    import supersuit

    def seen(seed: int) -> list[Any]:
        game: Any = tc.make_parallel(Drawn)
        rows = supersuit.pettingzoo_env_to_vec_env_v1(game)
        envs = supersuit.concat_vec_envs_v1(rows, 2, base_class="stable_baselines3")
        envs.venv.reset(seed=seed)
        found = [envs.reset().tolist(), *(envs.step(np.zeros(4, int))[0].tolist() for _ in range(7))]
        envs.close()
        game.close()
        return found

    first = seen(3)
    assert first == seen(3)
    assert first != seen(4)
    assert len({str(row) for now in first for row in now}) == 4 * len(first), "each game has a seed of its own"


def test_games_in_processes() -> None:
    import supersuit

    game: Any = tc.make_parallel("rps_v2")
    rows = supersuit.pettingzoo_env_to_vec_env_v1(game)
    envs = supersuit.concat_vec_envs_v1(rows, 2, num_cpus=2, base_class="gymnasium")
    assert envs.reset(seed=1)[0].tolist() == [3, 3, 3, 3]
    assert envs.step(np.array([0, 1, 2, 0]))[1].tolist() == [-1, 1, -1, 1]
    envs.close()
    game.close()


@pytest.mark.filterwarnings("ignore")  # of its own
def test_stacked_frames_are_stored_as_they_were(tmp_path: Path) -> None:
    """The wrapper gives the same array in every step; a view gives what it gave."""
    import gymnasium
    import supersuit

    def stacked() -> Any:
        return supersuit.frame_stack_v1(gymnasium.make("CartPole-v1"), 3)

    bare = stacked()
    seen = [bare.reset(seed=1)[0].copy(), *(bare.step(1)[0].copy() for _ in range(3))]
    store = f"sqlite:{tmp_path / 'trials.db'}"
    view = tc.make(stacked, store=store)
    found = [view.reset(seed=1)[0].copy(), *(view.step(1)[0].copy() for _ in range(3))]
    view.close()
    assert np.array_equal(found, seen)
    tc.export(store, parquet=tmp_path / "data")
    replay: Any = tc.replay_environment(tmp_path / "data")
    stored = [replay.reset(None, None), *(replay.step({}) for _ in range(3))]
    assert np.array_equal([one["player_0"].value for one in stored], seen)
