"""Data sets played again, as environments and as actors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pyarrow.parquet as pq
import pytest
import trio
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer
from pettingzoo import ParallelEnv
from pettingzoo.classic import rps_v2

from tests.rl.datasets.recorded import Duel, environment_of, params_of, play, recording
from tests.rl.datasets.test_long_episodes import made_by_minari
from tests.rl.datasets.test_minari import Solo
from tests.spaces.strategies import same
from trio_cogment.base.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from trio_cogment.base.outcome import EndCause
from trio_cogment.environments.base import Environment
from trio_cogment.environments.errors import InvalidActionError
from trio_cogment.rl import (
    export,
    export_async,
    make,
    make_environment,
    policy,
    random,
    replay_actor,
    replay_environment,
    run_trials,
)
from trio_cogment.rl.datasets.replaying import _at
from trio_cogment.spaces import Box, Dict, Discrete, Observation
from trio_cogment.spaces.masks import mask_in


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path


class Talkative(Duel):
    """Its information has values of types that JSON has not."""

    def _observations(self) -> Mapping[str, Observation]:
        told = super()._observations()
        for observation in told.values():
            observation.info.update(near=np.array([[0.1, self.count]], np.float32), way=(1, np.int64(2)), key=b"\xff")
        return told


async def recorded(game: Duel, folder: Path, *ids: str) -> Path:
    async with recording(game) as platform:
        for trial_id in ids:
            await play(platform, game, trial_id)
        await export_async(platform, parquet=folder / "data", minari="tests/game-v0")
    return folder / "data"


def equal(one: Observation, other: Observation) -> bool:
    """Whether two observations say the same."""
    if not other.alive:
        # One who is out gets its last value; the rest is nobody's business.
        other = Observation(other.value, active=False, alive=False)
    names = ["reward", "terminated", "truncated", "active", "alive", "action_mask"]
    if not same(one.info, other.info):
        return False
    return same(one.value, other.value) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in names
    )


@pytest.mark.parametrize("turns", [False, True])
async def test_an_episode_is_played_as_it_was(folder: Path, turns: bool) -> None:
    game = Talkative(turns=turns, out_at=3)
    data = await recorded(game, folder, "one", "two")
    for dataset in (data, str(data), "tests/game-v0"):
        replay = replay_environment(dataset, check_actions=True)
        assert (replay.agents, replay.episodes) == (["player_0", "player_1"], 2)
        assert replay.observation_spaces == game.observation_spaces
        for index in (0, 1, 0):
            told = replay.reset(None, None)
            for tick, expected in enumerate(game.told[index]):
                for agent in game.agents:
                    assert equal(told[agent], expected[agent]), (tick, agent)
                assert replay.over == (tick == 6)
                if not replay.over:
                    told = replay.step(game.actions[index][tick])
        with pytest.raises(FailedPreconditionError, match="step: expected a reset first"):
            replay.step({})
        replay.close()


class Unsorted(Duel):
    """Its spaces are what Minari does not load as they were: keys that are not sorted, numbers of 32 bits."""

    def __init__(self) -> None:
        super().__init__(out_at=None)
        parts = {"z": Box(-1, 1, (2,), np.float32), "a": Discrete(3, dtype="int32")}
        self.observation_spaces = dict.fromkeys(self.agents, Dict(parts))
        self.action_spaces = dict.fromkeys(self.agents, Discrete(3, dtype="int32"))


async def test_a_data_set_of_minari_has_the_spaces_that_were_played(folder: Path) -> None:
    game = Unsorted()
    await recorded(game, folder, "one")
    loaded = minari.load_dataset("tests/game-player_0-v0")
    assert list(loaded.observation_space.keys()) == ["a", "z"]
    assert loaded.action_space.dtype == np.int64, "so Minari says"
    for dataset in ("tests/game-v0", "tests/game-player_0-v0"):
        replay = replay_environment(dataset)
        told = replay.reset(None, None)["player_0"].value
        space = replay.observation_spaces["player_0"]
        assert isinstance(space, Dict)
        assert list(space.spaces) == ["z", "a"]
        assert replay.action_spaces["player_0"] == Discrete(3, dtype="int32")
        assert (list(told), told["a"].dtype) == (["z", "a"], np.int32)
        assert same(told, game.told[0][0]["player_0"].value)
        replay.close()


@pytest.mark.parametrize("format_", ["parquet", "minari"])
async def test_which_episode_a_reset_begins(folder: Path, format_: str) -> None:
    data = await recorded(Duel(), folder, "one", "two", "three")
    replay = replay_environment(data if format_ == "parquet" else "tests/game-v0")
    order = []
    for seed, options in ((None, None), (None, {}), (4, None), (None, None), (None, {"trial_id": "one"}), (None, None)):
        replay.reset(seed, options)
        order.append(replay.trial_id)
    assert order == ["one", "two", "two", "three", "one", "two"]
    with pytest.raises(NotFoundError, match="options: trial_id: there is no trial 'four'"):
        replay.reset(None, {"trial_id": "four"})
    assert replay_environment(data, trials=["three", "one"]).episodes == 2
    with pytest.raises(NotFoundError, match="trials: 'four': not in the data set"):
        replay_environment(data, trials=["four"])


async def test_actions_are_checked(folder: Path) -> None:
    replay = replay_environment(await recorded(Duel(), folder, "one"), check_actions=True)
    replay.reset(None, None)
    with pytest.raises(InvalidActionError, match=r"'player_1': .* step 0 of the recorded trial 'one', 0; got 2$"):
        replay.step({"player_0": np.int64(0), "player_1": np.int64(2)})
    assert replay.step({"player_0": np.int64(0), "player_1": np.int64(0)})["player_0"].reward == 0.1


async def test_as_the_environment_of_a_trial_and_as_its_actors(folder: Path) -> None:
    """What is recorded of the replay is what was recorded."""
    game = Duel(turns=True, out_at=3)
    data = await recorded(game, folder, "one", "two")
    replay = replay_environment(data, check_actions=True)
    async with recording(replay, actor=replay_actor(data)) as platform:
        for trial_id in ("one", "two"):
            await play(platform, replay, trial_id)
        await export_async(platform, parquet=folder / "again")
    again = replay_environment(folder / "again")
    for index in (0, 1):
        told = [again.reset(index, None)]
        while not again.over:
            told.append(again.step({}))
        for before, after in zip(game.told[index], told, strict=True):
            for agent in game.agents:
                assert equal(after[agent], before[agent])


async def test_an_actor_of_a_data_set_of_minari_has_no_more_actions(folder: Path) -> None:
    await recorded(Solo(), folder, "one")
    longer = Solo()
    longer.length = 8
    async with recording(longer, actor=replay_actor("tests/game-v0", actor="player_0")) as platform:
        trial_id = await platform.controller.start_trial(params_of(longer))
        outcome = await platform.controller.wait_trial(trial_id, check=False)
    assert [len(actions) for actions in longer.actions] == [5]
    assert outcome.cause is EndCause.PARTICIPANT_FAILED
    assert "expected the end of the trial, because no more actions of 'player_0' are recorded" in outcome.traceback


async def test_an_actor_that_was_not_recorded(folder: Path) -> None:
    data = await recorded(Duel(), folder, "one")
    with pytest.raises(InvalidArgumentError, match="expected one that was recorded, player_0, player_1; got 'bob'"):
        replay_actor(data, actor="bob")


@pytest.mark.filterwarnings("ignore:.* is (set to )?None:UserWarning")
def test_a_data_set_that_minari_made(folder: Path) -> None:
    environment = gymnasium.make("CartPole-v1")
    observations = np.array([environment.observation_space.sample() for _ in range(4)])
    buffer = EpisodeBuffer(
        observations=observations,
        actions=np.array([0, 1, 0]),
        rewards=[1.0, 1.0, 0.5],
        terminations=[False] * 3,
        truncations=[False, False, True],
    )
    minari.create_dataset_from_buffers(
        "mine-v0",
        [buffer],
        observation_space=environment.observation_space,
        action_space=spaces.Discrete(2),
    )
    replay = replay_environment("mine-v0")
    assert replay.agents == ["player_0"]
    told = replay.reset(None, None)["player_0"]
    for tick in range(3):
        assert np.array_equal(told.value, observations[tick])
        told = replay.step({"player_0": 0})["player_0"]
    assert (told.reward, told.truncated, told.terminated, told.active, replay.over) == (0.5, True, False, False, True)


class Levels(gymnasium.Env[Any, Any]):
    """Tells a mask and information with most steps, but not with the first, nor with its end."""

    observation_space = spaces.Discrete(9)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return 0, {"lives": 3}

    def step(self, action: Any) -> Any:
        self.count += 1
        over = self.count == 3
        info: dict[str, Any] = {"lives": 3, "speed": np.float32(self.count), "tick": "its own"}
        if not over:
            info.update(action_mask=[1, 0, self.count % 2], place={"x": 0.5, "near": [1, None]})
        return self.count, 1.0, over, False, info


class Meeting(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Two agents; the second leaves after two steps, and both tell it only in their last observation."""

    def __init__(self) -> None:
        self.metadata = {"name": "meeting_v0"}
        self.possible_agents = ["a_0", "b_0"]

    def observation_space(self, agent: str) -> Any:
        return Levels.observation_space

    def action_space(self, agent: str) -> Any:
        return Levels.action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents = list(self.possible_agents)
        self.count = 0
        return dict.fromkeys(self.agents, 0), {agent: {"hello": agent} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.count += 1
        seen = self.agents
        ends = {agent: self.count == (4 if agent == "a_0" else 2) for agent in seen}
        infos = {agent: {"count": self.count, "action_mask": np.array([1, 0, 1], np.int8)} for agent in seen}
        self.agents = [agent for agent in seen if not ends[agent]]
        return dict.fromkeys(seen, self.count), dict.fromkeys(seen, 0.5), ends, dict.fromkeys(seen, False), infos


def recorded_by_a_view(target: Any, store: str, **arguments: Any) -> None:
    view = make(target, store=store, **arguments)
    view.reset(seed=1)
    over = False
    while not over:
        *_, terminated, truncated, _ = view.step(view.action_space.sample())
        over = terminated or truncated
    view.close()


def recorded_by_a_run(target: Any, store: str, **arguments: Any) -> None:
    run_trials(2, environment=target, arguments=arguments, seats={"player_0": random(seed=1)}, store=store)


@pytest.mark.parametrize("record", [recorded_by_a_view, recorded_by_a_run])
def test_minari_recovers_the_environment(record: Any, folder: Path) -> None:
    """As it was made for the trials."""
    store = f"sqlite:{folder / 'trials.db'}"
    record("CartPole-v1", store, max_episode_steps=7, sutton_barto_reward=True, render_mode="rgb_array")
    done = export(store, minari="cart/pole-v0")
    environment = minari.load_dataset(done.minari[0]).recover_environment()
    assert environment.spec.id == "CartPole-v1"
    assert environment.spec.max_episode_steps == 7
    assert environment.spec.kwargs["sutton_barto_reward"]
    assert environment.render_mode is None
    environment.close()


@pytest.mark.parametrize("target", ["rps_v2", lambda: rps_v2.parallel_env(num_actions=3)])
def test_runs_of_one_game_are_one_data_set(target: Any, folder: Path) -> None:
    """Under the game's name, however often it is played, and beside other games."""
    store = f"sqlite:{folder / 'trials.db'}"
    for _ in range(2):
        seats = {"player_0": random(seed=1), "player_1": random(seed=2)}
        run_trials(1, environment=target, seats=seats, store=store, max_steps=3)
    recorded_by_a_run("CartPole-v1", store, max_episode_steps=3)
    done = export(store, parquet=folder / "steps", minari="game-v0")
    assert done.minari == [
        "rps_v2/game-v0",
        "rps_v2/game-player_0-v0",
        "rps_v2/game-player_1-v0",
        "CartPole-v1/game-v0",
    ]
    assert minari.load_dataset("rps_v2/game-v0").total_episodes == 2
    assert minari.load_dataset("CartPole-v1/game-v0").recover_environment().spec.max_episode_steps == 3
    assert json.loads((folder / "steps/meta/info.json").read_text())["environments"] == ["rps_v2", "CartPole-v1"]


@pytest.mark.parametrize(
    "target",
    [
        lambda: gymnasium.wrappers.RescaleObservation(
            gymnasium.make("MountainCar-v0", max_episode_steps=3), np.float32(0), np.float32(1)
        ),
        lambda: gymnasium.make("Blackjack-v1", natural=object()),
        Levels,
    ],
)
def test_what_minari_cannot_recover(target: Any, folder: Path) -> None:
    """Rather than one that is made otherwise, there is none."""
    store = f"sqlite:{folder / 'trials.db'}"
    recorded_by_a_view(target, store)
    export(store, minari="game-v0")
    assert minari.load_dataset("game-v0").env_spec is None


def test_two_ways_of_making_are_none(folder: Path) -> None:
    store = f"sqlite:{folder / 'trials.db'}"
    for limit in (3, 4):
        recorded_by_a_view("CartPole-v1", store, max_episode_steps=limit)
    export(store, minari="game-v0")
    assert minari.load_dataset("game-v0").env_spec is None


def told_by(environment: Environment) -> list[Mapping[str, Observation]]:
    """Return what an environment tells in an episode of actions that are all 0."""
    found = [environment.reset(None, None)]
    while not environment.over:
        found.append(environment.step({name: np.int64(0) for name, one in found[-1].items() if one.active}))
    return found


@pytest.mark.parametrize("game", [Levels, Meeting])
@pytest.mark.parametrize("format_", ["parquet", "minari"])
def test_masks_and_information_are_what_was_told(game: Any, format_: str, folder: Path) -> None:
    """One that is absent removes no other, and the last observation brings the end."""
    store = f"sqlite:{folder / 'trials.db'}"
    seats = {name: policy(lambda _seen: 0) for name in make_environment(game).agents}
    run_trials(2, environment=game, seats=seats, store=store)
    export(store, parquet=folder / "data", minari="tests/game-v0")
    replay = replay_environment(folder / "data" if format_ == "parquet" else "tests/game-v0")
    for _ in range(2):
        expected, found = told_by(make_environment(game)), told_by(replay)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            for name, seen in other.items():
                if not (seen.alive or seen.terminated):
                    continue
                back = one[name]
                assert back.info.keys() == seen.info.keys()
                for key, value in seen.info.items():
                    assert same(back.info[key], value), (key, value)
                assert same(back.action_mask, mask_in(Discrete(3), seen.action_mask))
                assert (back.reward, back.terminated, back.active) == (seen.reward, seen.terminated, seen.active)


def test_masks_of_minari_have_a_filler(folder: Path) -> None:
    store = f"sqlite:{folder / 'trials.db'}"
    run_trials(1, environment=Levels, seats={"player_0": policy(lambda _seen: 0)}, store=store)
    export(store, minari="tests/game-v0")
    infos = minari.load_dataset("tests/game-v0")[0].infos
    assert infos["action_mask"].tolist() == [[1, 1, 1], [1, 0, 1], [1, 0, 0], [1, 1, 1]]
    assert infos["_action_mask"].tolist() == [False, True, True, False]
    assert infos["lives"].tolist() == [3, 3, 3, 3]
    assert infos["speed"].tolist() == [0, 1, 2, 3]
    assert infos["_speed"].tolist() == [False, True, True, True]
    assert infos["tick"].tolist() == [0, 1, 2, 3]
    assert json.loads(infos["info_json"][1])["tick"] == "its own"


@pytest.mark.filterwarnings("ignore:.* is (set to )?None:UserWarning")
def test_information_of_any_data_set_of_minari(folder: Path) -> None:
    buffer = EpisodeBuffer(
        observations=np.array([0, 1, 2]),
        actions=np.array([0, 1]),
        rewards=[1.0, 1.0],
        terminations=[False, True],
        truncations=[False, False],
        infos={"lives": np.array([3, 2, 1]), "deep": {"x": np.ones((3, 2), np.float32)}, "name": ["a", "b", "c"]},
    )
    minari.create_dataset_from_buffers(
        "mine-v0", [buffer], observation_space=spaces.Discrete(9), action_space=spaces.Discrete(2)
    )
    told = told_by(replay_environment("mine-v0"))
    assert [one["player_0"].info["lives"] for one in told] == [3, 2, 1]
    assert [one["player_0"].info["name"] for one in told] == ["a", "b", "c"]
    assert told[1]["player_0"].info["deep"]["x"].tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:.* is (set to )?None:UserWarning")
@pytest.mark.parametrize("jpeg", [False, True])
def test_pictures_in_arrows_formats(folder: Path, jpeg: bool) -> None:
    pictures = np.full((3, 32, 32, 3), 7, np.uint8)
    buffer = EpisodeBuffer(
        observations=pictures,
        actions=np.zeros((2, 1), np.float32),
        rewards=[1.0, 1.0],
        terminations=[False, True],
        truncations=[False, False],
    )
    minari.create_dataset_from_buffers(
        "mine-v0",
        [buffer],
        observation_space=spaces.Box(0, 255, (32, 32, 3), np.uint8),
        action_space=spaces.Box(-1, 1, (1,), np.float32),
        data_format="parquet",
        jpeg_encoding=jpeg,
    )
    told = told_by(replay_environment("mine-v0"))
    assert len(told) == 3
    assert np.abs(told[2]["player_0"].value.astype(int) - 7).max() <= (3 if jpeg else 0)


@pytest.mark.filterwarnings("ignore:.* is (set to )?None:UserWarning")
def test_an_episode_that_lacks_steps(folder: Path) -> None:
    made_by_minari("parquet", 4)
    file = folder / "minari" / "mine-v0" / "data" / "0" / "part-0.parquet"
    pq.write_table(pq.read_table(file, partitioning=None).slice(0, 3), file)
    with pytest.raises(DataLossError, match="'mine-v0': episode 0: expected 4 steps, as its metadata say, got 2"):
        replay_environment("mine-v0").reset(None, None)


@pytest.mark.filterwarnings("ignore:.* is (set to )?None:UserWarning")
def test_without_pyarrow(folder: Path) -> None:
    """The error has the command that installs it."""
    made_by_minari("parquet", 4)
    code = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(name, name="pyarrow")

sys.meta_path.insert(0, Missing())
from trio_cogment.rl import replay_environment
replay_environment("mine-v0")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError: pyarrow is not installed, and the data set 'mine-v0' needs it; the extra 'minari'" in (
        done.stderr
    )


async def test_what_cannot_be_replayed(folder: Path) -> None:
    for missing in (folder / "nothing", folder, "nothing-v0", "not an id"):
        with pytest.raises(NotFoundError):
            replay_environment(missing)
    game = Duel()
    async with recording(game) as platform:
        await play(platform, game, "duel")
        solo = Solo()
        platform.participants.register_environment(environment_of(solo), "other")
        alone = params_of(solo)
        alone.environment.implementation = "other"
        await platform.controller.wait_trial(await platform.controller.start_trial(alone, trial_id="solo"))
        await export_async(platform, parquet=folder / "mixed")
    with pytest.raises(InvalidArgumentError, match=r"expected the actors player_0, player_1, got player_0: .*trials="):
        replay_environment(folder / "mixed")
    assert replay_environment(folder / "mixed", trials=["solo"]).agents == ["player_0"]
    with pytest.raises(InvalidArgumentError, match="trials: expected None"):
        replay_environment("mine-v0", trials=["solo"])


def test_behind_a_view(folder: Path) -> None:
    """The trials of a view over a replay are those that were recorded."""
    game = Solo()
    data = trio.run(recorded, game, folder, "one", "two")
    view = make(replay_environment(data), store=f"sqlite:{folder / 'again.db'}")
    for episode in game.told:
        observation, _ = view.reset()
        for tick, told in enumerate(episode[1:], 1):
            assert np.array_equal(observation, episode[tick - 1]["player_0"].value)
            observation, reward, terminated, truncated, info = view.step(view.action_space.sample())
            expected = told["player_0"]
            assert (reward, terminated, truncated) == (expected.reward, expected.terminated, False)
            assert info["count"] == tick
    view.close()
    done = export(f"sqlite:{folder / 'again.db'}", parquet=folder / "again")
    assert (done.trials, done.steps, done.skipped) == (2, 10, [])


def test_who_is_out_or_has_not_come_is_seen_as_at_the_nearest_tick() -> None:
    told = {3: Observation(30), 5: Observation(50)}
    for tick in told:
        assert _at(told, tick) is told[tick]
    for tick, value in ((0, 30), (2, 30), (4, 30), (6, 50), (9, 50)):
        found = _at(told, tick)
        assert (found.value, found.active, found.alive) == (value, False, False)
