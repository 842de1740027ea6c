"""Environments of Gymnasium as environments of trials: the same values, and errors for what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import trio_cogment.rl as tc
from tests.environments._samples import Inventory, Scripted
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.environments.gymnasium import GymnasiumEnvironment
from trio_cogment.environments.making import make_environment

GOOD = np.zeros(2, np.float32)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_an_episode_is_that_of_the_bare_environment(name: str) -> None:
    bare, ours = gymnasium.make(name), make_environment(name)
    generator = np.random.default_rng(1)
    for seed in (3, None, None, 3):
        value, info = bare.reset(seed=seed)
        found = ours.reset(seed, None)["player_0"]
        assert np.array_equal(found.value, value)
        assert type(found.value) in (np.ndarray, np.int64, int)
        assert found.info == info
        assert found.reward is None
        assert found.active
        assert found.alive
        assert not ours.over
        while not ours.over:
            action = ours.action_spaces["player_0"].sample(generator)
            value, reward, terminated, truncated, info = bare.step(action)
            found = ours.step({"player_0": action})["player_0"]
            assert np.array_equal(found.value, value)
            assert found.reward == reward
            assert type(found.reward) is float
            assert (found.terminated, found.truncated, found.info) == (terminated, truncated, info)
            assert found.terminated is terminated
            assert type(found.truncated) is bool
            assert found.alive is found.active is not (terminated or truncated)
    ours.close()
    bare.close()


def test_nested_spaces_masks_options_and_frames() -> None:
    env = Inventory(render_mode="rgb_array")
    ours = GymnasiumEnvironment(env)
    assert ours.name == "Inventory"
    assert ours.metadata["render_fps"] == 7
    assert ours.metadata["render_mode"] == "rgb_array"
    first = ours.reset(1, {"level": 2})["player_0"]
    assert first.info["options"] == {"level": 2}
    assert first.action_mask is None, "flags that are not in parts, as the actions are, mean something of its own"
    assert first.value["action_mask"].tolist() == [1, 0]
    frame = ours.frame()
    assert frame is not None
    assert frame.media_type == "image/png"
    assert frame.data.startswith(b"\x89PNG")
    second = ours.step({"player_0": {"move": np.int64(1), "push": np.ones(2)}})["player_0"]
    assert second.value["action_mask"].tolist() == [1, 1]
    ours.close()
    assert env.closed == 1


def test_a_mask_in_the_information() -> None:
    info = {"action_mask": np.array([0, 1], np.int8)}
    ours = GymnasiumEnvironment(Scripted(lambda: (GOOD, 0.0, False, False, info)))
    assert ours.reset(None, None)["player_0"].action_mask is None
    assert ours.step({"player_0": 0})["player_0"].action_mask.tolist() == [0, 1]


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_mask_of_actions_that_have_parts(in_parts: bool) -> None:
    flags: Any = np.array([0, 1], np.int8)
    env = Scripted(lambda: (GOOD, 0.0, False, False, {"action_mask": {"arm": flags} if in_parts else flags}))
    env.action_space = gymnasium.spaces.Dict({"arm": gymnasium.spaces.Discrete(2)})
    ours = GymnasiumEnvironment(env)
    ours.reset(None, None)
    found = ours.step({"player_0": {"arm": 0}})["player_0"]
    assert found.action_mask == ({"arm": flags} if in_parts else None)
    assert found.info["action_mask"] is not None


def test_text_frames_and_none() -> None:
    ours = GymnasiumEnvironment(Inventory(render_mode="ansi"))
    ours.reset(None, None)
    frame = ours.frame()
    assert frame is not None
    assert (frame.data, frame.media_type) == (b"step 0", "text/plain; charset=utf-8")
    env = Inventory()
    assert GymnasiumEnvironment(env).frame() is None
    assert env.rendered == 0


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ((GOOD, 0.0, False, {}), "step: expected (observation, reward, terminated, truncated, info), got 4 values"),
        (None, "step: expected (observation, reward, terminated, truncated, info), got NoneType"),
        ((np.array([0, np.nan], np.float32), 0.0, False, False, {}), "observation[1]: expected a number, got NaN"),
        ((np.zeros(3, np.float32), 0.0, False, False, {}), "observation: expected the shape (2,), got (3,)"),
        ((np.array(["a", "b"]), 0.0, False, False, {}), "observation: expected float32, got <U1"),
        ((np.array([1e300, 0]), 0.0, False, False, {}), "observation[0]: expected a number of float32, got 1e+300"),
        (([0.0, 0.0], 0.0, False, False, {}), "observation: expected an array of float32, got list"),
        ((GOOD, float("nan"), False, False, {}), "reward: expected a number, got NaN"),
        ((GOOD, "1", False, False, {}), "reward: expected a number, got str '1'"),
        (
            (GOOD, np.zeros(2), False, False, {}),
            "reward: expected a number, got an array of float64 (2,): of several objectives, mo_gymnasium.wrappers.Lin",
        ),
        ((GOOD, [0.0, 1.0], False, False, {}), "reward: expected a number, got list: an environment of several agents"),
        ((GOOD, 0.0, 1, False, {}), "terminated: expected a bool, got int"),
        ((GOOD, 0.0, False, None, {}), "truncated: expected a bool, got NoneType"),
        ((GOOD, 0.0, False, False, [1]), "info: expected a dict, got list"),
    ],
)
def test_what_makes_no_sense_is_refused(result: Any, text: str) -> None:
    ours = GymnasiumEnvironment(Scripted(lambda: result))
    ours.reset(None, None)
    with pytest.raises(InvalidEnvironmentError) as caught:
        ours.step({"player_0": 0})
    assert str(caught.value).startswith(f"environment 'Scripted', actor 'player_0': {text}")
    assert (caught.value.environment, caught.value.actor) == ("Scripted", "player_0")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (GOOD, "reset: expected (observation, info), got an array of float32 (2,)"),
        ((GOOD * np.nan, {}), "observation[0]: expected a number, got NaN"),
        ((GOOD, None), "info: expected a dict, got NoneType"),
    ],
)
def test_so_is_a_senseless_reset(result: Any, text: str) -> None:
    ours = GymnasiumEnvironment(Scripted(lambda: None, lambda: result))
    with pytest.raises(InvalidEnvironmentError) as caught:
        ours.reset(None, None)
    assert str(caught.value) == f"environment 'Scripted', actor 'player_0': {text}"


def test_values_of_other_types_become_those_of_the_space() -> None:
    step: Any = (np.array([0.1, 2.0]), np.float32(1), np.bool_(True), np.bool_(False), {})
    ours = GymnasiumEnvironment(Scripted(lambda: step))
    ours.reset(None, None)
    found = ours.step({"player_0": 0})["player_0"]
    assert found.value.dtype == np.float32
    assert found.value[1] == 2, "bounds are the environment's own affair"
    assert type(found.reward) is float
    assert found.terminated is True
    assert found.truncated is False


def test_integers_that_the_type_does_not_have_are_refused() -> None:
    space = gymnasium.spaces.Box(0, 255, (1,), np.uint8)
    ours = GymnasiumEnvironment(
        Scripted(lambda: None, lambda: (np.array([256]), {}), space),
    )
    with pytest.raises(InvalidEnvironmentError, match=r"observation: expected uint8, got numbers of int64"):
        ours.reset(None, None)
    ours = GymnasiumEnvironment(Scripted(lambda: None, lambda: (np.array([255]), {}), space))
    assert ours.reset(None, None)["player_0"].value.dtype == np.uint8


@pytest.mark.parametrize("infinite", [float("inf"), float("-inf")])
def test_infinite_observations_are_no_nan(infinite: float) -> None:
    value = np.array([infinite, -infinite], np.float32)
    ours = GymnasiumEnvironment(Scripted(lambda: None, lambda: (value, {})))
    assert np.array_equal(ours.reset(None, None)["player_0"].value, value)


def test_a_space_without_a_counterpart_is_named() -> None:
    class Strange(gymnasium.Space[Any]):
        pass

    with pytest.raises(InvalidEnvironmentError, match=r"'Scripted', actor 'player_0': observation_space: expected one"):
        GymnasiumEnvironment(Scripted(lambda: None, space=Strange()))


class NetHack(gymnasium.Env[Any, Any]):
    """As NLE 1.3: the seed of a reset means nothing to it, and its observations are one array."""

    observation_space = spaces.Box(0, 255, (2,), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.seen = np.zeros(2, np.uint8)
        self.given: int | None = None

    def seed(self, core: int | None = None, disp: int | None = None, reseed: bool = False) -> None:
        assert core == disp
        assert not reseed
        self.given = core

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.generator, self.given = np.random.default_rng(self.given), None
        return self._drawn(), {}

    def _drawn(self) -> Any:
        self.seen[:] = self.generator.integers(0, 256, 2)
        return self.seen

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._drawn(), 0.0, False, False, {}


NetHack.__module__ = "nle.env.base"


def test_a_seed_of_nethack_is_one_of_the_game() -> None:
    """It goes to the game's own `seed`, once: a reset without one draws by lot."""
    one, other = GymnasiumEnvironment(NetHack()), GymnasiumEnvironment(NetHack())
    for env in (one, other):
        env.reset(3, None)
    told = [env.step({"player_0": 0})["player_0"].value.tolist() for env in (one, other)]
    assert told[0] == told[1]
    assert one.env.given is None


def test_observations_in_one_array_are_stored_as_they_were(tmp_path: Path) -> None:
    store, generator = f"sqlite:{tmp_path / 'trials.db'}", np.random.default_rng(3)
    expected = [generator.integers(0, 256, 2).tolist() for _ in range(20)]
    results = tc.run_trials(
        1, environment=NetHack, seats={"player_0": tc.random(seed=1)}, store=store, seeds=[3], max_steps=5
    )
    assert not results.failures
    tc.export(store, parquet=tmp_path / "data")
    replay: Any = tc.replay_environment(tmp_path / "data")
    found = [replay.reset(None, None)["player_0"].value.tolist()]
    while not replay.over:
        found.append(replay.step({})["player_0"].value.tolist())
    assert len(found) > 5
    assert found == expected[: len(found)]
    view = tc.make(NetHack)
    first, _ = view.reset(seed=3)
    view.step(1)
    assert first.tolist() == expected[0], "what is kept stays as it was"
    view.close()


def test_an_environment_is_played_through_a_wrapper() -> None:
    class Counts(gymnasium.Wrapper[Any, Any, Any, Any]):
        steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            return self.env.step(action)

    environment = GymnasiumEnvironment(gymnasium.make("CartPole-v1"))
    spec, wrapper = environment.gymnasium_spec, Counts(environment.env)
    environment.play_through(wrapper)
    environment.reset(1, None)
    environment.step({"player_0": 0})
    environment.make_step(0)
    assert (wrapper.steps, environment.env, environment.gymnasium_spec) == (2, wrapper, spec)
    environment.close()
