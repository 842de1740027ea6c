"""Floating-point actions of any precision, wherever an action meets its space."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from trio_cogment import rl
from trio_cogment.base.errors import CogmentError
from trio_cogment.environments.encoding import ActionDecoder
from trio_cogment.environments.errors import InvalidActionError
from trio_cogment.seats.local import Player
from trio_cogment.spaces import Observation, check_action, encode_action, encode_observation, from_gymnasium

ARM = spaces.Box(-1, 1, (2,), np.float32)
FREE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
PAIR = np.array([0.3, -0.7])
ROUNDED = PAIR.astype(np.float32)
#: Spaces, actions in another precision than theirs, and what the environment gets.
ACTIONS: dict[str, tuple[Any, Any, Any]] = {
    "Box": (ARM, PAIR, ROUNDED),
    "Box of half precision": (spaces.Box(-1, 1, (2,), np.float16), PAIR, PAIR.astype(np.float16)),
    "Box of whole numbers": (ARM, np.array([1, -1]), np.array([1, -1], np.float32)),
    "Box without dimensions": (spaces.Box(-1, 1, (), np.float32), np.float64(0.3), np.array(0.3, np.float32)),
    "Python's number": (spaces.Box(-1, 1, (), np.float32), 0.3, np.array(0.3, np.float32)),
    "Dict": (spaces.Dict({"arm": ARM}), {"arm": PAIR}, {"arm": ROUNDED}),
    "Tuple": (spaces.Tuple([ARM, spaces.Discrete(2)]), (PAIR, 1), (ROUNDED, np.int64(1))),
    "Sequence": (spaces.Sequence(ARM), (PAIR, PAIR), (ROUNDED, ROUNDED)),
    "stacked Sequence": (spaces.Sequence(ARM, stack=True), np.stack([PAIR, PAIR]), np.stack([ROUNDED, ROUNDED])),
    "OneOf": (spaces.OneOf([spaces.Discrete(2), ARM]), (1, PAIR), (np.int64(1), ROUNDED)),
    "Graph": (
        spaces.Graph(ARM, ARM),
        spaces.GraphInstance(PAIR[None], PAIR[None], np.array([[0, 0]])),
        spaces.GraphInstance(ROUNDED[None], ROUNDED[None], np.array([[0, 0]], np.int32)),
    ),
    "within the bounds when it is rounded": (ARM, np.array([1 + 1e-9, 0]), np.array([1, 0], np.float32)),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one.dtype == other.dtype and np.shape(one) == np.shape(other) and bool(np.all(one == other))


class Arm(gymnasium.Env[Any, Any]):
    """Keeps the actions that it gets; three steps."""

    def __init__(self, action_space: Any = ARM) -> None:
        self.observation_space, self.action_space = spaces.Discrete(1), action_space
        self.got: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.got.append(action)
        self.steps += 1
        return 0, 0.0, self.steps == 3, False, {}


class Arms(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """The same for two agents at once."""

    def __init__(self) -> None:
        self.metadata = {"name": "arms_v0"}
        self.render_mode = None
        self.possible_agents = ["arm_0", "arm_1"]
        self.got: list[Any] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Discrete(1)

    def action_space(self, agent: str) -> Any:
        return ARM

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.got += actions.values()
        none = dict.fromkeys(self.agents, False)
        return dict.fromkeys(self.agents, 0), dict.fromkeys(self.agents, 0.0), none, none, {a: {} for a in self.agents}


class ArmsInTurns(AECEnv):  # type: ignore[misc]  # PettingZoo has no types
    """The same for two agents in turns."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = {"name": "arms_in_turns_v0", "is_parallelizable": True}
        self.render_mode = None
        self.possible_agents = ["arm_0", "arm_1"]
        self.got: list[Any] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Discrete(1)

    def action_space(self, agent: str) -> Any:
        return ARM

    def observe(self, agent: str) -> Any:
        return 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self.agent_selection = "arm_0"

    def step(self, action: Any) -> None:
        self.got.append(action)
        self.agent_selection = "arm_1" if self.agent_selection == "arm_0" else "arm_0"


@pytest.fixture(params=ACTIONS)
def case(request: pytest.FixtureRequest) -> tuple[Any, Any, Any]:
    return ACTIONS[request.param]


def test_the_function_and_both_ways_of_a_message(case: tuple[Any, Any, Any]) -> None:
    space, given, expected = case
    assert same(check_action(given, from_gymnasium(space)), expected)
    # Whoever does not know the space, sends what it has.
    content = encode_action(given).SerializeToString()
    assert same(ActionDecoder(from_gymnasium(space)).decode(content), expected)


def test_in_a_view(case: tuple[Any, Any, Any]) -> None:
    space, given, expected = case
    env, envs = Arm(space), rl.make_vec(lambda: Arm(space), 1)
    view = rl.make(env)
    try:
        view.reset()
        view.step(given)
        assert same(env.got[0], expected)
        envs.reset()
        if isinstance(space, spaces.Box):
            envs.step(np.asarray(given)[None])
            (inner,) = envs.get_attr("environment")
            assert same(inner.got[0], expected)
    finally:
        view.close()
        envs.close()


@pytest.mark.parametrize("make", [Arms, ArmsInTurns])
def test_in_the_views_of_pettingzoo(make: Any) -> None:
    view: Any
    for view in (rl.make_aec(make()), rl.make_parallel(make())):
        env = view.environment
        view.reset()
        if hasattr(view, "agent_selection"):
            for _ in range(2):
                view.step(PAIR)
        else:
            view.step(dict.fromkeys(view.agents, PAIR))
        assert len(env.got) == 2
        assert all(same(action, ROUNDED) for action in env.got)
        wrong = np.array([2.0, 0.0])
        with pytest.raises(InvalidActionError, match=r"actor 'arm_0': action\[0\]: expected -1.0 to 1.0, got 2.0"):
            view.step(wrong if hasattr(view, "agent_selection") else dict.fromkeys(view.agents, wrong))
        view.close()


def test_at_the_seat_of_a_policy_and_in_the_data_set(case: tuple[Any, Any, Any], tmp_path: Path) -> None:
    space, given, expected = case
    env, store = Arm(space), f"sqlite:{tmp_path / 'trials.db'}"
    results = rl.run_trials(
        1, environment=lambda: env, seats={"player_0": rl.policy(lambda _: given)}, store=store, check=True
    )
    assert len(results) == 1
    assert len(env.got) == 3
    assert all(same(action, expected) for action in env.got)
    if not isinstance(space, spaces.Graph):  # which no data set has
        rl.export(store, parquet=tmp_path / "data")
        again = rl.replay_environment(tmp_path / "data", check_actions=True)
        view = rl.make(again)
        view.reset()
        view.step(given)
        view.close()


def test_the_default_action_of_a_seat() -> None:
    seat = rl.policy(lambda _: None, optional=True, default={"arm": PAIR})
    params = seat.actor_params("a", environment="arm", action_space=from_gymnasium(spaces.Dict({"arm": ARM})))
    expected = encode_action({"arm": ROUNDED}).SerializeToString()
    assert params.default_action.content == expected


@pytest.mark.parametrize(
    ("space", "wrong", "where"),
    [
        (FREE, np.array([0, 1e300]), "[1]: expected a number of float32, got 1e+300"),
        (
            spaces.Dict({"arm": FREE}),
            {"arm": np.array([1e300, 0])},
            '["arm"][0]: expected a number of float32, got 1e+300',
        ),
        (spaces.Box(-np.inf, np.inf, (), np.float32), 1e300, ": expected a number of float32, got 1e+300"),
        (
            spaces.Sequence(FREE),
            (np.zeros(2), np.array([0, -1e39])),
            "[1][1]: expected a number of float32, got -1e+39",
        ),
        (FREE, np.array([0, np.nan]), "[1]: expected -inf to inf, got nan"),
        (FREE, np.array(["a", "b"]), ": expected float32, got <U1"),
        (FREE, [0.0, 0.0], ": expected an array, got list"),
        (FREE, 0.5, ": expected an array, got float 0.5"),
        (spaces.Discrete(2), 1.0, ": expected an integer, got float 1.0"),
        (spaces.MultiDiscrete([2]), np.ones(1), ": expected int64, got float64"),
    ],
)
def test_refused_alike_everywhere(space: Any, wrong: Any, where: str) -> None:
    ours, text = from_gymnasium(space), f"action{where}"
    player = Player("arm", "player_0")
    player.observe(encode_observation(Observation(np.int64(0), observation_space=ours, action_space=ours)))
    view = rl.make(Arm(space))
    view.reset()
    ways: dict[str, Callable[[], Any]] = {
        "the function": lambda: check_action(wrong, ours),
        "a message": lambda: encode_action(wrong, ours),
        "a seat": lambda: player.act(wrong),
        "a view": lambda: view.step(wrong),
    }
    for way, function in ways.items():
        with pytest.raises(CogmentError) as caught:
            function()
        assert text in str(caught.value), way
    view.close()


def test_infinity_is_a_number_that_was_meant() -> None:
    found = check_action(np.array([np.inf, -np.inf]), from_gymnasium(FREE))
    assert found.dtype == np.float32
    assert found.tolist() == [np.inf, -np.inf]


def test_what_is_not_rounded_belongs_to_the_sender() -> None:
    action = {"arm": PAIR}
    encode_action(action, from_gymnasium(spaces.Dict({"arm": ARM})))
    assert action["arm"] is PAIR
    assert PAIR.dtype == np.float64
