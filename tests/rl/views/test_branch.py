"""Branches of stored trials: with the same actions the same rest, bit for bit; with others, others only from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs

import trio_cogment.rl as tc
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.platform import Platform
from trio_cogment.sdk import StoredSample, StoredTrial


class Walk(dm_env.Environment):  # type: ignore[misc]  # dm_env has no types
    """A walk with steps that are drawn by lot, ended by a distance, or cut off."""

    def __init__(self) -> None:
        self.seed(0)

    def seed(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def observation_spec(self) -> Any:
        return {"at": specs.Array((), np.float64), "drawn": specs.Array((2,), np.float32)}

    def action_spec(self) -> Any:
        return specs.DiscreteArray(3)

    def reset(self) -> Any:
        self.at, self.steps = 0.0, 0
        return dm_env.restart(self._seen())

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.at += (int(action) - 1) * self._rng.random()
        if abs(self.at) > 1:
            return dm_env.termination(1.0, self._seen())
        return dm_env.transition(0.1, self._seen()) if self.steps < 9 else dm_env.truncation(0.1, self._seen())

    def _seen(self) -> Any:
        return {"at": np.array(self.at), "drawn": self._rng.random(2, np.float32)}


class Saving(gymnasium.Env[Any, Any]):
    """Draws by lot, ends after ten steps, and saves itself; `made` counts the steps that were made by anybody."""

    made = 0

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 100, (2,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.total, self.steps = 0, 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        Saving.made += 1
        self.steps += 1
        self.total += int(action)
        return self._seen(), float(action), self.steps == 10, False, {"total": self.total}

    def _seen(self) -> Any:
        return np.array([self.total, self.np_random.random()])

    def get_state(self) -> Any:
        state = self.np_random.bit_generator.state
        halves = [(number >> 64, number & (2**64 - 1)) for number in state["state"].values()]
        return {"random": np.array(halves, np.uint64), "total": self.total, "steps": self.steps}

    def set_state(self, state: Any) -> None:
        high_and_low = [(int(high) << 64) | int(low) for high, low in state["random"]]
        generator: Any = np.random.PCG64()
        generator.state = {
            "bit_generator": "PCG64",
            "state": dict(zip(("state", "inc"), high_and_low, strict=True)),
            "has_uint32": 0,
            "uinteger": 0,
        }
        self.np_random = np.random.Generator(generator)
        self.total, self.steps = int(state["total"]), int(state["steps"])


#: How each environment is made, and how often its episodes are cut off.
GAMES: dict[str, Callable[..., Any]] = {
    "CartPole": lambda **more: tc.make("CartPole-v1", **more),
    "FrozenLake": lambda **more: tc.make("FrozenLake-v1", **more),
    "Pendulum": lambda **more: tc.make("Pendulum-v1", max_episode_steps=9, **more),
    "rock-paper-scissors": lambda **more: tc.make_parallel("rps_v2", num_actions=5, max_cycles=8, **more),
    "tic-tac-toe": lambda **more: tc.make_aec("tictactoe_v3", **more),
    "dm_env": lambda **more: tc.make(Walk, **more),
    "saves itself": lambda **more: tc.make(Saving, **more),
}
#: What cannot be made again by its name.
MAKERS: dict[str, Any] = {"dm_env": Walk, "saves itself": Saving}


def plain(value: Any) -> Any:
    """Return a value so that what is equal is the same bit for bit."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, float):
        return value.hex()
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def turns(env: Any) -> list[Any]:
    """Return the agents of a view that are to act now, of one of turns; else none."""
    return [] if not hasattr(env, "agent_selection") or not env.agents else [env.agent_selection]


class Game:
    """A view of any kind, played tick by tick."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.over = False

    def reset(self, seed: int | None = None) -> Any:
        self.over = False
        if isinstance(self.env, gymnasium.Env):
            return self.env.reset(seed=seed)[0]
        if hasattr(self.env, "agent_selection") or isinstance(self.env, tc.TrialAECEnv):
            self.env.reset(seed=seed)
            return self.env.observe(self.env.agent_selection)
        return self.env.reset(seed=seed)[0]

    def draw(self, rng: np.random.Generator) -> Any:
        env = self.env
        if isinstance(env, gymnasium.Env):
            return _drawn(env.action_space, rng)
        if isinstance(env, tc.TrialAECEnv):
            mask = env.observe(env.agent_selection)["action_mask"]
            return int(rng.choice(np.flatnonzero(mask)))
        return {agent: _drawn(env.action_space(agent), rng) for agent in env.agents}

    def step(self, action: Any) -> Any:
        env = self.env
        if isinstance(env, gymnasium.Env):
            found = env.step(action)
            self.over = found[2] or found[3]
            return found
        if isinstance(env, tc.TrialAECEnv):
            env.step(action)
            seen = {agent: env.observe(agent) for agent in env.agents}
            ended = dict(env.terminations)
            rewards = dict(env.rewards)
            self.over = any(ended.values())
            return seen, rewards, ended
        found = env.step(action)
        self.over = not env.agents
        return found


def _drawn(space: Any, rng: np.random.Generator) -> Any:
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(rng.integers(space.n))
    return rng.uniform(space.low, space.high).astype(space.dtype)


class Episode:
    """An episode that was played in a stored trial."""

    def __init__(self, game: Game, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.seen = [game.reset(seed)]
        self.actions: list[Any] = []
        self.found: list[Any] = []
        while not game.over:
            self.actions.append(game.draw(rng))
            self.found.append(game.step(self.actions[-1]))
        self.trial_id = game.env.trial_id

    def rest(self, tick: int) -> Any:
        return plain(self.found[tick:])


@contextmanager
def branched(name: str, env: Any, trial_id: str, tick: int, **more: Any) -> Iterator[Any]:
    view = tc.branch(env, trial_id, tick=tick, environment=MAKERS.get(name), **more)
    try:
        yield view
    finally:
        view.close()


def check_every_tick(name: str, env: Any, episode: Episode) -> None:
    """From every tick, the same actions lead to the same rest; another one does not change what was before."""
    for tick in range(len(episode.actions)):
        with branched(name, env, episode.trial_id, tick) as view:
            game = Game(view)
            game.reset()
            assert plain([game.step(action) for action in episode.actions[tick:]]) == episode.rest(tick), tick


@pytest.mark.parametrize("name", GAMES)
def test_the_same_actions_lead_to_the_same_rest_from_every_tick(name: str) -> None:
    env = GAMES[name](store="memory:")
    check_every_tick(name, env, Episode(Game(env), 5))
    env.close()


@pytest.mark.soak
@pytest.mark.parametrize("checkpoints", [0, 3])
@pytest.mark.parametrize("name", GAMES)
def test_so_of_fifty_episodes(name: str, checkpoints: int) -> None:
    config = PlatformConfig(orchestrator=OrchestratorConfig(checkpoint_ticks=checkpoints))
    env = GAMES[name](options=tc.PlatformOptions(store="memory:", config=config))
    for seed in range(50):
        check_every_tick(name, env, Episode(Game(env), seed))
    env.close()


@pytest.mark.parametrize("name", ["CartPole", "rock-paper-scissors", "tic-tac-toe"])
def test_other_actions_change_nothing_before(name: str, tmp_path: Path) -> None:
    env = GAMES[name](store=f"sqlite:{tmp_path / 'trials.db'}")
    episode = Episode(Game(env), 7)
    tick = len(episode.actions) // 2
    with branched(name, env, episode.trial_id, tick) as view:
        game = Game(view)
        rng = np.random.default_rng(1)
        while True:
            first = plain(game.reset())
            actions, found = [], []
            while not game.over:
                actions.append(game.draw(rng))
                found.append(game.step(actions[-1]))
            if plain(actions) != plain(episode.actions[tick:]):
                break
        assert plain(found) != episode.rest(tick)
        other = view.trial_id
    env.close()
    before, after = stored(tmp_path / "trials.db", episode.trial_id), stored(tmp_path / "trials.db", other)
    assert [sample.tick_id for sample in after] == list(range(tick, tick + len(after)))
    assert first is not None
    for actor in before[tick].actors:
        told = before[tick].actors[actor].observation
        now = after[0].actors[actor].observation
        assert told is not None
        assert now is not None
        for field in ("observation_space", "action_space"):
            told.ClearField(field)
            now.ClearField(field)
        assert told.SerializeToString() == now.SerializeToString()
    trial = described(tmp_path / "trials.db", other)
    assert (trial.params.properties["branch.trial"], trial.params.properties["branch.tick"]) == (
        episode.trial_id,
        str(tick),
    )


def _read(path: Path, read: Callable[[Platform], Any]) -> Any:
    import trio

    from trio_cogment import open_platform
    from trio_cogment.environments.spec import RL_SPEC

    async def main() -> Any:
        async with open_platform(RL_SPEC, store=f"sqlite:{path}") as platform:
            return await read(platform)

    return trio.run(main)


def stored(path: Path, trial_id: str) -> list[StoredSample]:
    async def read(platform: Platform) -> list[StoredSample]:
        return [sample async for sample in platform.datastore_client().samples([trial_id])]

    found: list[StoredSample] = _read(path, read)
    return found


def described(path: Path, trial_id: str) -> StoredTrial:
    async def read(platform: Platform) -> StoredTrial:
        (found,) = await platform.datastore_client().trials([trial_id])
        return found

    found: StoredTrial = _read(path, read)
    return found
