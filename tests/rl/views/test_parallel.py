"""Seats of trials as parallel environments of PettingZoo, beside the environments themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.test import parallel_api_test, parallel_seed_test, state_test
from pettingzoo.utils.conversions import parallel_to_aec

from tests.environments._games import Countdown, Crowd, Rps
from tests.rl.views.environments import Counter
from trio_cogment import rl
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.environments.errors import InvalidActionError, InvalidEnvironmentError


class Noise(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types
    """Two agents see noise, and are rewarded with some: of 64 bits. The first one is out before the second."""

    def __init__(self) -> None:
        self.metadata = {"name": "noise_v0"}
        self.render_mode = None
        self.possible_agents = ["a_0", "b_0"]
        self.agents: list[str] = []
        self.generator = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 1, (3,), np.float64)

    def action_space(self, agent: str) -> Any:
        return spaces.Box(-1, 1, (2,), np.float32)

    def _seen(self, agents: list[str]) -> dict[str, Any]:
        return {agent: self.generator.random(3) for agent in agents}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        self.agents, self.steps = list(self.possible_agents), 0
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        agents, self.steps = self.agents, self.steps + 1
        rewards = {agent: float(self.generator.random() + actions[agent].sum()) for agent in agents}
        ended = {agent: (agent == "a_0" and self.steps == 3) or self.steps == 7 for agent in agents}
        self.agents = [agent for agent in agents if not ended[agent]]
        infos = {agent: {"steps": self.steps} for agent in agents}
        return self._seen(agents), rewards, ended, dict.fromkeys(agents, False), infos


@pytest.fixture
def made() -> Iterator[Callable[..., Any]]:
    """Makes views, and closes them in the end."""
    opened: list[Any] = []

    def make(*args: Any, **kwargs: Any) -> Any:
        opened.append(rl.make_parallel(*args, **kwargs))
        return opened[-1]

    yield make
    for view in opened:
        view.close()
        view.close()


def in_rounds(game: Any) -> Any:
    """Return a game of turns that says that its agents may act all at once."""
    game.metadata = {**game.metadata, "is_parallelizable": True}
    return game


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return (
            isinstance(other, dict) and one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
        )
    return bool(np.array_equal(one, other))


def assert_same_episodes(bare: Any, view: Any, *, seeds: tuple[int | None, ...] = (3, None, 3, None)) -> None:
    for seed in seeds:
        first, own = bare.reset(seed=seed), view.reset(seed=seed)
        assert equal(dict(enumerate(first)), dict(enumerate(own)))
        assert view.agents == bare.agents
        generator = np.random.default_rng(1)
        while bare.agents:
            actions = {}
            for agent in bare.agents:
                space = bare.action_space(agent)
                space.seed(int(generator.integers(1000)))
                actions[agent] = space.sample()
            expected, found = bare.step(actions), view.step(actions)
            assert equal(dict(enumerate(expected)), dict(enumerate(found)))
            assert view.agents == bare.agents


@pytest.mark.parametrize("make", [Noise, Crowd, Rps], ids=lambda make: make.__name__)
def test_episodes_are_those_of_the_environment(made: Callable[..., Any], make: Callable[[], Any]) -> None:
    """Masks are not heeded here: what is forbidden is played, as by the environment itself."""
    assert_same_episodes(make(), made(make()))


@pytest.mark.parametrize("make", [Noise, Rps], ids=lambda make: make.__name__)
def test_pettingzoo_finds_nothing_wrong(make: Callable[[], Any]) -> None:
    view = rl.make_parallel(make())
    parallel_api_test(view, num_cycles=100)
    view.close()
    parallel_seed_test(lambda: rl.make_parallel(make()))


def test_agents_that_join(made: Callable[..., Any]) -> None:
    """PettingZoo's own test says of the bare environment, too, that not all agents were there in the end."""
    parallel_api_test(made(Crowd()), num_cycles=100)


def test_rounds_of_turns_are_steps(made: Callable[..., Any]) -> None:
    assert_same_episodes(Rps(), made(parallel_to_aec(Rps())))
    parallel_api_test(made(parallel_to_aec(Rps())), num_cycles=100)


def test_rounds_end_when_the_game_does(made: Callable[..., Any]) -> None:
    """Who has not acted by then gets the end all the same; who is out does not act again."""
    game = in_rounds(Countdown(mask=""))
    view = made(game)
    observations, _ = view.reset()
    assert observations == {"p_0": 7, "p_1": 7, "p_2": 7}
    observations, rewards, *_ = view.step({"p_0": 1, "p_1": 1, "p_2": 0})
    assert (observations, rewards) == ({"p_0": 2, "p_1": 2, "p_2": 2}, {"p_0": 2, "p_1": 2, "p_2": 1})
    observations, rewards, ended, _, _ = view.step({"p_0": 0, "p_1": 1, "p_2": 0})
    assert view.agents == []
    assert rewards == {"p_0": 1 - 1, "p_1": -5, "p_2": 10}
    assert ended == {"p_0": True, "p_1": True, "p_2": True}


def test_masks_are_where_the_environment_has_them(made: Callable[..., Any]) -> None:
    game = in_rounds(Countdown(mask="info"))
    _, infos = made(game).reset()
    assert {agent: info["action_mask"].tolist() for agent, info in infos.items()} == {
        "p_0": [1, 1],
        "p_1": [0, 0],
        "p_2": [0, 0],
    }
    game = in_rounds(Countdown())
    observations, infos = made(game).reset()
    assert observations["p_0"]["action_mask"].tolist() == [1, 1]
    assert infos == {"p_0": {}, "p_1": {}, "p_2": {}}


def test_turns_are_no_steps_unless_the_game_says_so(made: Callable[..., Any]) -> None:
    view = made(Countdown())
    with pytest.raises(InvalidArgumentError, match="'countdown_v0': make_parallel: expected agents that act"):
        view.reset()
    assert view.agents == []


def test_only_the_callers_agents_are_seen(made: Callable[..., Any]) -> None:
    """One alone may play a game of turns: what the others do belongs to its step."""
    taken = rl.policy(lambda _: 0)
    view = made(Countdown(mask=""), seats={"p_0": taken, "p_2": taken})
    assert view.possible_agents == ["p_1"]
    observations, _ = view.reset()
    assert (observations, view.agents) == ({"p_1": 6}, ["p_1"])
    found = view.step({"p_1": 0})
    assert (found[0], found[1]) == ({"p_1": 3}, {"p_1": 1.0})
    found = view.step({"p_1": 1})
    assert (found[1], found[2], view.agents) == ({"p_1": 2 - 1.0}, {"p_1": True}, [])


def test_another_of_the_callers_agents_goes_on(made: Callable[..., Any]) -> None:
    view = made(Noise(), seats={"a_0": rl.random(1)})
    view.reset(seed=1)
    steps = 0
    while view.agents:
        view.step({"b_0": np.zeros(2, np.float32)})
        steps += 1
    assert steps == 7
    early = made(Noise(), seats={"b_0": rl.random(1)})
    for _ in range(2):
        early.reset(seed=1)
        steps = 0
        while early.agents:
            found = early.step({"a_0": np.zeros(2, np.float32)})
            steps += 1
        assert (steps, found[2]) == (3, {"a_0": True})


def test_seeded_resets_determine_random_seats(made: Callable[..., Any]) -> None:
    def episode(view: Any, seed: int | None) -> list[Any]:
        view.reset(seed=seed)
        found = []
        while view.agents:
            found.append(view.step({"player_0": 0})[0]["player_0"])
        return found

    view = made(Rps(rounds=20), seats={"player_1": rl.random()})
    first, second, again = episode(view, 4), episode(view, None), episode(view, 4)
    assert first == again == episode(made(Rps(rounds=20), seats={"player_1": rl.random()}), 4)
    assert first != second


def test_render_and_what_is_known(made: Callable[..., Any]) -> None:
    game = Rps(render_mode="ansi")
    view = made(game)
    assert view.metadata == {"name": "rps", "render_modes": ["ansi"]}
    assert (str(view), view.unwrapped is view, view.environment is game) == ("rps", True, True)
    assert view.observation_space("player_0") is view.observation_space("player_0")
    assert view.action_space("player_0") is not view.action_space("player_1")
    view.reset()
    view.step({"player_0": 0, "player_1": 0})
    assert view.render() == "round 1"
    assert view.trial_id
    view.close()
    assert (game.closed, view.agents) == (1, [])
    assert made(Rps, rounds=1, render_mode="ansi").render_mode == "ansi"


class Public(Rps):
    """Its state is what both have seen, and 1: PettingZoo warns of zeros alone."""

    state_space = spaces.Box(1, 4, (2,), np.int64)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.seen = np.full(2, 3)
        return super().reset(seed, options)

    def step(self, actions: dict[str, Any]) -> Any:
        found = super().step(actions)
        self.seen = np.array([found[0][agent] for agent in self.possible_agents])
        return found

    def state(self) -> Any:
        return self.seen + 1


@pytest.mark.parametrize("thread", [False, True])
def test_the_state(made: Callable[..., Any], thread: bool) -> None:
    view, one = made(Public(), thread=thread), rl.make_aec(Public(rounds=20))
    assert view.state_space is Public.state_space
    view.reset()
    assert view.state().tolist() == [4, 4]
    view.step({"player_0": 1, "player_1": 2})
    assert view.state().tolist() == [3, 2]
    state_test(one, made(Public()))
    one.close()


def test_there_is_no_state(made: Callable[..., Any]) -> None:
    for game, why in ((Rps(), "it has none"), (Counter(), "it has none")):
        view = made(game)
        view.reset()
        assert not hasattr(view, "state_space")
        with pytest.raises(
            NotImplementedError, match=f"environment '{view.metadata['name']}': state: .* {why}"
        ) as caught:
            view.state()
        assert isinstance(caught.value, CogmentError)


def test_a_single_agent_of_gymnasium(made: Callable[..., Any]) -> None:
    view = made(Counter())
    view.reset(seed=1)
    while view.agents:
        found = view.step({"player_0": 1})
    assert found[1:4] == ({"player_0": 0.5}, {"player_0": True}, {"player_0": False})


def test_what_a_mask_forbids_is_refused_before_it_is_played(made: Callable[..., Any]) -> None:
    view = made(Crowd(), illegal_actions="refuse")
    _, infos = view.reset()
    assert "action_mask" not in infos["a_0"]
    view.step(dict.fromkeys(view.agents, 1))  # there is no mask yet
    with pytest.raises(InvalidActionError, match="'b_0': action: expected one of 0, which are allowed now; got 1"):
        view.step({"a_0": 0, "b_0": 1})
    view.step({"a_0": 0, "b_0": 0})
    assert view.agents == ["b_0", "late_0"]
    view = made(Crowd())
    view.reset()
    for _ in range(4):
        view.step(dict.fromkeys(view.agents, 1))
    assert not view.agents


def test_bad_input(made: Callable[..., Any]) -> None:
    view = made(Rps())
    with pytest.raises(FailedPreconditionError, match=r"environment 'rps': step: expected a reset first$"):
        view.step({})
    view.reset()
    with pytest.raises(InvalidActionError, match="environment 'rps', actor 'player_1': action: expected 0 to 2, got 3"):
        view.step({"player_0": 0, "player_1": 3})
    with pytest.raises(InvalidActionError, match="environment 'rps', actor 'player_1': action: expected one"):
        view.step({"player_0": 0})
    with pytest.raises(
        InvalidArgumentError, match=r"step: actions: expected agents out of 'player_0', .*got 'player_2'"
    ):
        view.step({"player_0": 0, "player_1": 0, "player_2": 0})
    with pytest.raises(InvalidArgumentError, match=r"observation_space: expected agents out of .*; got 'nobody'"):
        view.observation_space("nobody")
    assert view.agents == ["player_0", "player_1"]
    for _ in range(3):
        view.step({"player_0": 0, "player_1": 1})
    with pytest.raises(FailedPreconditionError, match="step: expected a reset first, because the episode is over"):
        view.step({"player_0": 0, "player_1": 1})
    view.close()
    with pytest.raises(CogmentError, match="closed"):
        view.reset()


def test_bad_input_in_a_round_of_turns(made: Callable[..., Any]) -> None:
    """Nobody has acted when the step raises."""
    view = made(parallel_to_aec(Rps()))
    view.reset()
    with pytest.raises(InvalidActionError, match="actor 'player_1': action: expected 0 to 2, got 9"):
        view.step({"player_0": 0, "player_1": 9})
    with pytest.raises(InvalidActionError, match="actor 'player_1': action: expected one of every agent, got none"):
        view.step({"player_0": 0})
    assert view.step({"player_0": 1, "player_1": 0})[1] == {"player_0": 1, "player_1": -1}


def test_there_is_no_registry(made: Callable[..., Any]) -> None:
    view = made(Rps(), seats={"player_1": rl.model("bot", load=lambda _: int)})
    with pytest.raises(FailedPreconditionError, match=r"'rps': store_model: .* give model_registry="):
        view.store_model("bot", b"1")
    for _ in range(2):
        with pytest.raises(FailedPreconditionError, match="'rps', actor 'player_1': model 'bot': expected a model reg"):
            view.reset()


def test_seats_that_make_no_sense(made: Callable[..., Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="'rps': seats: 'player_7' is not an agent"):
        made(Rps(), seats={"player_7": rl.random()})
    with pytest.raises(InvalidArgumentError, match="'rps': seats: expected an agent for the view"):
        made(Rps(), seats={"player_0": rl.random(), "player_1": rl.random()})


def test_failures_end_their_episode_alone(made: Callable[..., Any], quiet: None) -> None:
    """Of the environment, and of a seat."""

    def spoil(result: tuple[Any, ...]) -> Any:
        return (*result[:1], dict.fromkeys(result[1], np.nan), *result[2:]) if spoiled else result

    spoiled = False
    view = made(Crowd(change=spoil))
    actions = {"a_0": 0, "b_0": 0}
    view.reset()
    spoiled = True
    with pytest.raises(InvalidEnvironmentError, match="actor 'a_0': reward: expected a number, got NaN"):
        view.step(actions)
    assert view.agents == []
    with pytest.raises(FailedPreconditionError, match="step: expected a reset first"):
        view.step(actions)
    spoiled = False
    view.reset()
    view.step(actions)
    answers = [7]
    seated = made(Rps(), seats={"player_1": rl.policy(lambda _: answers[0])})
    seated.reset()
    with pytest.raises(rl.EpisodeFailedError, match="actor 'player_1': action: expected 0 to 2, got 7"):
        seated.step({"player_0": 0})
    assert seated.agents == []
    answers[0] = 1
    seated.reset()
    assert seated.step({"player_0": 0})[1] == {"player_0": -1}


def test_warnings_are_ours_to_avoid(made: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        view = made(Rps())
        assert view.max_num_agents == 2
        assert view.observation_space("player_0") == spaces.Discrete(4)
