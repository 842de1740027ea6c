"""Environments of the field's packages by name: played as trials, stored, exported, replayed; and which are refused."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trio_cogment.rl as tc
from tests.spaces.strategies import same
from trio_cogment.base.errors import CogmentError, FailedPreconditionError
from trio_cogment.environments import known_wrappers
from trio_cogment.environments.making import make_environment
from trio_cogment.spaces import Text

pytestmark = [
    pytest.mark.rl_peers,
    # Of the packages themselves, of each other, and of a display that is not there.
    pytest.mark.filterwarnings("ignore"),
]

STEPS = 30
#: What is said in games of words: legal somewhere, wrong elsewhere, which ends the game.
SAYINGS = ["[0]", "[1]", "[2]", "[4]", "[8]", "[check]", "[roll]", "[hold]", "[5]", "[stand]"]

#: These are trials as they are, by their names.
PLAYED = [
    *("CartPole-v1", "Acrobot-v1", "Blackjack-v1", "FrozenLake-v1", "Taxi-v4", "Pendulum-v1", "CliffWalking-v1"),
    *("minigrid:MiniGrid-Empty-5x5-v0", "minigrid:MiniGrid-Fetch-5x5-N2-v0", "minigrid:MiniGrid-DoorKey-5x5-v0"),
    *("minigrid:BabyAI-GoToLocal-v0", "minigrid:BabyAI-PickupLoc-v0", "minigrid:BabyAI-Synth-v0"),
    *("highway_env:highway-fast-v0", "highway_env:merge-v1", "highway_env:parking-v0"),
    *("popgym:popgym-RepeatPreviousEasy-v0", "popgym:popgym-AutoencodeEasy-v0", "popgym:popgym-BattleshipEasy-v0"),
    *("flappy_bird_gymnasium:FlappyBird-v0", "ale_py:ALE/Pong-v5"),
    *("textarena/TicTacToe-v0", "textarena/KuhnPoker-v0", "textarena/LiarsDice-v0", "textarena/PigDice-v0"),
    *("textarena/ThreePlayerIPD-v0", "textarena/GuessTheNumber-v0", "textarena/Nim-v0"),
    *("envpool/CartPole-v1", "envpool/Pendulum-v1", "envpool/Pong-v5"),
    *("dm_control/cartpole-swingup", "dm_control/reacher-easy", "dm_control/cheetah-run", "dm_control/walker-walk"),
    *("openspiel/kuhn_poker", "openspiel/backgammon", "openspiel/goofspiel", "rps_v2", "tictactoe_v3"),
    *("mpe2.simple_spread_v3", "mpe2.simple_tag_v3"),
]

#: What these need is said, with the name of the field.
REFUSED = {
    "mo_gymnasium:deep-sea-treasure-v0": r"reward: expected a number, got an array of float32 \(2,\): of several obj",
    "mo_gymnasium:fruit-tree-v0": r"reward: expected a number, got an array of float32 \(6,\): of several objectives",
    "lbforaging:Foraging-8x8-2p-1f-v3": "reward: expected a number, got list: an environment of several agents needs",
    "rware:rware-tiny-2ag-v2": "reward: expected a number, got list: an environment of several agents needs",
    "highway_env:intersection-multi-agent-v2": "reward: expected a number, got tuple: an environment of several",
}


def acted(env: Any, told: Any, generator: np.random.Generator) -> dict[str, Any]:
    """Draw the actions of those whose turn it is."""
    found: dict[str, Any] = {}
    for agent in env.agents:
        if told[agent].active:
            space = env.action_spaces[agent]
            if isinstance(space, Text):
                found[agent] = SAYINGS[int(generator.integers(len(SAYINGS)))]
            elif told[agent].action_mask is not None:
                found[agent] = int(generator.choice(np.flatnonzero(told[agent].action_mask)))
            else:
                found[agent] = space.sample(generator)
    return found


def played(env: Any, seed: int, beside: Any = None) -> list[Any]:
    """Play an episode, or the beginning of one; meanwhile the one beside it goes on, too."""
    generator, others = np.random.default_rng(seed), np.random.default_rng(0)
    told = [env.reset(seed, None)]
    if beside is not None:
        elsewhere = beside.reset(seed + 1, None)
    while not env.over and len(told) <= STEPS:
        told.append(env.step(acted(env, told[-1], generator)))
        if beside is not None and not beside.over:
            random.seed(len(told))
            elsewhere = beside.step(acted(beside, elsewhere, others))
    return told


def require_same(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for now, then in zip(one, other, strict=True):
        assert now.keys() == then.keys()
        for agent in now:
            assert same(now[agent].value, then[agent].value)
            assert now[agent].reward == then[agent].reward
            assert (now[agent].terminated, now[agent].truncated) == (then[agent].terminated, then[agent].truncated)


def bare(value: Any) -> Any:
    """Return a value whose arrays without dimensions, which some games give for numbers, are numbers."""
    if isinstance(value, dict):
        return {key: bare(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(bare, value))
    return value[()] if isinstance(value, np.ndarray) else value


def made(name: str) -> Any:
    module = name.partition(":")[0] if ":" in name else ""
    if module:
        importlib.import_module(module)
    return make_environment(name)


@pytest.mark.parametrize("name", PLAYED)
def test_beside_another_it_is_as_alone(name: str) -> None:
    env, other = made(name), made(name)
    alone = played(env, 3)
    require_same(played(env, 3, beside=other), alone)
    env.close()
    other.close()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="their Python is this one, or an older one")
def test_games_that_are_written_for_a_newer_python() -> None:
    names = ("Checkers", "Chess", "IteratedStagHunt", "Klondike", "ReverseTicTacToe", "UltimateTexasHoldem")
    for name in names:
        with pytest.raises(FailedPreconditionError, match=rf"Python 3\.11.* cannot read .*{name}.*env\.py, line"):
            made(f"textarena/{name}-v0")


def test_letters_of_numpys_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SpellingBee draws from NumPy's one generator; a list of three words stands for the one that it downloads."""
    nltk = importlib.import_module("nltk")
    (tmp_path / "corpora" / "words").mkdir(parents=True)
    for name in ("en", "en-basic"):
        (tmp_path / "corpora" / "words" / name).write_text("tea\nease\ntease\n", encoding="utf-8")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setattr(nltk, "download", lambda _: True)
    env, other = made("textarena/SpellingBee-v0"), made("textarena/SpellingBee-v0")
    alone = env.reset(3, None)["player_0"].value
    assert other.reset(4, None)["player_0"].value != alone
    np.random.seed(9)
    expected = np.random.random()
    np.random.seed(9)
    assert env.reset(3, None)["player_0"].value == other.reset(3, None)["player_0"].value == alone
    assert np.random.random() == expected


@pytest.mark.parametrize("name", PLAYED)
def test_it_is_stored_exported_and_replayed(name: str, tmp_path: Path) -> None:
    env = made(name)
    told = played(env, 3)
    agents = list(env.agents)
    env.close()
    # Seats that say in each tick what was said here.
    generator, script = np.random.default_rng(3), {agent: list[Any]() for agent in agents}
    env = made(name)
    now = env.reset(3, None)
    for _ in range(len(told) - 1):
        actions = acted(env, now, generator)
        for agent, action in actions.items():
            script[agent].append(action)
        now = env.step(actions)
    max_steps = len(told) - 1
    if not env.over:
        # The trial is cut off with one step more.
        actions = acted(env, now, generator)
        for agent, action in actions.items():
            script[agent].append(action)
        told.append(env.step(actions))
    cut_off = not env.over
    env.close()
    lines = {agent: iter(actions) for agent, actions in script.items()}
    seats = {agent: tc.policy(lambda _, agent=agent: next(lines[agent])) for agent in agents}
    store = f"sqlite:{tmp_path / 'trials.db'}"
    results = tc.run_trials(1, environment=name, seats=seats, store=store, seeds=[3], max_steps=max_steps)
    assert not results.failures
    tc.export(store, parquet=tmp_path / "data")
    replay: Any = tc.replay_environment(tmp_path / "data")
    again = [replay.reset(None, None)]
    while not replay.over:
        again.append(replay.step({}))
    assert len(again) == len(told)
    for tick, (found, expected) in enumerate(zip(again, told, strict=True)):
        for agent in agents:
            assert same(bare(found[agent].value), bare(expected[agent].value))
            assert found[agent].reward == expected[agent].reward
            assert found[agent].terminated == expected[agent].terminated
            assert found[agent].truncated == (expected[agent].truncated or (cut_off and tick == len(told) - 1))


class Saying:
    """A player in games of words, who draws what it says by the trial's seed."""

    def reset(self, seed: int | None) -> None:
        self.generator = np.random.default_rng(seed)

    def __call__(self, _: Any) -> str:
        return SAYINGS[int(self.generator.integers(len(SAYINGS)))]


def recorded(folder: Path, name: str, seeds: list[int], **settings: Any) -> list[list[Any]]:
    """Play trials, all at once, and return what their replays tell, in the order of the seeds."""
    env = made(name)
    spoken = [isinstance(env.action_spaces[agent], Text) for agent in env.agents]
    seats = {
        agent: tc.policy(Saying) if speaks else tc.random(seed=1)
        for agent, speaks in zip(env.agents, spoken, strict=True)
    }
    env.close()
    store = f"sqlite:{folder}.db"
    results = tc.run_trials(
        len(seeds), environment=name, seats=seats, store=store, seeds=seeds, parallel=len(seeds), **settings
    )
    assert not results.failures
    tc.export(store, parquet=folder)
    replay: Any = tc.replay_environment(folder)
    told = []
    for trial_id in results.trial_ids:
        told.append([replay.reset(None, {"trial_id": trial_id})])
        while not replay.over:
            told[-1].append(replay.step({}))
    return told


#: One of each package whose games share something in a process.
SHARING = ["textarena/KuhnPoker-v0", "envpool/CartPole-v1", "dm_control/cartpole-swingup", "openspiel/kuhn_poker"]


@pytest.mark.parametrize("name", SHARING)
def test_two_trials_at_once_are_as_each_alone(name: str, tmp_path: Path) -> None:
    alone = [recorded(tmp_path / f"alone-{seed}", name, [seed], max_steps=STEPS)[0] for seed in (3, 4)]
    for found, expected in zip(recorded(tmp_path / "both", name, [3, 4], max_steps=STEPS), alone, strict=True):
        require_same(found, expected)


def with_known_wrappers() -> dict[str, Any]:
    """Return what makes environments with the wrappers of other packages that the log knows, and views of them."""
    shimmy, supersuit = importlib.import_module("shimmy"), importlib.import_module("supersuit")

    def of_dm_control() -> Any:
        suite = importlib.import_module("dm_control.suite")
        return shimmy.DmControlCompatibilityV0(suite.load("cartpole", "swingup"))

    def of_supersuit() -> Any:
        return supersuit.black_death_v3(importlib.import_module("mpe2.simple_spread_v3").parallel_env())

    return {
        "OpenSpielCompatibilityV0": (tc.make_aec, lambda: shimmy.OpenSpielCompatibilityV0(game_name="kuhn_poker")),
        "DmControlCompatibilityV0": (tc.make, of_dm_control),
        "black_death_par": (tc.make_parallel, of_supersuit),
    }


@pytest.mark.parametrize("name", ["OpenSpielCompatibilityV0", "DmControlCompatibilityV0", "black_death_par"])
def test_the_log_knows_the_real_wrappers(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names that their packages have today; of the others only the name is looked up."""
    monkeypatch.setattr(known_wrappers, "_told", set())
    view, make = with_known_wrappers()[name]
    env = view(make)
    env.reset(seed=1)
    env.close()
    told = [record.getMessage() for record in caplog.records if record.name == known_wrappers.__name__]
    assert len(told) == 1
    assert told[0].startswith(f"{name} of ")


def test_the_packages_have_all_of_the_wrappers() -> None:
    """Those whose packages are not here are functions that say what to install, under the same name."""
    for package, name in known_wrappers._FAULTS:
        if package == "shimmy":
            assert name in importlib.import_module(package).__all__


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_what_it_needs(name: str) -> None:
    env = made(name)
    with pytest.raises(CogmentError, match=REFUSED[name]):
        played(env, 3)
    env.close()


def test_a_vector_reward_travels_beside_the_weighted_one() -> None:
    import mo_gymnasium
    from mo_gymnasium.wrappers import LinearReward

    def weighted() -> Any:
        return LinearReward(mo_gymnasium.make("deep-sea-treasure-v0"), weight=np.array([0.5, 0.5]))

    view = tc.make(weighted)
    view.reset(seed=1)
    _, reward, _, _, info = view.step(1)
    assert reward == pytest.approx(float(info["vector_reward"].sum() / 2))
    assert info["vector_reward"].shape == (2,)
    view.close()


def test_lanes_of_envpool_are_trials() -> None:
    views = tc.make_vec("envpool/CartPole-v1", 2, store="memory:")
    first, _ = views.reset(seed=[5, 5])
    assert np.array_equal(first[0], first[1])
    second, _ = views.reset(seed=[5, 6])
    assert np.array_equal(second[0], first[0])
    assert not np.array_equal(second[1], first[1])
    assert len(set(views.trial_ids)) == 2
    views.close()
