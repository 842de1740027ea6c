"""`SB3VecEnv` beside Stable-Baselines3's own vector environments, and what they are used with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

import trio_cogment.rl as tc
from tests.rl.views.environments import Masked
from trio_cogment.base.errors import InvalidArgumentError

pytestmark = pytest.mark.rl_peers


@pytest.fixture
def opened() -> Iterator[Callable[[Any], Any]]:
    """Closes environments in the end."""
    with ExitStack() as stack:

        def keep(env: Any) -> Any:
            stack.callback(env.close)
            return env

        yield keep


def both(name: str, opened: Callable[[Any], Any], **arguments: Any) -> tuple[Any, Any]:
    from stable_baselines3.common.vec_env import DummyVecEnv

    bare = opened(DummyVecEnv([lambda: gymnasium.make(name, **arguments)] * 3))
    return opened(tc.SB3VecEnv(tc.make_vec(name, 3, **arguments))), bare


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_equals_the_bare_environments(name: str, opened: Callable[[Any], Any]) -> None:
    """Ends and time limits among them: Pendulum is cut off after fifty steps here."""
    arguments = {"max_episode_steps": 50} if name == "Pendulum-v1" else {}
    ours, bare = both(name, opened, **arguments)
    assert (ours.observation_space, ours.action_space) == (bare.observation_space, bare.action_space)
    assert ours.seed(5) == bare.seed(5)
    assert data_equivalence(ours.reset(), bare.reset())
    bare.action_space.seed(1)
    ends = cut = 0
    for _ in range(120):
        actions = np.array([bare.action_space.sample() for _ in range(3)])
        found, expected = ours.step(actions), bare.step(actions)
        assert data_equivalence(found, expected)
        assert data_equivalence(ours.reset_infos, bare.reset_infos)
        ends += int(found[2].sum())
        cut += sum(info["TimeLimit.truncated"] for info in found[3])
    assert ends > 3
    assert cut == (6 if name == "Pendulum-v1" else 0)


def test_what_is_no_vector_environment(opened: Callable[[Any], Any]) -> None:
    env = opened(tc.make("CartPole-v1"))
    with pytest.raises(InvalidArgumentError, match="got TrialEnv; Stable-Baselines3 takes that as it is"):
        tc.SB3VecEnv(env)
    with pytest.raises(InvalidArgumentError, match=r"expected what make_vec\(environment, number\) returns, got str"):
        tc.SB3VecEnv("CartPole-v1")  # type: ignore[arg-type]  # what is refused


def test_attributes_and_methods(opened: Callable[[Any], Any]) -> None:
    ours, bare = both("CartPole-v1", opened, render_mode="rgb_array")
    for env in (ours, bare):
        env.seed(1)
        env.reset()
    assert ours.render_mode == bare.render_mode == "rgb_array"
    assert (ours.render() == bare.render()).all()
    assert ours.get_attr("agent", [0, 2]) == ["player_0"] * 2
    ours.set_attr("mark", 7, 1)
    assert ours.get_attr("mark", 1) == [7]
    assert not ours.has_attr("nothing_of_the_kind")
    assert ours.env_is_wrapped(gymnasium.Wrapper) == [False] * 3
    assert len(set(ours.trial_ids)) == 3


def test_ppo_learns_on_what_make_vec_gives(opened: Callable[[Any], Any]) -> None:
    """Stable-Baselines3 takes no vector environment of Gymnasium as it is."""
    from stable_baselines3 import PPO

    vector = opened(tc.make_vec("CartPole-v1", 2))
    # Where there is no wrapper, this fails as it does for users.
    env = getattr(tc, "SB3VecEnv", lambda given: given)(vector)
    model = PPO("MlpPolicy", env, seed=1, n_steps=32, batch_size=32, device="cpu").learn(64)
    assert model.num_timesteps == 64


def test_ppo_is_the_same_with_monitor_evaluation_save_and_load(tmp_path: Path, opened: Callable[[Any], Any]) -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

    def learned(env: Any, path: Path) -> Any:
        watched = VecMonitor(env)
        model = PPO("MlpPolicy", VecNormalize(watched), seed=1, n_steps=64, device="cpu")
        model.learn(384)
        episodes = [(info["r"], info["l"]) for info in model.ep_info_buffer or ()]
        model.save(path)
        normal = model.get_vec_normalize_env()
        assert normal is not None
        normal.save(str(path.with_suffix(".pkl")))
        again = PPO.load(path, env=VecNormalize.load(str(path.with_suffix(".pkl")), watched), device="cpu")
        again.learn(192)
        again.env.seed(3)
        return episodes, evaluate_policy(again, again.env, n_eval_episodes=6, return_episode_rewards=True)

    ours, bare = both("CartPole-v1", opened)
    expected = learned(bare, tmp_path / "bare.zip")
    assert len(expected[0]) > 5
    assert learned(ours, tmp_path / "ours.zip") == expected


def test_sac_on_continuous_actions_and_copies(opened: Callable[[Any], Any]) -> None:
    from stable_baselines3 import SAC

    ours, _ = both("Pendulum-v1", opened)
    model = SAC("MlpPolicy", ours, seed=1, learning_starts=20, device="cpu")
    model.learn(60)
    other = opened(copy.deepcopy(ours))
    assert other.reset().shape == (3, 3)
    assert other.trial_ids != ours.trial_ids


@pytest.mark.parametrize("vector", [False, True])
def test_maskable_ppo_keeps_to_the_masks(vector: bool, opened: Callable[[Any], Any]) -> None:
    """The environment refuses what its mask does not allow."""
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.maskable.evaluation import evaluate_policy
    from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported

    for kind in Masked.KINDS:
        env: Any = tc.SB3VecEnv(tc.make_vec(Masked, 2, kind=kind)) if vector else tc.make(Masked, kind=kind)
        opened(env)
        assert is_masking_supported(env)
        env.reset()
        assert np.atleast_2d(get_action_masks(env))[0].tolist() == Masked.KINDS[kind][2]
        model = MaskablePPO("MlpPolicy", env, seed=1, n_steps=32, batch_size=32, device="cpu")
        model.learn(128)
        mean, _ = evaluate_policy(model, env, n_eval_episodes=4, warn=False)
        assert mean == 5


def test_a_game_against_somebody_else(tmp_path: Path, opened: Callable[[Any], Any]) -> None:
    from stable_baselines3 import PPO

    store = f"sqlite:{tmp_path / 'trials.db'}"
    seats = {"player_1": tc.policy(lambda _: 0)}
    env = opened(tc.SB3VecEnv(tc.make_vec("rps_v2", 4, seats=seats, store=store)))
    model = PPO("MlpPolicy", env, seed=1, n_steps=60, batch_size=60, learning_rate=0.01, device="cpu")
    model.learn(2400)
    assert model.predict(np.array([0]), deterministic=True)[0].tolist() == [1]  # paper
    env.close()
    assert tc.export(store, parquet=tmp_path / "data").trials >= 2400 // 15
