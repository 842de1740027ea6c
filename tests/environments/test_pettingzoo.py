"""Games of PettingZoo as environments of trials: at once and in turns, who is out or joins, masks, what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pettingzoo
import pytest
from pettingzoo.test.example_envs import generated_agents_parallel_v0
from pettingzoo.utils import wrappers

from tests.environments._games import Countdown, Crowd, Dice, Rps
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.environments.making import make_environment
from trio_cogment.environments.pettingzoo import AECEnvironment, ParallelEnvironment
from trio_cogment.spaces import Discrete, Observation


def flags(observation: Observation) -> tuple[bool, bool, bool, bool]:
    return observation.terminated, observation.truncated, observation.active, observation.alive


class WithALog(Countdown):
    """A game in turns whose information has a log for all."""

    def _inform(self) -> None:
        super()._inform()
        self.infos["common"] = {"log": [self.heap]}


def with_a_log(result: tuple[Any, ...]) -> Any:
    return (*result[:4], {**result[4], "__common__": {"steps": 1}})


@pytest.mark.parametrize(("env", "key"), [(Crowd(with_a_log), "__common__"), (WithALog(), "common")])
def test_information_that_belongs_to_no_agent(env: Any, key: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is told to nobody, and the log says so once."""
    ours = make_environment(env)
    for _ in range(2):
        found = ours.reset(None, None)
        while not ours.over:
            found = ours.step({name: 0 for name, one in found.items() if one.active})
            assert found.keys() == set(ours.agents)
    text = f"environment {ours.name!r}: infos: {key!r}: it belongs to no agent"
    assert [record.getMessage().partition(", so")[0] for record in caplog.records] == [text]


@pytest.mark.parametrize("env", [Crowd(), Countdown()])
def test_no_warning_of_the_agents_own(env: Any, caplog: pytest.LogCaptureFixture) -> None:
    ours = make_environment(env)
    found = ours.reset(None, None)
    while not ours.over:
        found = ours.step({name: 0 for name, one in found.items() if one.active})
    assert not caplog.records


def test_everybody_acts_at_once() -> None:
    env = Rps(render_mode="ansi")
    ours: Any = make_environment(env)
    assert isinstance(ours, ParallelEnvironment)
    assert (ours.name, ours.agents, ours.action_spaces["player_1"]) == ("rps", ("player_0", "player_1"), Discrete(3))
    first = ours.reset(1, {"x": 1})
    assert {name: (one.value, one.reward, one.info) for name, one in first.items()} == dict.fromkeys(
        ours.agents, (3, None, {"options": {"x": 1}})
    )
    assert flags(first["player_0"]) == (False, False, True, True)
    found = ours.step({"player_0": np.int64(0), "player_1": np.int64(1)})
    assert [(one.value, one.reward) for one in found.values()] == [(1, -1.0), (0, 1.0)]
    assert type(found["player_0"].reward) is float
    frame = ours.frame()
    assert frame is not None
    assert frame.data == b"round 1"
    found = ours.step({"player_0": 0, "player_1": 0})
    assert flags(found["player_1"]) == (False, False, True, True)
    last = ours.step({"player_0": 0, "player_1": 0})
    assert ours.over
    assert flags(last["player_1"]) == (False, True, False, False)
    ours.close()
    assert env.closed == 1


def test_agents_leave_and_join() -> None:
    ours = ParallelEnvironment(Crowd())
    assert ours.name == "Crowd"
    first = ours.reset(None, None)
    assert flags(first["late_0"]) == (False, False, False, False)
    assert ours.observation_spaces["late_0"].contains(first["late_0"].value)
    second = ours.step({"a_0": 0, "b_0": 0})
    assert second["b_0"].action_mask.tolist() == [1, 0]
    third = ours.step({"a_0": 0, "b_0": 0})
    assert flags(third["a_0"]) == (True, False, False, False)
    assert third["a_0"].reward == 2.0
    assert (flags(third["late_0"]), third["late_0"].reward) == ((False, False, True, True), 2.0)
    fourth = ours.step({"b_0": 0, "late_0": 0})
    assert (flags(fourth["a_0"]), fourth["a_0"].reward) == ((False, False, False, False), None)
    assert fourth["a_0"].value.tolist() == [2], "its last value, though the environment has changed the array"
    assert fourth["b_0"].value.tolist() == [3]
    last = ours.step({"b_0": 0, "late_0": 0})
    assert ours.over
    assert flags(last["late_0"]) == (False, True, False, False)
    again = ours.reset(None, None)
    assert flags(again["a_0"]) == (False, False, True, True)


def without(position: int, agent: str) -> Callable[[tuple[Any, ...]], Any]:
    def change(result: tuple[Any, ...]) -> Any:
        return tuple(
            {key: value for key, value in part.items() if index != position or key != agent}
            for index, part in enumerate(result)
        )

    return change


def instead(position: int, value: Any) -> Callable[[tuple[Any, ...]], Any]:
    def change(result: tuple[Any, ...]) -> Any:
        return tuple(part if index != position else {**part, "b_0": value} for index, part in enumerate(result))

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda result: result[:4], "environment 'Crowd', step: expected (observations, rewards, terminations, trunc"),
        (lambda result: [*result], "environment 'Crowd', step: expected (observations"),
        (without(0, "b_0"), "environment 'Crowd', actor 'b_0': observation: expected a value, got none"),
        (without(1, "b_0"), "environment 'Crowd', actor 'b_0': reward: expected a value, got none"),
        (without(2, "b_0"), "environment 'Crowd', actor 'b_0': terminated: expected a value, got none"),
        (without(3, "b_0"), "environment 'Crowd', actor 'b_0': truncated: expected a value, got none"),
        (without(4, "b_0"), "environment 'Crowd', actor 'b_0': info: expected a value, got none"),
        (instead(0, np.array([np.nan], "f4")), "environment 'Crowd', actor 'b_0': observation[0]: expected a number"),
        (instead(0, np.zeros(2, "f4")), "environment 'Crowd', actor 'b_0': observation: expected the shape (1,), got"),
        (instead(1, float("nan")), "environment 'Crowd', actor 'b_0': reward: expected a number, got NaN"),
        (instead(2, 0), "environment 'Crowd', actor 'b_0': terminated: expected a bool, got int"),
        (instead(4, None), "environment 'Crowd', actor 'b_0': info: expected a dict, got NoneType"),
    ],
)
def test_what_makes_no_sense_is_refused(change: Callable[[tuple[Any, ...]], Any], text: str) -> None:
    ours = ParallelEnvironment(Crowd(change))
    ours.reset(None, None)
    with pytest.raises(InvalidEnvironmentError) as caught:
        ours.step({"a_0": 0, "b_0": 0})
    assert str(caught.value).startswith(text)


def test_who_leaves_without_an_end_comes_back_or_is_unknown() -> None:
    env = Crowd()
    ours = ParallelEnvironment(env)
    ours.reset(None, None)

    def change(agents: list[str]) -> Callable[[tuple[Any, ...]], Any]:
        def changed(result: tuple[Any, ...]) -> Any:
            env.agents = agents
            return result

        return changed

    env.change = change(["a_0"])
    with pytest.raises(InvalidEnvironmentError, match=r"actor 'b_0': agents: expected it there, because it is neither"):
        ours.step({"a_0": 0, "b_0": 0})
    env.change = None
    ours.reset(None, None)
    ours.step({"a_0": 0, "b_0": 0})
    ours.step({"a_0": 0, "b_0": 0})
    env.change = change(["a_0", "b_0", "late_0"])
    with pytest.raises(InvalidEnvironmentError, match=r"actor 'a_0': agents: expected it not to come back"):
        ours.step({"b_0": 0, "late_0": 0})
    env.change = change(["b_0", "stranger"])
    ours.reset(None, None)
    with pytest.raises(InvalidEnvironmentError, match=r"'Crowd', agents: expected some of 'a_0', .*got 'stranger', to"):
        ours.step({"a_0": 0, "b_0": 0})


def test_agents_have_to_be_known_beforehand() -> None:
    with pytest.raises(InvalidEnvironmentError, match=r"'generated_agents_parallel_v0', possible_agents: expected all"):
        make_environment(generated_agents_parallel_v0.parallel_env())
    rps: Any = Rps()
    del rps.possible_agents
    with pytest.raises(InvalidEnvironmentError, match="assign a list of them to the environment"):
        make_environment(rps)
    rps.possible_agents = ["player_0", "player_1"]
    assert make_environment(rps).agents == ("player_0", "player_1")
    twins: Any = Rps()
    twins.possible_agents = [1, "1"]
    with pytest.raises(InvalidEnvironmentError, match=r"possible_agents: expected agents of different names, got \[1,"):
        make_environment(twins)


# One after the other


@pytest.mark.parametrize("mask", ["observation", "info"])
def test_turns_and_masks(mask: str) -> None:
    ours = make_environment(Countdown(3, mask))
    assert isinstance(ours, AECEnvironment)
    found = ours.reset(None, None)
    assert [flags(one)[2:] for one in found.values()] == [(True, True), (False, True), (False, True)]
    assert [one.action_mask.tolist() for one in found.values()] == [[1, 1], [0, 0], [0, 0]]
    assert [one.reward for one in found.values()] == [None] * 3
    found = ours.step({"p_0": 1})
    assert [one.active for one in found.values()] == [False, True, False]
    assert [one.reward for one in found.values()] == [2.0, 0.0, 0.0]
    assert [one.action_mask.tolist() for one in found.values()] == [[0, 0], [1, 0], [0, 0]]
    found = ours.step({"p_1": 0})
    assert ours.over
    assert [one.reward for one in found.values()] == [-1.0, 10.0, -1.0]
    assert [flags(one) for one in found.values()] == [(True, False, False, False)] * 3


def test_who_is_out_is_answered_and_the_others_go_on() -> None:
    ours: Any = make_environment(Countdown(4))
    ours.reset(None, None)
    ours.step({"p_0": 1})
    ours.step({"p_1": 0})
    found = ours.step({"p_2": 1})
    assert flags(found["p_2"]) == (True, False, False, False)
    assert found["p_2"].reward == -5.0
    assert flags(found["p_0"]) == (False, False, True, True), "nobody else had to do anything"
    assert found["p_0"].action_mask.tolist() == [1, 0], "its mask after the answer"
    assert not ours.over
    last = ours.step({"p_0": 0})
    assert ours.over
    assert (flags(last["p_2"]), last["p_2"].reward) == ((False, False, False, False), None)
    assert [last["p_0"].reward, last["p_1"].reward] == [10.0, -1.0]


def test_rewards_add_up_to_those_of_last() -> None:
    env, ours = Countdown(9), make_environment(Countdown(9))
    env.reset()
    found = ours.reset(None, None)
    sums = dict.fromkeys(ours.agents, 0.0)
    for agent in env.agent_iter():
        _, reward, terminated, truncated, _ = env.last()
        assert sums[agent] == reward
        if terminated or truncated:
            env.step(None)
            continue
        assert found[agent].active
        sums[agent] = 0.0
        env.step(1 if env.heap > 1 else 0)
        found = ours.step({agent: env.first and (1 if found[agent].value["observation"] > 1 else 0)})
        for name, one in found.items():
            sums[name] += one.reward or 0
    assert ours.over


def test_wrapped_games_and_illegal_moves() -> None:
    game = wrappers.OrderEnforcingWrapper(wrappers.TerminateIllegalWrapper(Countdown(1), illegal_reward=-7))
    ours = make_environment(game)
    assert ours.name == "countdown_v0"
    ours.reset(None, None)
    found = ours.step({"p_0": 1})
    assert ours.over
    assert found["p_0"].reward == -7.0
    assert found["p_0"].terminated


def test_unseeded_resets_go_on_with_the_generator() -> None:
    ours = make_environment(Dice())
    drawn = [ours.reset(seed, None)["p_0"].value for seed in (5, None, 5, None, 6)]
    assert drawn[:2] == drawn[2:4]
    assert len(set(drawn)) == 3


def test_states_of_a_turn_based_game_that_make_no_sense() -> None:
    env: Any = Countdown(9)
    ours = AECEnvironment(env)
    ours.reset(None, None)

    def stray(action: Any) -> None:
        env.agent_selection = "p_9"

    env.step = stray
    with pytest.raises(InvalidEnvironmentError, match=r"'countdown_v0', agent_selection: expected one of 'p_0', .*p_9"):
        ours.step({"p_0": 0})
    env.agent_selection = "p_0"
    env.step = lambda action: env.terminations.update(p_0=True)
    with pytest.raises(InvalidEnvironmentError, match=r"actor 'p_0': agents: expected it to leave when it was"):
        ours.step({"p_0": 0})
    env = Countdown(9)
    ours = AECEnvironment(env)
    ours.reset(None, None)
    env.step = lambda action: env.agents.remove("p_1")
    with pytest.raises(InvalidEnvironmentError, match=r"actor 'p_1': agents: expected it there"):
        ours.step({"p_0": 0})
    env.step = lambda action: env.rewards.pop("p_2")
    with pytest.raises(InvalidEnvironmentError, match=r"actor 'p_2': reward: expected a value, got none"):
        ours.step({"p_0": 0})


def test_by_id_and_by_module(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "tests.environments._games"
    monkeypatch.setitem(pettingzoo.parallel_registry, "tests/rps-v0", _spec("tests/rps-v0", f"{place}:Rps"))
    monkeypatch.setitem(
        pettingzoo.aec_registry, "tests/countdown-v0", _spec("tests/countdown-v0", f"{place}:Countdown")
    )
    found: Any = make_environment("tests/rps-v0", rounds=5)
    assert (found.env.rounds, found.name) == (5, "rps")
    assert isinstance(make_environment("tests/countdown-v0"), AECEnvironment)
    found = make_environment("tests.environments._module_v0", rounds=7)
    assert found.env.rounds == 7


def _spec(name: str, entry_point: str) -> Any:
    return pettingzoo.EnvSpec(id=name, entry_point=entry_point)
