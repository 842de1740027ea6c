"""Episodes of ordinary functions, each of which is a trial."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import trio

import trio_cogment.rl as tc
from tests.rl.views.environments import Counter
from tests.rl.views.test_mixed import Table
from trio_cogment import open_platform
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.environments.errors import InvalidActionError
from trio_cogment.environments.gymnasium import GymnasiumEnvironment
from trio_cogment.rl.views.match import Match
from trio_cogment.rl.views.options import PlatformOptions
from trio_cogment.rl.views.rounds import EpisodeFailedError
from trio_cogment.sdk import EnvironmentSession
from trio_cogment.spaces import Box, Discrete, Frame, Observation, Space

ME = "player_0"


def match_of(env: Counter, *, thread: bool | None = None, store: Any = None) -> Match:
    return Match(GymnasiumEnvironment(env, name="Counter"), options=PlatformOptions(thread=thread, store=store))


@pytest.fixture(params=[False, True], ids=["pump", "thread"])
def open_match(request: pytest.FixtureRequest) -> Iterator[Callable[[Counter], Match]]:
    opened: list[Match] = []

    def open_(env: Counter) -> Match:
        opened.append(match_of(env, thread=request.param))
        return opened[-1]

    yield open_
    for match in opened:
        match.close()


def play(match: Match) -> list[float]:
    rewards = []
    while not match.over:
        rewards.append(match.step({ME: 1})[ME].reward)
    return [reward for reward in rewards if reward is not None]


def test_each_episode_is_a_trial(open_match: Callable[[Counter], Match]) -> None:
    match = open_match(Counter())
    ids = set()
    for _ in range(5):
        first = match.reset()[ME]
        assert (first.value[0], first.reward) == (0, None)
        assert play(match) == [0.1 * step for step in range(1, 6)]
        ids.add(match.trial_id)
    assert len(ids) == 5


def test_the_flags_come_with_the_last_observation(open_match: Callable[[Counter], Match]) -> None:
    match = open_match(Counter())
    match.reset()
    for _ in range(4):
        found = match.step({ME: 0})[ME]
        assert (found.terminated, match.over) == (False, False)
    found = match.step({ME: 0})[ME]
    assert (found.terminated, found.truncated, match.over) == (True, False, True)


def test_the_generator_goes_on_without_a_seed(open_match: Callable[[Counter], Match]) -> None:
    match, bare = open_match(Counter()), Counter()
    for seed in (3, None, None, 3, None):
        found = match.reset(seed)[ME].value
        assert np.array_equal(found, bare.reset(seed=seed)[0])


def test_options_arrive(open_match: Callable[[Counter], Match]) -> None:
    match = open_match(Counter())
    assert match.reset(1, {"level": 3})[ME].info == {"options": {"level": 3}}


def test_observations_belong_to_the_caller(open_match: Callable[[Counter], Match]) -> None:
    match = open_match(Counter())
    first = match.reset()[ME].value
    first[:] = -1
    second = match.step({ME: 0})[ME].value
    assert (first[0], second[0]) == (-1, 1)


def test_a_reset_in_the_middle(open_match: Callable[[Counter], Match]) -> None:
    match = open_match(Counter())
    for _ in range(10):
        match.reset()
        match.step({ME: 0})
    assert match.step({ME: 0})[ME].value[0] == 2


def test_a_step_without_a_reset(open_match: Callable[[Counter], Match]) -> None:
    match = open_match(Counter())
    with pytest.raises(FailedPreconditionError, match=r"'Counter': step: expected a reset first$"):
        match.step({ME: 0})
    match.reset()
    play(match)
    with pytest.raises(FailedPreconditionError, match="the episode is over"):
        match.step({ME: 0})


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ({ME: 3}, "action: expected 0 to 2, got 3"),
        ({ME: np.zeros(2)}, "action: expected"),
        ({ME: None}, "action: expected"),
        ({}, "action: expected one, because it is the actor's turn; got none"),
    ],
)
def test_a_wrong_action_changes_nothing(open_match: Callable[[Counter], Match], actions: Any, text: str) -> None:
    match = open_match(Counter())
    match.reset()
    with pytest.raises(InvalidActionError, match="environment 'Counter', actor 'player_0': ") as raised:
        match.step(actions)
    assert text in str(raised.value)
    assert match.step({ME: 2})[ME].value[0] == 1


def test_an_environment_that_raises(open_match: Callable[[Counter], Match], caplog: pytest.LogCaptureFixture) -> None:
    def fail(step: int) -> None:
        if step == 2:
            raise ValueError("the sky has fallen")

    env = Counter(fail)
    match = open_match(env)
    match.reset()
    match.step({ME: 0})
    with pytest.raises(EpisodeFailedError, match=r"environment 'Counter', trial .*: ValueError: the sky") as raised:
        match.step({ME: 0})
    assert isinstance(raised.value.__cause__, ValueError)
    match.reset()
    told = [record for record in caplog.records if "the sky" in caplog.handler.format(record)]
    assert [record.exc_info for record in told] in ([None], [])  # in a thread, the reset may come before it is told
    env.on_step = lambda _: None
    match.reset()
    match.close()


def test_no_step_after_an_environment_has_raised(open_match: Callable[[Counter], Match]) -> None:
    def fail(step: int) -> None:
        raise ValueError("the sky has fallen")

    env = Counter(fail)
    match = open_match(env)
    match.reset()
    with pytest.raises(EpisodeFailedError, match="the sky has fallen"):
        match.step({ME: 0})
    with pytest.raises(FailedPreconditionError, match="step: expected a reset first"):
        match.step({ME: 0})
    env.on_step = lambda _: None
    match.reset()
    assert len(play(match)) == 5


def test_a_reset_that_fails(open_match: Callable[[Counter], Match]) -> None:
    match = open_match(Counter())
    with pytest.raises(EpisodeFailedError, match="as it was told"):
        match.reset(options={"fail": True})
    match.reset()
    assert len(play(match)) == 5


def test_an_environment_that_returns_no_observation(open_match: Callable[[Counter], Match]) -> None:
    env = Counter()
    match = open_match(env)
    match.reset()
    env.spoiled = True
    with pytest.raises(CogmentError, match="environment 'Counter', actor 'player_0': observation"):
        match.step({ME: 0})


def test_control_c_in_the_environment() -> None:
    env = Counter(lambda step: signal.raise_signal(signal.SIGINT) if step == 3 else None)
    match = match_of(env)
    try:
        match.reset()
        match.step({ME: 0})
        match.step({ME: 0})
        with pytest.raises(KeyboardInterrupt):
            match.step({ME: 0})
        env.on_step = lambda _: None
        match.reset()
        assert len(play(match)) == 5
    finally:
        match.close()


def test_two_in_one_thread() -> None:
    first, second = match_of(Counter()), match_of(Counter())
    first.reset()
    second.reset()
    assert first.step({ME: 0})[ME].value[0] == second.step({ME: 0})[ME].value[0] == 1
    first.close()
    assert second.step({ME: 0})[ME].value[0] == 2
    second.close()


async def test_within_a_trio_program() -> None:
    match = match_of(Counter())
    match.reset()
    assert len(play(match)) == 5
    match.close()


def test_closing_closes_the_environment_once() -> None:
    env = Counter()
    match = match_of(env)
    match.reset()
    match.close()
    match.close()
    assert env.closed == 1
    with pytest.raises(FailedPreconditionError, match="closed"):
        match.reset()
    with pytest.raises(FailedPreconditionError, match="closed"):
        match.step({ME: 0})


def test_one_that_nobody_closes_goes_with_the_garbage() -> None:
    match = match_of(Counter())
    match.reset()
    driver = match.platform.driver
    del match
    gc.collect()
    assert not trio.lowlevel.in_trio_run()
    with pytest.raises(FailedPreconditionError, match="closed"):
        driver.exchange(lambda: None, lambda: True)


def test_views_that_share_a_platform() -> None:
    """It stays open for the others, if one of them is closed or goes with the garbage."""
    first = tc.make(Counter, store="memory:")
    second = tc.make(Counter, platform=first)
    third = tc.make(Counter, platform=second)
    first.reset()
    second.reset()
    third.reset()
    first.close()
    del second
    gc.collect()
    third.step(1)
    third.reset()
    third.close()
    assert not trio.lowlevel.in_trio_run()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"platform": 3}, "platform: expected another view, such as make returns, got int"),
        ({"store": "memory:"}, "'Counter': platform: expected no store or other options with it, got .*memory:"),
        ({"environment": "grpc://nowhere:1"}, "platform: expected one that runs in a thread"),
    ],
)
def test_platforms_that_cannot_be_shared(options: dict[str, Any], text: str) -> None:
    with tc.make(Counter) as view, pytest.raises(InvalidArgumentError, match=text):
        tc.make(**{"environment": Counter, "platform": view, **options})


def test_clients_of_a_shared_platform_need_its_ports() -> None:
    seats = {"p_1": tc.random(), "p_2": tc.random(), "p_3": tc.human(port=0)}
    view = tc.make_parallel(Table(), seats=seats)
    try:
        tc.make_parallel(Table(), platform=view, seats=seats).close()
        with pytest.raises(InvalidArgumentError, match="human: expected port=None, or a seat of the view"):
            tc.make_parallel(Table(), platform=view, seats={**seats, "p_3": tc.human(port=0)})
    finally:
        view.close()


async def test_the_platform_of_a_program_is_served_to_views() -> None:
    async with open_platform() as platform:
        with pytest.raises(InvalidArgumentError, match=r"got Platform, .* serve it, and use orchestrator="):
            tc.make(Counter, platform=platform)


def test_seats_of_nobody() -> None:
    environment = GymnasiumEnvironment(Counter(), name="Counter")
    with pytest.raises(InvalidArgumentError, match="'player_7' is not an agent; its agents are 'player_0'"):
        Match(environment, mine=["player_7"])


def test_a_function_is_no_seat() -> None:
    seats: Any = {"player_0": lambda observation: 0}
    with pytest.raises(
        InvalidArgumentError, match=r"'player_0': expected a seat, got function; write policy\(function\)$"
    ):
        tc.make_parallel(Counter, seats=seats)
    seats = {"player_0": "random"}
    with pytest.raises(InvalidArgumentError, match=r"'player_0': expected a seat, got str$"):
        tc.make_parallel(Counter, seats=seats)


class Shared(Counter):
    """Returns the same array at all steps, as some environments do, and remembers its actions."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = np.zeros(2, np.float32)
        self.got: list[Any] = []

    def step(self, action: Any) -> Any:
        self.got.append(action)
        return super().step(action)

    def _observation(self) -> Any:
        self.seen[:] = self.steps
        return self.seen


def test_arrays_and_actions_are_those_of_the_environment(open_match: Callable[[Counter], Match]) -> None:
    env = Shared()
    match = open_match(env)
    found = match.reset()[ME]
    assert found.value is env.seen
    for action in (1, np.int64(2)):
        assert match.step({ME: action})[ME].value is env.seen
    assert [type(action) for action in env.got] == [int, np.int64]
    assert found.value.tolist() == [2, 2]


class Leaver:
    """Two agents, the second of which is out from the beginning."""

    name = "leaver"
    agents: Sequence[str] = (ME, "player_1")
    observation_spaces: Mapping[str, Space] = dict.fromkeys(agents, Box(0, 9, (2,)))
    action_spaces: Mapping[str, Space] = dict.fromkeys(agents, Discrete(2))
    metadata: Mapping[str, Any] = {}
    over = False

    def __init__(self) -> None:
        self.last = np.zeros(2, np.float32)

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Observation]:
        return {ME: Observation(self.last), "player_1": Observation(self.last, active=False, alive=False)}

    def step(self, actions: Mapping[str, Any]) -> dict[str, Observation]:
        return self.reset(None, None)

    def frame(self) -> Frame | None:
        return None

    def close(self) -> None:
        pass


def test_the_value_of_one_who_is_out_is_its_own() -> None:
    match = Match(Leaver())
    try:
        match.reset()
        for _ in range(2):
            found = match.step({ME: 1})["player_1"].value
            assert found.tolist() == [0, 0]
            found += 1
    finally:
        match.close()


@pytest.mark.parametrize(("store", "sent"), [(None, []), ("memory:", [0.1, 0.2])])
def test_rewards_are_sent_beside_the_observations_if_anybody_gets_them(
    store: Any, sent: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[float] = []
    produce = EnvironmentSession.produce_observations_nowait

    def noted(session: Any, observations: Any, rewards: Any = (), *, told: bool = False) -> None:
        found.extend(reward.value for reward in rewards)
        produce(session, observations, rewards, told=told)

    monkeypatch.setattr(EnvironmentSession, "produce_observations_nowait", noted)
    match = match_of(Counter(), store=store)
    match.reset()
    assert [match.step({ME: 1})[ME].reward for _ in range(2)] == [0.1, 0.2]
    match.close()
    assert found == sent


def test_a_step_before_the_first_reset(open_match: Callable[[Counter], Match]) -> None:
    match = open_match(Counter())
    with pytest.raises(FailedPreconditionError, match=r"step: expected a reset first$"):
        match.step({ME: 1})
    match.reset()
    match.step({ME: 1})


def test_a_reset_that_fails_in_the_middle_ends_the_episode(open_match: Callable[[Counter], Match]) -> None:
    match = open_match(Counter())
    match.reset()
    match.step({ME: 1})
    with pytest.raises(CogmentError, match="as it was told"):
        match.reset(options={"fail": True})
    assert match.over
    with pytest.raises(FailedPreconditionError, match="expected a reset first"):
        match.step({ME: 1})
    match.reset()
    assert play(match)
