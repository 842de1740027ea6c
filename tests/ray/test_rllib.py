"""RLlib and PyTorch on trials: env runners step views, each with a store of its own; PettingZoo's wrapper; batches."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_cogment.rl as tc
from tests.ray.cluster import Grid
from tests.ray.test_page import program
from trio_cogment.rl.datasets.sources import open_source
from trio_cogment.sdk import StoredTrial

#: With which a view is made in each process that steps trials.
Maker = Callable[[Any], Any]


def stored(folder: Path) -> list[list[StoredTrial]]:
    """Return the trials of each store in a folder."""

    async def read(path: Path) -> list[StoredTrial]:
        async with open_source(f"sqlite:{path}") as datastore:
            return await datastore.trials()

    return [trio.run(read, path) for path in sorted(folder.glob("*.db"))]


def trained(make: Maker, *, runners: int, environments: int = 1, mode: str = "sync") -> dict[str, Any]:
    """Train PPO for one iteration on a view, and return what RLlib says of its env runners."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    register_env("trials", make)
    config = (
        PPOConfig()
        .environment("trials")
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=environments,
            gym_env_vectorize_mode=mode,
            rollout_fragment_length="auto",
        )
        .training(train_batch_size=400, minibatch_size=200, num_epochs=1)
    )
    algorithm = config.build_algo()
    try:
        found: dict[str, Any] = algorithm.train()["env_runners"]
    finally:
        algorithm.stop()
    return found


@pytest.mark.parametrize("runners", [0, 1, 2])
def test_env_runners_step_trials(grid: Grid, tmp_path: Path, runners: int) -> None:
    grid.have(2)
    folder = str(tmp_path)
    said = trained(lambda _context: tc.make("CartPole-v1", store=f"sqlite:{folder}/{os.getpid()}.db"), runners=runners)
    assert said["num_env_steps_sampled"] >= 400
    assert said["episode_return_mean"] > 8
    stores = [trials for trials in stored(tmp_path) if trials]
    assert len(stores) == max(runners, 1)
    # One trial of each runner was going on when it was stopped.
    complete = sum(trial.is_complete for trials in stores for trial in trials)
    assert complete >= said["num_episodes"] - len(stores)
    assert sum(trial.samples_count for trials in stores for trial in trials) >= 400


def test_the_program_of_the_page(grid: Grid, tmp_path: Path) -> None:
    """That of RLlib in docs/many-trials.md: each of its env runners steps trials, and has a store."""
    grid.have(2)
    algorithm = program("rllib", **{"/data/": f"{tmp_path}/"})["algorithm"]
    try:
        counts = algorithm.env_runner_group.foreach_env_runner(
            lambda runner: sum(len(episode) for episode in runner.sample(num_timesteps=100)), local_env_runner=False
        )
    finally:
        algorithm.stop()
    assert len(counts) == 2
    assert min(counts) >= 100
    assert [sum(trial.samples_count for trial in trials) >= 100 for trials in stored(tmp_path) if trials] == [True] * 2


@pytest.mark.parametrize("runners", [0, 1, 2])
def test_a_vector_of_trials_in_an_env_runner(grid: Grid, tmp_path: Path, runners: int) -> None:
    grid.have(2)
    folder = str(tmp_path)

    def make(context: Any) -> Any:
        return tc.make_vec("CartPole-v1", context["num_envs"], store=f"sqlite:{folder}/{os.getpid()}.db")

    said = trained(make, runners=runners, environments=4, mode="vector_entry_point")
    assert said["episode_return_mean"] > 8
    stores = [trials for trials in stored(tmp_path) if trials]
    assert len(stores) == max(runners, 1)
    assert all(len(trials) >= 4 for trials in stores)


@pytest.mark.timeout(1200)
def test_ppo_learns_on_trials_that_are_recorded(grid: Grid, tmp_path: Path) -> None:
    """It holds the pole for 150 steps on average, as it does with CartPole alone; all that it did is in the file."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    path = tmp_path / "learnt.db"
    register_env("recorded", lambda _context: tc.make("CartPole-v1", store=f"sqlite:{path}"))
    config = (
        PPOConfig()
        .environment("recorded")
        .env_runners(num_env_runners=0)
        .training(train_batch_size=2000, minibatch_size=250, num_epochs=8, lr=1e-3, vf_loss_coeff=0.01)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[32], vf_share_layers=True))
        .debugging(seed=1)
    )
    algorithm = config.build_algo()
    means: list[float] = []
    steps = 0
    try:
        while len(means) < 60 and max(means, default=0) < 150:
            said = algorithm.train()["env_runners"]
            means.append(said["episode_return_mean"])
            steps += said["num_env_steps_sampled"]
    finally:
        algorithm.stop()
    assert means[-1] >= 150, means
    (trials,) = stored(tmp_path)
    assert sum(trial.samples_count for trial in trials) >= steps


@pytest.mark.parametrize("runners", [0, 1, 2])
def test_players_of_a_game(grid: Grid, tmp_path: Path, runners: int) -> None:
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.connectors.env_to_module import FlattenObservations
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
    from ray.tune.registry import register_env

    grid.have(2)
    folder = str(tmp_path)

    def make(_context: Any) -> Any:
        return ParallelPettingZooEnv(tc.make_parallel("rps_v2", store=f"sqlite:{folder}/{os.getpid()}.db"))

    register_env("game", make)
    config = (
        PPOConfig()
        .environment("game")
        # Discrete observations have no encoder of their own in RLlib.
        .env_runners(
            num_env_runners=runners,
            env_to_module_connector=lambda *_args, **_options: FlattenObservations(multi_agent=True),
        )
        .multi_agent(policies={"both"}, policy_mapping_fn=lambda *_args, **_options: "both")
        .training(train_batch_size=200, minibatch_size=100, num_epochs=1)
    )
    algorithm = config.build_algo()
    try:
        said = algorithm.train()["env_runners"]
    finally:
        algorithm.stop()
    assert said["num_episodes"] > 0
    stores = [trials for trials in stored(tmp_path) if trials]
    assert len(stores) == max(runners, 1)
    assert all(trial.actor_names == ["player_0", "player_1"] for trials in stores for trial in trials)


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


def mixed_ends() -> Any:
    """Return a game of one step: one of its two agents has lost then, and the other one's time is over."""
    import numpy as np
    from gymnasium import spaces
    from pettingzoo import ParallelEnv

    class MixedEnds(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
        def __init__(self) -> None:
            self.metadata = {"name": "mixed_ends_v0"}
            self.render_mode = None
            self.possible_agents = ["lost", "late"]

        def observation_space(self, agent: str) -> Any:
            return spaces.Box(-9, 9, (1,), np.float32)

        def action_space(self, agent: str) -> Any:
            return spaces.Discrete(3)

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            self.agents = list(self.possible_agents)
            return {agent: np.zeros(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

        def step(self, actions: dict[str, Any]) -> Any:
            self.agents = []
            here = self.possible_agents
            ends = [{agent: agent == who for agent in here} for who in here]
            seen = {agent: np.zeros(1, np.float32) for agent in here}
            return seen, dict.fromkeys(here, 1.0), *ends, {agent: {} for agent in here}

    return MixedEnds()


def test_ends_of_two_kinds_are_no_end_of_all() -> None:
    """To RLlib (docs/peers.md); a view says of each agent what happened, as the environment itself does."""
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    for made in (mixed_ends(), tc.make_parallel(mixed_ends)):
        env = ParallelPettingZooEnv(made)
        env.reset(seed=1)
        _, _, terminated, truncated, _ = env.step({"lost": 0, "late": 0})
        assert plain(terminated) == {"lost": True, "late": False, "__all__": False}
        assert plain(truncated) == {"lost": False, "late": True, "__all__": False}
        env.close()


def test_an_export_in_batches_of_torch(grid: Grid, tmp_path: Path) -> None:
    """By NumPy, Ray gives observations as objects (docs/peers.md); PyTorch has no texts, such as ids of trials."""
    import ray.data

    grid.have(2)
    store = f"sqlite:{tmp_path}/trials.db"
    tc.run_trials(4, environment="CartPole-v1", seats={"player_0": tc.random(seed=1)}, seeds=0, store=store)
    tc.export(store, parquet=str(tmp_path / "data"))
    found = ray.data.read_parquet(str(tmp_path / "data" / "data"), columns=["observation", "reward"])
    (batch, *_) = found.iter_torch_batches(batch_size=16)
    assert {name: tuple(values.shape) for name, values in batch.items()} == {"observation": (16, 4), "reward": (16,)}
