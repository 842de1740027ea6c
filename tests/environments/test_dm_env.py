"""Environments of dm_env as environments of trials: all specs, ends and discounts, and what is wrong."""

from __future__ import annotations

import sys
from collections import namedtuple
from types import ModuleType, SimpleNamespace
from typing import Any

import dm_env
import numpy as np
import pytest
from dm_env import specs

from tests.environments._games import Catch
from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError, NotFoundError
from trio_cogment.environments.dm_env import DmEnvironment, mapped
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.environments.making import make_environment, wrap
from trio_cogment.spaces import Box, Dict, Discrete, SpaceError, Text, Tuple, decode_value, encode_value

ACTION = (np.int32(2), np.array([0, 1], np.float32), ("go",))


def test_an_episode_with_all_specs() -> None:
    env: Any = Catch()
    ours = make_environment(env)
    assert isinstance(ours, DmEnvironment)
    assert (ours.name, ours.agents) == ("Catch", ("player_0",))
    space = ours.observation_spaces["player_0"]
    first = ours.reset(None, None)["player_0"]
    assert first.reward is None
    assert isinstance(space, Dict)
    assert {key: part for key, part in space.spaces.items() if key in ("count", "position", "speed", "pair")} == {
        "count": Discrete(10, dtype="int32"),
        "position": Box(np.array([-1.0, 0]), np.array([1.0, 2]), (2,), "float64"),
        "speed": Box(-np.inf, np.inf, (), "float32"),
        "pair": Tuple([Box(-(2**15), 2**15 - 1, (1,), "int16"), Box(0, 1, (1,), "bool")]),
    }
    assert isinstance(space.spaces["name"], Text)
    assert first.value["tags"] == ("x", "y")
    assert first.value["name"] == "é?"
    assert first.value["count"] == 0
    assert decode_value(encode_value(first.value))["pair"][1].tolist() == [True]
    assert ours.action_spaces["player_0"].contains(ACTION)
    rest = [ours.step({"player_0": ACTION})["player_0"] for _ in range(3)]
    assert [one.reward for one in rest] == [0.5, 1.0, 2.0]
    assert [one.info for one in rest] == [{}, {"discount": 0.9}, {}]
    assert [one.value["count"] for one in rest] == [1, 2, 3]
    assert (rest[2].terminated, rest[2].truncated, rest[2].active, rest[2].alive) == (True, False, False, False)
    assert ours.over
    assert isinstance(env.got[0], list)
    assert env.got[0][0] == 2
    assert env.got[0][2].tolist() == [b"go"]
    for spec, value in zip(env.action_spec(), env.got[0], strict=True):
        spec.validate(value)
    assert ours.frame() is None
    ours.close()
    assert env.closed == 1


def test_a_last_step_with_a_discount_is_a_truncation() -> None:
    for discount, info in ((1.0, {}), (0.5, {"discount": 0.5})):
        env = Catch([lambda value, discount=discount: dm_env.truncation(1.0, value, discount)])
        ours = DmEnvironment(env, name="cut")
        ours.reset(None, None)
        last = ours.step({"player_0": ACTION})["player_0"]
        assert (last.terminated, last.truncated, last.info, ours.over) == (False, True, info, True)


def test_seeds_and_options() -> None:
    ours = make_environment(Catch())
    with pytest.raises(InvalidArgumentError, match=r"environment 'Catch': seed: expected none, because .* no met"):
        ours.reset(3, None)
    with pytest.raises(InvalidArgumentError, match=r"environment 'Catch': options: expected none.*; got 'a'"):
        ours.reset(None, {"a": 1})
    seeds: list[int] = []
    DmEnvironment(Catch(), seed=seeds.append).reset(3, {})
    env: Any = Catch()
    env.seed = seeds.append
    make_environment(env).reset(4, None)
    assert seeds == [3, 4]


VALUE = Catch()._value()


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (dm_env.restart(VALUE), "step: step_type: expected MID or LAST, got 0"),
        (dm_env.transition(None, VALUE), "reward: expected a number, got NoneType"),
        (dm_env.transition(np.nan, VALUE), "reward: expected a number, got NaN"),
        (dm_env.transition(np.zeros(2), VALUE), "reward: expected a number, got an array"),
        (dm_env.transition(0.0, VALUE, None), "discount: expected a number, got NoneType"),
        (dm_env.TimeStep(7, 0.0, 1.0, VALUE), "step: step_type: expected a StepType, got 7"),
        ((1, 0.0), "step: expected TimeStep(step_type, reward, discount, observation), got 2 values"),
        (None, "step: expected TimeStep(step_type, reward, discount, observation), got NoneType"),
        (
            dm_env.transition(0.0, {**VALUE, "speed": np.float32(np.nan)}),
            'observation["speed"]: expected a number',
        ),
        (dm_env.transition(0.0, {**VALUE, "position": np.zeros(3)}), 'observation["position"]: expected the shape'),
        (dm_env.transition(0.0, {**VALUE, "tags": ["x"]}), 'observation["tags"]: expected the shape (2,), got (1,)'),
        (dm_env.transition(0.0, {**VALUE, "name": 3}), 'observation["name"]: expected a string, got int'),
        (dm_env.transition(0.0, {"count": 1}), "observation: expected the keys 'count', 'position'"),
    ],
)
def test_what_makes_no_sense_is_refused(result: Any, text: str) -> None:
    ours = DmEnvironment(Catch([lambda value: result]))
    ours.reset(None, None)
    with pytest.raises(InvalidEnvironmentError) as caught:
        ours.step({"player_0": ACTION})
    assert str(caught.value).startswith(f"environment 'Catch', actor 'player_0': {text}")


def test_a_reset_that_is_no_beginning() -> None:
    env: Any = Catch()
    env.reset = lambda: dm_env.transition(0.0, VALUE)
    with pytest.raises(InvalidEnvironmentError, match=r"reset: step_type: expected FIRST, got 1"):
        DmEnvironment(env).reset(None, None)


def test_specs_without_a_counterpart() -> None:
    env: Any = Catch()
    env.action_spec = lambda: {"a": [specs.Array((2,), np.complex64)]}
    with pytest.raises(InvalidEnvironmentError, match=r"action_spec\[\"a\"\]\[0\]: expected a spec of numbers or str"):
        DmEnvironment(env)
    with pytest.raises(SpaceError, match=r"expected specs of dm_env, or dicts, lists or tuples of them; got int"):
        mapped([3])
    with pytest.raises(SpaceError, match=r"expected strings as keys, got int"):
        mapped({3: specs.Array((), int)})


def test_containers_come_back_as_they_were() -> None:
    pair = namedtuple("pair", "left right")  # dm_env's users have the untyped ones, too
    spec = pair(specs.DiscreteArray(2), [specs.StringArray((2, 1)), ()])
    found = mapped(spec)
    value = (np.int32(1), ((("a",), ("b",)), ()))
    assert found.space.contains(value)
    back = found.give(value)
    assert isinstance(back, pair)
    assert isinstance(back.right, list)
    assert back.right[0].tolist() == [["a"], ["b"]]
    assert found.take(back) == value
    text = mapped(specs.Array((), np.dtype("U3")))
    assert text.take(np.array("abc")) == "abc"


class Harvest(dm_env.Environment):  # type: ignore[misc]  # dm_env has no types
    """Two players at once, with sequences of specs, as Melting Pot's substrates have; cut off after three steps."""

    def __init__(self, roles: Any = ("one", "two"), discount: float = 1.0) -> None:
        self.count = 0
        self.discount = discount
        self.roles = roles
        self.given: list[Any] = []

    def observation_spec(self) -> Any:
        return tuple({"seen": specs.Array((2,), np.float64), "ready": specs.Array((), np.float64)} for _ in self.roles)

    def action_spec(self) -> Any:
        return tuple(specs.DiscreteArray(3) for _ in self.roles)

    def reward_spec(self) -> Any:
        return tuple(specs.Array((), np.float64) for _ in self.roles)

    def _seen(self) -> Any:
        return [{"seen": np.array([number, self.count], float), "ready": np.float64(1)} for number in (0, 1)]

    def reset(self) -> Any:
        self.count = 0
        return dm_env.restart(self._seen())._replace(reward=[0.0, 0.0])

    def step(self, actions: Any) -> Any:
        self.given.append(actions)
        self.count += 1
        kind = dm_env.StepType.LAST if self.count == 3 else dm_env.StepType.MID
        discount = self.discount if self.count == 3 else 1.0
        return dm_env.TimeStep(kind, [1.0 * self.count, -1.0], discount, self._seen())


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_several_players(discount: float) -> None:
    env = wrap(Harvest(discount=discount))
    assert env.agents == ("player_0", "player_1")
    told = env.reset(None, None)
    assert (told["player_1"].value["seen"].tolist(), told["player_1"].reward) == ([1.0, 0.0], None)
    for _ in range(3):
        told = env.step({"player_0": 2, "player_1": 1})
    assert env.over
    assert (told["player_0"].reward, told["player_1"].reward) == (3.0, -1.0)
    assert {(one.terminated, one.truncated) for one in told.values()} == {(discount == 0, discount == 1)}
    with pytest.raises(InvalidArgumentError, match="seed: expected none"):
        env.reset(1, None)
    with pytest.raises(InvalidArgumentError, match="options: expected none"):
        env.reset(None, {"map": 2})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"reward": [1.0]}, "reward: expected 2 parts"),
        ({"observation": []}, "observation: expected 2 parts"),
        ({"step_type": dm_env.StepType.FIRST}, "step_type: expected MID or LAST"),
        ({"reward": [1.0, float("nan")]}, "actor 'player_1': reward: expected a number, got NaN"),
    ],
)
def test_what_makes_no_sense_of_several(change: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    game = Harvest()
    env = wrap(game)
    env.reset(None, None)
    step = game.step
    monkeypatch.setattr(game, "step", lambda actions: step(actions)._replace(**change))
    with pytest.raises(InvalidEnvironmentError, match=text):
        env.step({"player_0": 0, "player_1": 0})


def test_names_of_dm_control_and_melting_pot(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.RandomState(0)
    suite = ModuleType("dm_control.suite")

    class Drawing(Harvest):
        """One player, who sees what its task draws."""

        task = SimpleNamespace(random=generator)

        def observation_spec(self) -> Any:
            return specs.Array((), np.int64)

        def action_spec(self) -> Any:
            return specs.DiscreteArray(3)

        def reward_spec(self) -> Any:
            return specs.Array((), np.float64)

        def reset(self) -> Any:
            return dm_env.restart(np.int64(generator.randint(1_000_000)))

    vars(suite).update(ALL_TASKS=[("cart", "up")], load=lambda domain, task, **_: Drawing())
    control = ModuleType("dm_control")
    vars(control)["suite"] = suite
    monkeypatch.setitem(sys.modules, "dm_control", control)
    env = make_environment("dm_control/cart-up")
    first, again, other = (int(env.reset(seed, None)["player_0"].value) for seed in (2**40, 2**40, 3))
    assert first == again != other
    with pytest.raises(NotFoundError, match="did you mean 'dm_control/cart-up'"):
        make_environment("dm_control/cart-upp")
    for module, name, command in (
        ("dm_control", "dm_control/cart-up", "pip install dm-control"),
        ("meltingpot", "meltingpot/clean_up", "pip install dm-meltingpot"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtraError, match=command):
            make_environment(name)
