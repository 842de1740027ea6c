"""Views of trials that run elsewhere, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import trio
from gymnasium.utils.env_checker import data_equivalence

import trio_cogment.rl as tc
from tests.environments._games import Rps
from tests.rl.views.environments import Counter
from tests.rl.views.test_mixed import CLIENTS_MOVE, Table, client_at, play
from trio_cogment import open_platform
from trio_cogment.base.config import PlatformConfig, RpcConfig
from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)
from trio_cogment.environments.serving import environment
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.rl.views.drivers import open_driver
from trio_cogment.rpc import RunningServer, open_listeners, serve
from trio_cogment.sdk import Participants, serve_participants


@asynccontextmanager
async def served_orchestrator(**options: Any) -> AsyncIterator[str]:
    async with open_platform(**options) as platform, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        server: RunningServer = await nursery.start(serve, platform.services, listeners)
        yield f"grpc://127.0.0.1:{server.port}"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def served_environment(target: Any) -> AsyncIterator[str]:
    participants = Participants(RL_SPEC)
    participants.register_environment(environment(target))
    async with trio.open_nursery() as nursery:
        serving = partial(serve_participants, participants, address="127.0.0.1")
        server: RunningServer = await nursery.start(serving)
        yield f"grpc://127.0.0.1:{server.port}"
        nursery.cancel_scope.cancel()


def seats_with(human: tc.Seat) -> dict[str, tc.Seat]:
    return {"p_1": tc.random(1), "p_2": tc.policy(lambda _: 2), "p_3": human}


@pytest.fixture
def pendulum() -> Iterator[str]:
    driver = open_driver(served_environment("Pendulum-v1"), thread=True)
    yield driver.value
    driver.close()


@pytest.fixture
def orchestrator() -> Iterator[str]:
    driver = open_driver(served_orchestrator(), thread=True)
    yield driver.value
    driver.close()


def test_an_orchestrator_elsewhere_changes_no_bit(orchestrator: str) -> None:
    env, bare = tc.make("Pendulum-v1", orchestrator=orchestrator), gymnasium.make("Pendulum-v1")
    try:
        for seed in (3, None):
            assert data_equivalence(env.reset(seed=seed), bare.reset(seed=seed), exact=True)
            bare.action_space.seed(3)
            for _ in range(200):
                action = bare.action_space.sample()
                assert data_equivalence(env.step(action), bare.step(action), exact=True)
    finally:
        env.close()


def test_a_reset_in_the_middle_of_an_episode_elsewhere(orchestrator: str) -> None:
    env = tc.make(Counter, orchestrator=orchestrator)
    try:
        ids = set()
        for _ in range(3):
            env.reset()
            ids.add(env.trial_id)
            assert env.step(0)[0][0] == 1
        assert len(ids) == 3
    finally:
        env.close()


def test_an_environment_that_fails_in_a_trial_elsewhere(orchestrator: str) -> None:
    def fail(step: int) -> None:
        raise ValueError("broken")

    counter = Counter(fail)
    env = tc.make(counter, orchestrator=orchestrator)
    try:
        env.reset()
        with pytest.raises(tc.EpisodeFailedError, match="ValueError: broken"):
            env.step(0)
        counter.on_step = lambda _: None
        env.reset()
        env.step(0)
    finally:
        env.close()


@pytest.mark.parametrize("both", [False, True], ids=["environment", "environment and orchestrator"])
def test_an_environment_elsewhere_changes_no_bit(pendulum: str, orchestrator: str, both: bool) -> None:
    env = tc.make(pendulum, orchestrator=orchestrator if both else "")
    bare = gymnasium.make("Pendulum-v1")
    try:
        assert (env.observation_space, env.action_space) == (bare.observation_space, bare.action_space)
        env.reset()
        for seed in (3, None, 4):
            assert data_equivalence(env.reset(seed=seed), bare.reset(seed=seed), exact=True)
            bare.action_space.seed(3)
            ended = False
            while not ended:
                action = bare.action_space.sample()
                found, expected = env.step(action), bare.step(action)
                assert data_equivalence(found[0], expected[0], exact=True)
                assert found[1:] == expected[1:]
                ended = bool(found[2] or found[3])
    finally:
        env.close()


def test_the_first_reset_goes_on_with_the_trial_that_told_the_spaces(pendulum: str) -> None:
    env = tc.make(pendulum)
    try:
        with pytest.raises(FailedPreconditionError, match="expected a reset first"):
            env.step(np.zeros(1, np.float32))
        told = env.trial_id
        env.reset()
        assert env.trial_id == told
        env.reset()
        assert env.trial_id != told
    finally:
        env.close()


def test_an_environment_elsewhere_that_raises() -> None:
    def fail(step: int) -> None:
        if step == 2:
            raise ValueError("broken")

    driver = open_driver(served_environment(lambda: Counter(fail)), thread=True)
    env = tc.make(driver.value)
    try:
        for _ in range(2):  # the one that failed is made again
            env.reset()
            env.step(1)
            with pytest.raises(tc.EpisodeFailedError, match="ValueError: broken"):
                env.step(1)
    finally:
        env.close()
        driver.close()


def test_seats_in_trials_elsewhere(orchestrator: str) -> None:
    """Those of this process are served from here; a client joins there."""
    human, game = tc.human(), Table()
    there = SimpleNamespace(endpoint=orchestrator)
    view = tc.make_parallel(game, orchestrator=orchestrator, seats=seats_with(human))
    try:
        with client_at(there) as trials:
            for _ in range(2):
                assert play(view) == [{"p_0": 1.0}] * 5
                assert view.trial_id in trials
                assert [(each["p_2"], each["p_3"]) for each in game.said] == [(2, CLIENTS_MOVE)] * 5
    finally:
        view.close()


def test_episodes_elsewhere_are_kept_by_the_datastore_that_is_found_there(tmp_path: Path) -> None:
    driver = open_driver(served_orchestrator(store="memory:"), thread=True)
    address = driver.value
    try:
        for options in (
            tc.PlatformOptions(orchestrator=address, store="cogment://discover"),
            tc.PlatformOptions(store=address),
        ):
            view = tc.make(Counter, options=options)
            view.reset()
            while not any(view.step(1)[2:4]):
                pass
            kept = view.trial_id
            view.close()
            done = tc.export(address, parquet=tmp_path / kept, trials=[kept])
            assert (done.trials, done.steps) == (1, 5)
    finally:
        driver.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"store": "memory:"}, "store: expected the address of a datastore with orchestrator='grpc://nowhere:1'"),
        ({"model_registry": "models"}, "model_registry: expected None with orchestrator='grpc://nowhere:1'"),
    ],
)
def test_what_only_a_platform_here_can_have(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        tc.make(Counter, options=tc.PlatformOptions(orchestrator="grpc://nowhere:1", **options))


def test_a_port_here_for_clients_of_trials_elsewhere() -> None:
    with pytest.raises(InvalidArgumentError, match=r"human: expected port=None with orchestrator=.*; got 8080"):
        tc.make_parallel(Table(), orchestrator="grpc://nowhere:1", seats=seats_with(tc.human(port=8080)))


def test_nobody_is_there(quiet: None) -> None:
    """The errors say what was looked for, and how long."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    address = f"grpc://127.0.0.1:{port}"
    config = PlatformConfig(rpc=RpcConfig(await_server_seconds=0.1))
    with pytest.raises(
        tc.EpisodeFailedError, match=rf"environment '{address}', trial .*: not begun after 0\.\d s: .*refused"
    ):
        tc.make(address, options=tc.PlatformOptions(config=config))
    view = tc.make(Counter, options=tc.PlatformOptions(config=config, orchestrator=address))
    with pytest.raises(UnavailableError, match=rf"orchestrator '{address}': no trial .* in 0\.\d s: .*refused"):
        view.reset()
    view.close()


def test_an_environment_to_be_found_is_not_that_of_the_view_itself() -> None:
    with pytest.raises(CogmentError, match="cogment://discover/environment: nothing like that is registered"):
        tc.make("cogment://discover")


def test_several_of_an_environment_elsewhere(pendulum: str) -> None:
    envs = tc.make_vec(pendulum, 3)
    bare = gymnasium.make_vec("Pendulum-v1", 3, vectorization_mode="sync")
    try:
        assert data_equivalence(envs.reset(seed=2), bare.reset(seed=2), exact=True)
        for _ in range(20):
            actions = bare.action_space.sample()
            assert data_equivalence(envs.step(actions), bare.step(actions), exact=True)
    finally:
        envs.close()


@pytest.fixture
def duel() -> Iterator[str]:
    driver = open_driver(served_environment(Rps), thread=True)
    yield driver.value
    driver.close()


@pytest.mark.parametrize("both", [False, True], ids=["environment", "environment and orchestrator"])
def test_several_agents_of_an_environment_elsewhere(duel: str, orchestrator: str, both: bool) -> None:
    where = orchestrator if both else ""
    view, bare = tc.make_parallel(duel, orchestrator=where), Rps()
    turns = tc.make_aec(duel, orchestrator=where, seats={"player_1": tc.policy(lambda _: 2)})
    try:
        assert view.reset(seed=1) == bare.reset(seed=1)
        turns.reset(seed=1)
        while view.agents:
            moves = {"player_0": 1, "player_1": 2}
            found = view.step(moves)
            assert found == bare.step(moves)
            turns.step(1)
            assert turns.last() == tuple(each["player_0"] for each in found)
        assert bare.agents == []
        with pytest.raises(NotImplementedError, match=f"'{duel}': state: expected one, but it is elsewhere"):
            view.state()
        with pytest.raises(InvalidArgumentError, match=f"'{duel}': render: "):
            view.render()
    finally:
        view.close()
        turns.close()


def test_other_agents_than_an_environment_elsewhere_has(duel: str, quiet: None) -> None:
    with pytest.raises(tc.EpisodeFailedError, match=r"'rps': actors: expected 'player_0', 'player_1'.*; got 'ann'"):
        tc.make_parallel(duel, agents=["ann"])
