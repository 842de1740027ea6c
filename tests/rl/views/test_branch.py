"""Branches of stored trials: with the same actions the same rest, bit for bit; with others, others only from there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dm_env
import gymnasium
import minari
import numpy as np
import pyarrow.parquet as pq
import pytest
from dm_env import specs

import trio_cogment.rl as tc
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trio_cogment.environments.base import SINGLE_AGENT
from trio_cogment.platform import Platform
from trio_cogment.rl.views.branch import _target
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
    view = tc.branch(env, trial_id, tick=tick, **{"environment": MAKERS.get(name), **more})
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


@pytest.mark.parametrize("name", GAMES)
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


def test_exports_say_of_which_trial_one_is_a_branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    path = f"sqlite:{tmp_path / 'trials.db'}"
    env = GAMES["CartPole"](store=path)
    episode = Episode(Game(env), 3)
    with branched("CartPole", env, episode.trial_id, 4) as view:
        game = Game(view)
        game.reset()
        while not game.over:
            game.step(1)
        other = view.trial_id
    env.close()
    tc.export(path, parquet=tmp_path / "data", minari="cart/branches-v0")
    rows = pq.read_table(tmp_path / "data" / "meta" / "trials.parquet").to_pylist()
    lineage = {row["trial_id"]: (row["branch_trial"], row["branch_tick"]) for row in rows}
    assert lineage == {episode.trial_id: (None, None), other: (episode.trial_id, 4)}
    storage = minari.load_dataset("cart/branches-v0").storage
    notes = {note["trial_id"]: note for note in storage.get_episode_metadata(range(2))}
    assert "branch_trial" not in notes[episode.trial_id]
    assert (notes[other]["branch_trial"], notes[other]["branch_tick"]) == (episode.trial_id, 4)


def test_it_saves_itself_where_it_is_asked_to(tmp_path: Path) -> None:
    config = PlatformConfig(orchestrator=OrchestratorConfig(checkpoint_ticks=3))
    options = tc.PlatformOptions(store=f"sqlite:{tmp_path / 'trials.db'}", config=config)
    env = GAMES["saves itself"](options=options)
    episode = Episode(Game(env), 4)
    check_every_tick("saves itself", env, episode)
    for tick, made in ((2, 2), (3, 0), (4, 1), (9, 0)):
        with branched("saves itself", env, episode.trial_id, tick) as view:
            before = Saving.made
            Game(view).reset()
            assert Saving.made - before == made, tick
    env.close()


@pytest.mark.parametrize("damage", ["half", "bits"])
def test_a_damaged_checkpoint_is_passed_over(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    config = PlatformConfig(orchestrator=OrchestratorConfig(checkpoint_ticks=3))
    env = GAMES["saves itself"](options=tc.PlatformOptions(store=f"sqlite:{path}", config=config))
    episode = Episode(Game(env), 4)
    env.close()

    async def spoil(platform: Platform) -> None:
        client = platform.datastore_client()
        (found,) = [s.message async for s in client.samples([episode.trial_id]) if s.tick_id == 6]
        content = found.checkpoint.content
        found.checkpoint.content = content[:-1] if damage == "half" else bytes([content[0] ^ 1]) + content[1:]
        async with client.adding(episode.trial_id) as adder:
            await adder.add(found)

    _read(path, spoil)
    env = GAMES["saves itself"](store=f"sqlite:{path}")
    with branched("saves itself", env, episode.trial_id, 7) as view:
        before, game = Saving.made, Game(view)
        game.reset()
        assert Saving.made - before == 4  # from tick 3
        assert plain([game.step(action) for action in episode.actions[7:]]) == episode.rest(7)
    env.close()


class Drifting(gymnasium.Env[Any, Any]):
    """Its fourth observation is another one with each object."""

    objects = 0

    def __init__(self) -> None:
        Drifting.objects += 1
        self.number = Drifting.objects
        self.observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        drift = self.number if self.steps >= 4 else 0
        return np.full(1, self.steps + drift, np.float32), 1.0, False, self.steps == 8, {}


def test_one_that_depends_on_more_than_its_seed_is_noticed_at_its_first_different_tick() -> None:
    env = tc.make(Drifting, store="memory:")
    episode = Episode(Game(env), 1)
    for tick in range(8):
        with branched("", env, episode.trial_id, tick, environment=Drifting) as view:
            if tick < 4:
                Game(view).reset()
                continue
            with pytest.raises(tc.TakingUpError) as caught:
                view.reset()
            assert (caught.value.tick, caught.value.actor) == (4, SINGLE_AGENT)
            assert str(caught.value).startswith(
                "environment 'Drifting', tick 4, actor 'player_0': observation: expected"
            )
    env.close()


def test_a_trial_without_a_seed_whose_environment_draws_is_noticed_at_once() -> None:
    env = tc.make("CartPole-v1", store="memory:")
    env.reset(seed=1)
    env.reset()  # goes on with the generator
    env.step(0)
    trial_id = env.trial_id
    with branched("", env, trial_id, 0) as view, pytest.raises(tc.TakingUpError, match="the stored trial has no seed"):
        view.reset()
    env.close()


def test_one_that_still_runs_can_be_branched_at_what_has_been_played(tmp_path: Path) -> None:
    env = GAMES["CartPole"](store=f"sqlite:{tmp_path / 'trials.db'}")
    found = [env.reset(seed=3)[0]]
    for tick in range(4):
        found.append(env.step(tick % 2)[0])  # it goes on undisturbed
        with branched("", env, env.trial_id, tick) as view:
            assert plain(view.reset()[0]) == plain(found[tick])
            assert view.trial_id != env.trial_id
    with pytest.raises(NotFoundError, match="tick 9: expected one that is stored"):
        tc.branch(env, env.trial_id, tick=9)
    env.close()


def test_others_take_the_seats() -> None:
    env = GAMES["rock-paper-scissors"](store="memory:")
    episode = Episode(Game(env), 2)
    seats = {"player_1": tc.policy(lambda value: 2)}
    with branched("", env, episode.trial_id, 3, seats=seats) as view:
        assert isinstance(view, tc.TrialParallelEnv)
        view.reset()
        assert view.step({"player_0": 0})[0]["player_0"] == 2
    with branched("", env, episode.trial_id, 3, seats=seats, seat="player_0") as view:
        assert isinstance(view, tc.TrialEnv)
        view.reset(seed=4)
        assert view.step(0)[0] == 2
    env.close()


def test_a_branch_begins_again_with_each_reset_and_can_be_copied() -> None:
    env = GAMES["CartPole"](store="memory:")
    episode = Episode(Game(env), 2)
    with branched("", env, episode.trial_id, 5) as view:
        first, _ = view.reset()
        ids = {view.trial_id}
        for _ in range(2):
            view.step(1)
            again, _ = view.reset()
            assert plain(again) == plain(first)
            ids.add(view.trial_id)
        assert len(ids) == 3
        other = copy.deepcopy(view)
        assert plain(other.reset()[0]) == plain(first)
        other.close()
        with pytest.raises(InvalidArgumentError, match="reset: options: expected none"):
            view.reset(options={"low": 0})
    env.close()


def test_what_cannot_be_taken_up_is_said() -> None:
    env = tc.make(Walk, store="memory:")
    episode = Episode(Game(env), 2)
    with pytest.raises(FailedPreconditionError, match=r"; pass environment=, as to make$"):
        tc.branch(env, episode.trial_id, tick=0, environment=None)
    with pytest.raises(NotFoundError, match="there is no trial 'nobody'"):
        tc.branch(env, "nobody", tick=0)
    with pytest.raises(NotFoundError, match="tick 99: expected one that is stored"):
        tc.branch(env, episode.trial_id, tick=99)
    with branched("dm_env", env, episode.trial_id, len(episode.actions)) as view:
        if episode.found[-1][2]:  # terminated: there is nothing to go on with
            with pytest.raises(tc.TakingUpError, match="expected it to go on; the episode is over"):
                view.reset()
    env.close()


def test_one_that_was_only_cut_off_goes_on_behind_its_end() -> None:
    view = tc.make("CartPole-v1", store="memory:", max_episode_steps=6)
    episode = Episode(Game(view), 1)
    assert episode.found[-1][3] is True
    longer: Any = tc.branch(view, episode.trial_id, tick=4, environment="CartPole-v1")
    longer.reset()
    assert not any(longer.step(action)[3] for action in (0, 1, 0, 1))
    longer.close()
    view.close()


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


@pytest.mark.parametrize("name", ["", "somewhere:Environment-v0", "package.module", "gymnasium.envs:CartPole"])
def test_a_trial_names_no_code_that_is_imported(name: str) -> None:
    """Whoever has stored it may be anybody."""
    with pytest.raises(FailedPreconditionError, match="expected one that can be made again from what is stored"):
        _target("t", EnvironmentConfig(id=name), {})
    assert _target("t", EnvironmentConfig(id="CartPole-v1"), {}) == "CartPole-v1"
