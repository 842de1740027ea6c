"""Data sets played again, as environments and as actors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gymnasium
import minari
import numpy as np
import pytest
import trio
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from tests.rl.datasets.recorded import Duel, environment_of, params_of, play, recording
from tests.rl.datasets.test_minari import Solo
from tests.spaces.strategies import same
from trio_cogment.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trio_cogment.outcome import EndCause
from trio_cogment.rl import export, export_async, make, replay_actor, replay_environment
from trio_cogment.rl.environments.errors import InvalidActionError
from trio_cogment.spaces import Observation


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


def equal(one: Observation, other: Observation, *, minari: bool = False) -> bool:
    """Whether two observations say the same, as far as a data set of Minari can."""
    if not other.alive:
        # One who is out gets its last value; the rest is nobody's business.
        other = Observation(other.value, active=False, alive=False)
    names = ["reward", "terminated", "truncated", "active", "alive"]
    if not minari:
        names += ["action_mask"]
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
        is_minari = dataset == "tests/game-v0"
        assert (replay.agents, replay.episodes) == (["player_0", "player_1"], 2)
        assert replay.observation_spaces == game.observation_spaces
        for index in (0, 1, 0):
            told = replay.reset(None, None)
            for tick, expected in enumerate(game.told[index]):
                for agent in game.agents:
                    assert equal(told[agent], expected[agent], minari=is_minari), (tick, agent)
                assert replay.over == (tick == 6)
                if not replay.over:
                    told = replay.step(game.actions[index][tick])
        with pytest.raises(FailedPreconditionError, match="step: expected a reset first"):
            replay.step({})
        replay.close()


async def test_which_episode_a_reset_begins(folder: Path) -> None:
    data = await recorded(Duel(), folder, "one", "two", "three")
    replay = replay_environment(data)
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
    with pytest.raises(InvalidActionError, match=r"actor 'player_1': action: expected that of step 0 .* got .*2"):
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
