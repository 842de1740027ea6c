"""Trials as environments of Gymnasium, held against the bare environments by Gymnasium's own checks."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import trio
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.utils.env_match import check_environments_match

import trio_cogment.rl as tc
from tests.rl.views.environments import Counter
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trio_cogment.environments.errors import InvalidActionError

NAMES = ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"]


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def warnings_of(function: Callable[[], object]) -> set[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return {str(each.message) for each in caught}


@pytest.mark.parametrize("name", NAMES)
def test_the_checks_of_gymnasium(name: str) -> None:
    env, bare = tc.make(name), gymnasium.make(name).unwrapped
    try:
        ours = warnings_of(lambda: check_env(env))
        assert ours <= warnings_of(lambda: check_env(bare))
    finally:
        env.close()
        bare.close()


def match(name: str, steps: int, **arguments: Any) -> None:
    env, bare = tc.make(name, **arguments), gymnasium.make(name, **arguments)
    try:
        check_environments_match(bare, env, steps, seed=11)
    finally:
        env.close()
        bare.close()


@pytest.mark.parametrize("name", NAMES)
def test_matches_the_bare_environment(name: str) -> None:
    match(name, 300)


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_matches_the_bare_environment_for_long(name: str) -> None:
    match(name, 10_000)


def test_seeds_of_64_bits() -> None:
    """As Minari's `DataCollector` draws them."""
    env, bare = tc.make("CartPole-v1"), gymnasium.make("CartPole-v1")
    for seed in (2**63 - 1, 2**63, 2**64 - 1):
        assert np.array_equal(env.reset(seed=seed)[0], bare.reset(seed=seed)[0])
    env.close()


def test_pictures_match() -> None:
    match("CartPole-v1", 20, render_mode="rgb_array")


def test_rewards_are_equal_to_the_last_bit() -> None:
    env, bare = tc.make("Pendulum-v1"), gymnasium.make("Pendulum-v1")
    bare.action_space.seed(3)
    env.reset(seed=3)
    bare.reset(seed=3)
    for _ in range(200):
        action = bare.action_space.sample()
        found, expected = env.step(action), bare.step(action)
        assert data_equivalence(found, expected, exact=True)
    env.close()


def test_it_is_no_wrapper() -> None:
    env = tc.make("CartPole-v1")
    assert env.unwrapped is env
    assert isinstance(env.environment.unwrapped, gymnasium.Env)
    env.close()


def test_gymnasium_makes_it() -> None:
    env = gymnasium.make(tc.register("CartPole-v1"))
    assert isinstance(env.unwrapped, tc.TrialEnv)
    env.close()
    named = gymnasium.make(tc.register("Pendulum-v1", id="trio_cogment/Swing-v3"), g=5.0)
    assert named.spec is not None
    assert named.spec.id == "trio_cogment/Swing-v3"
    unwrapped = named.unwrapped
    assert isinstance(unwrapped, tc.TrialEnv)
    assert unwrapped.environment.unwrapped.g == 5.0
    named.close()


def test_its_spec_makes_it_again() -> None:
    env = tc.make("Pendulum-v1", g=4.0)
    assert env.spec is not None
    assert env.spec.id == "trio_cogment/Pendulum-v1"
    again = env.spec.make()
    unwrapped = again.unwrapped
    assert isinstance(unwrapped, tc.TrialEnv)
    assert unwrapped.environment.unwrapped.g == 4.0
    env.close()
    again.close()
    # One that was made already is made again.
    made = tc.make(gymnasium.make("Pendulum-v1", g=3.0))
    assert made.spec is not None
    again = made.spec.make()
    unwrapped = again.unwrapped
    assert isinstance(unwrapped, tc.TrialEnv)
    assert unwrapped.environment.unwrapped.g == 3.0
    made.close()
    again.close()


def test_one_without_a_spec_plays_but_is_not_made_again() -> None:
    env = tc.make(Counter())
    assert env.spec is None
    env.reset(seed=1)
    assert env.step(1)[1] == 0.1
    env.close()


def test_wrappers_of_gymnasium_around_it() -> None:
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.wrappers.TimeLimit(tc.make("CartPole-v1"), 7))
    env.reset(seed=1)
    for step in range(1, 8):
        *_, truncated, info = env.step(step % 2)
    assert truncated
    assert info["episode"]["r"] == 7
    env.reset()
    env.close()


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: tc.make("Nothing-v9"), NotFoundError, "environment 'Nothing-v9'"),
        (lambda: tc.make(7), InvalidArgumentError, "environment: expected an id"),
        (lambda: tc.make(Counter(), level=3), InvalidArgumentError, "arguments: expected none"),
        (lambda: tc.make("CartPole-v1", seat="player_9"), InvalidArgumentError, "'player_9' is not an agent"),
        (
            lambda: tc.make("CartPole-v1", seats={"player_0": tc.random()}),
            InvalidArgumentError,
            "expected an agent for the view",
        ),
        (lambda: tc.make("CartPole-v1", store="nowhere:"), InvalidArgumentError, "storage: expected"),
        (lambda: tc.make("grpc://localhost:1", render_mode="human"), InvalidArgumentError, "render_mode: expected"),
    ],
)
def test_what_cannot_be_made(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        make()
    assert text in str(raised.value)


def test_wrong_actions() -> None:
    env = tc.make("Pendulum-v1")
    with pytest.raises(FailedPreconditionError, match="expected a reset first"):
        env.step(np.zeros(1, np.float32))
    env.reset()
    for action in (np.full(1, 3.0), np.full(1, np.nan), np.zeros(2), 0.5, None):
        with pytest.raises(InvalidActionError, match=r"environment 'Pendulum-v1', actor 'player_0': action"):
            env.step(action)
    env.step(np.full(1, 2.0))
    env.close()


def test_what_nobody_closes_ends_with_the_interpreter(tmp_path: Path) -> None:
    """Also if its platform has files, which are written in threads."""
    program = f"""
import trio_cogment.rl as tc
for thread in (False, True):
    for files in ({{}}, dict(store=f"sqlite:{tmp_path}/{{thread}}.db", model_registry=f"{tmp_path}/{{thread}}")):
        env = tc.make("CartPole-v1", thread=thread, **files)
        env.reset(seed=1)
        env.step(1)
        globals()[f"kept_{{thread}}_{{bool(files)}}"] = env
print("done")
"""
    run = [sys.executable, "-X", "dev", "-W", "error", "-c", program]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_others_play_and_their_ticks_belong_to_the_step() -> None:
    env = tc.make(
        "classic/tictactoe-v3", seats={"player_2": tc.policy(lambda value: int(value["action_mask"].argmax()))}
    )
    env.reset(seed=1)
    assert env.agent == "player_1"
    observation, reward, terminated, _, _ = env.step(8)
    assert (reward, terminated) == (0, False)
    assert observation["action_mask"].tolist() == [0, 1, 1, 1, 1, 1, 1, 1, 0]
    for action in (7, 6):
        observation, reward, terminated, _, _ = env.step(action)
    assert (reward, terminated) == (1, True)
    env.close()


def test_equal_seeds_give_equal_trials_with_seats_that_draw() -> None:
    def play() -> list[int]:
        env = tc.make("classic/rps-v2", seats={"player_1": tc.random()})
        found = []
        for seed in (5, None, 5, None):
            env.reset(seed=seed)
            found.append([int(env.step(0)[0]) for _ in range(10)])
        env.close()
        assert found[0] == found[2] != found[1]
        return found[0]

    assert play() == play()


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_seat_that_fails_is_named(thread: bool, waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    """What it raised is the cause of the error, and is told in one line of the log."""
    raised = ValueError("no idea")

    def fail(observation: Any) -> int:
        raise raised

    async def fail_later(observation: Any) -> int:
        await trio.lowlevel.checkpoint()
        raise raised

    env = tc.make("classic/rps-v2", seats={"player_1": tc.policy(fail_later if waits else fail)}, thread=thread)

    def play() -> None:
        env.reset()
        env.step(0)

    with pytest.raises(tc.EpisodeFailedError, match=r"actor 'player_1'.*ValueError: no idea") as caught:
        play()
    env.close()
    assert caught.value.__cause__ is raised
    told = [record for record in caplog.records if "no idea" in caplog.handler.format(record)]
    assert [record.exc_info for record in told] == [None]
    assert told[0].getMessage() == f"trial {env.trial_id}: actor 'player_1' failed: ValueError: no idea"


def test_the_log_has_the_traceback_of_a_seat_that_the_trial_can_do_without(caplog: pytest.LogCaptureFixture) -> None:
    def fail(observation: Any) -> int:
        raise ValueError("no idea")

    env = tc.make("classic/rps-v2", seats={"player_1": tc.policy(fail, optional=True, default=0)})
    env.reset()
    assert env.step(1)[1] == 1
    env.close()
    told = [record for record in caplog.records if record.exc_info and record.exc_info[0] is ValueError]
    assert len(told) == 1
