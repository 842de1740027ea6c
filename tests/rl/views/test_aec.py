"""Seats of trials as environments whose agents act one after the other, beside the environments themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import api_test, seed_test
from pettingzoo.utils.conversions import parallel_to_aec

from tests.environments._games import Countdown, Crowd, Dice, Rps
from tests.rl.views.test_parallel import Noise, equal
from trio_cogment import rl
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.environments.errors import InvalidActionError, InvalidEnvironmentError


@pytest.fixture
def made() -> Iterator[Callable[..., Any]]:
    """Makes views, and closes them in the end."""
    opened: list[Any] = []

    def make(*args: Any, **kwargs: Any) -> Any:
        opened.append(rl.make_aec(*args, **kwargs))
        return opened[-1]

    yield make
    for view in opened:
        view.close()
        view.close()


def state_of(env: Any, observed: list[str]) -> dict[str, Any]:
    return {
        "agents": dict.fromkeys(env.agents),
        "order": list(env.agents),
        "rewards": env.rewards,
        "cumulative": env._cumulative_rewards,
        "terminations": env.terminations,
        "truncations": env.truncations,
        "infos": env.infos,
        "observations": {agent: env.observe(agent) for agent in observed},
    }


def last_of(env: Any) -> dict[int, Any]:
    return dict(enumerate(env.last()))


def action_of(env: Any, agent: str, generator: np.random.Generator) -> Any:
    observation, _, terminated, truncated, info = env.last()
    if terminated or truncated:
        return None
    mask = observation.get("action_mask") if isinstance(observation, dict) else info.get("action_mask")
    env.action_space(agent).seed(int(generator.integers(1000)))
    return env.action_space(agent).sample(mask)


def said(check: Callable[[], object]) -> set[str]:
    """Return the warnings of a check."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check()
    return {str(each.message) for each in caught}


def assert_same_episodes(
    bare: Any, view: Any, *, seeds: tuple[int | None, ...] = (3, None, 3, None), without: tuple[str, ...] = ()
) -> None:
    """Everything is the same after every step; observations are those of who has not ended."""
    for number, seed in enumerate(seeds):
        bare.reset(seed=seed)
        view.reset(seed=seed)
        generator = np.random.default_rng(number)
        while bare.agents:
            agent = bare.agent_selection
            live = [each for each in bare.agents if not (bare.terminations[each] or bare.truncations[each])]
            expected, found = state_of(bare, live), state_of(view, live)
            for key, value in expected.items():
                assert key in without or equal(value, found[key]), key
            if not live:
                break
            assert view.agent_selection == agent
            assert equal(last_of(bare), last_of(view))
            action = action_of(bare, agent, generator)
            bare.step(action)
            view.step(action)
        assert equal(farewells(bare), farewells(view))
        assert view.agents == []


def farewells(env: Any) -> dict[str, Any]:
    """Return what the agents are told who all have ended; in which order they leave is the environment's affair."""
    found = {}
    while env.agents:
        found[env.agent_selection] = last_of(env)
        env.step(None)
    return found


@pytest.mark.parametrize("mask", ["observation", "info", ""])
def test_episodes_of_turns_are_those_of_the_environment(made: Callable[..., Any], mask: str) -> None:
    assert_same_episodes(Countdown(20, mask), made(Countdown(20, mask)), seeds=(1, None, 2, None, None, None, None))


@pytest.mark.parametrize("make", [Noise, Rps], ids=lambda make: make.__name__)
def test_episodes_of_parallel_games_are_those_of_pettingzoos_conversion(
    made: Callable[..., Any], make: Callable[[], Any]
) -> None:
    """Except that the conversion forgets the reward of who has acted only when all have, and has the live first."""
    assert_same_episodes(parallel_to_aec(make()), made(make()), without=("cumulative", "order"))


@pytest.mark.parametrize(
    "make",
    [Noise, Rps, lambda: Countdown(mask="info"), lambda: parallel_to_aec(Noise())],
    ids=["all at once", "rounds", "turns", "converted"],
)
def test_pettingzoo_finds_nothing_wrong(make: Callable[[], Any]) -> None:
    """It says the same of the environments themselves."""
    view = rl.make_aec(make())
    assert said(lambda: api_test(view, num_cycles=100)) <= {
        "Observation is not a NumPy array",
        "Observation numpy array is all zeros.",
    }
    view.close()
    assert said(lambda: seed_test(lambda: rl.make_aec(make()), num_cycles=50)) == set()


def test_agents_that_join_and_leave(made: Callable[..., Any]) -> None:
    view = made(Crowd())
    view.reset()
    seen = []
    for agent in view.agent_iter():
        _, reward, terminated, truncated, _ = view.last()
        seen.append((agent, reward, terminated or truncated))
        view.step(None if terminated or truncated else 0)
    assert seen == [
        *(("a_0", 0, False), ("b_0", 0, False)),
        *(("a_0", 1, False), ("b_0", 1, False)),
        *(("a_0", 2, True), ("b_0", 2, False), ("late_0", 2, False)),
        *(("b_0", 3, False), ("late_0", 3, False)),
        *(("b_0", 4, True), ("late_0", 4, True)),
    ]


def test_only_the_callers_agents_are_seen(made: Callable[..., Any]) -> None:
    """What the others do belongs to the step before, and to the reset."""
    one = rl.policy(lambda _: 0)
    view = made(Countdown(mask=""), seats={"p_0": one, "p_2": one})
    view.reset()
    seen = []
    for agent in view.agent_iter():
        observation, reward, terminated, truncated, _ = view.last()
        seen.append((agent, observation, reward, terminated))
        assert view.rewards[agent] == reward
        view.step(None if terminated or truncated else 0)
    assert view.possible_agents == ["p_1"]
    assert seen == [("p_1", 6, 0, False), ("p_1", 3, 1, False), ("p_1", 0, 1 - 1, True)]


def test_two_of_the_callers_and_one_other(made: Callable[..., Any]) -> None:
    view = made(Countdown(mask=""), seats={"p_1": rl.policy(lambda _: 0)})
    view.reset()
    order = []
    for agent in view.agent_iter():
        *_, terminated, truncated, _ = view.last()
        order.append(agent)
        view.step(None if terminated or truncated else 0)
    assert order[:5] == ["p_0", "p_2", "p_0", "p_2", "p_0"]
    assert sorted(order[5:]) == ["p_0", "p_2"]


def test_unseeded_resets_go_on(made: Callable[..., Any]) -> None:
    bare, view = Dice(), made(Dice())
    for seed in (3, None, None, 3, None):
        bare.reset(seed=seed)
        view.reset(seed=seed)
        assert view.observe("p_0") == bare.observe("p_0")


@pytest.mark.parametrize("mask", ["observation", "info"])
def test_what_a_mask_forbids_is_refused_before_it_is_played(mask: str, made: Callable[..., Any]) -> None:
    """Of one left an agent may not take two: it would be out, in this game."""
    view = made(Countdown(1, mask=mask), illegal_actions="refuse")
    view.reset()
    with pytest.raises(InvalidActionError, match="'p_0': action: expected one of 0, which are allowed now; got 1"):
        view.step(1)
    assert view.agent_selection == "p_0"
    view.step(0)
    assert view.rewards["p_0"] == 10
    view = made(Countdown(1, mask=mask))
    view.reset()
    view.step(1)
    assert view.rewards["p_0"] == -5, "what the game does about it"
    with pytest.raises(InvalidArgumentError, match="illegal_actions: expected 'refuse' or 'play', got 'skip'"):
        made(Countdown(1, mask=mask), illegal_actions="skip")


def test_an_illegal_move_in_openspiel(made: Callable[..., Any]) -> None:
    pytest.importorskip("pyspiel")
    view = made("openspiel/tic_tac_toe")
    view.reset()
    view.step(4)
    with pytest.raises(InvalidActionError, match="actor 'player_1': action: expected one of 0, 1, 2, 3, 5, 6, 7, 8"):
        view.step(4)
    view.step(0)
    assert view.agent_selection == "player_0"


def test_bad_input(made: Callable[..., Any]) -> None:
    view = made(Countdown(3, mask=""))
    with pytest.raises(FailedPreconditionError, match=r"environment 'countdown_v0': step: expected a reset first$"):
        view.step(0)
    with pytest.raises(InvalidArgumentError, match="observe: expected agents out of"):
        view.observe("p_0")
    view.reset()
    for wrong, text in ((7, "expected 0 to 1, got 7"), (None, "expected an integer, got NoneType")):
        with pytest.raises(InvalidActionError, match=f"'countdown_v0', actor 'p_0': action: {text}"):
            view.step(wrong)
        assert view.agent_selection == "p_0"
    view.step(np.int32(0))
    with pytest.raises(InvalidArgumentError, match="observe: expected agents out of 'p_0', 'p_1', 'p_2'; got 'p_3'"):
        view.observe("p_3")
    view.step(1)
    assert view.last()[2]
    with pytest.raises(ValueError, match="the only valid action is None"):
        view.step(0)
    for _ in view.agent_iter():
        view.step(None)
    with pytest.raises(FailedPreconditionError, match="step: expected a reset first, because the episode is over"):
        view.step(None)
    view.close()
    with pytest.raises(CogmentError, match="closed"):
        view.reset()


def test_failures_end_their_episode_alone(made: Callable[..., Any], quiet: None) -> None:
    spoiled = True

    def spoil(result: tuple[Any, ...]) -> Any:
        return result[:4] if spoiled else result

    view = made(Crowd(change=spoil))
    view.reset()
    view.step(0)
    with pytest.raises(InvalidEnvironmentError, match=r"expected .*, got 4 values"):
        view.step(0)
    assert view.agents == []
    assert list(view.agent_iter()) == []
    spoiled = False
    view.reset()
    view.step(0)
    view.step(0)
    assert view.rewards == {"a_0": 1, "b_0": 1}


def test_what_was_chosen_before_a_reset_is_not_played_after_it(made: Callable[..., Any]) -> None:
    env, other = made(Rps()), made(Rps())
    for one in (env, other):
        one.reset(seed=1)
    env.step(2)  # the first of two; nothing is played yet
    env.reset(seed=1)
    for one in (env, other):
        for _ in one.agents[:]:
            one.step(0)
    assert env.rewards == other.rewards
    assert env._cumulative_rewards == other._cumulative_rewards
