"""Views of trials that run elsewhere, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import gymnasium
import pytest
import trio
from gymnasium.utils.env_checker import data_equivalence

import trio_cogment.rl as tc
from tests.rl.views.environments import Counter
from trio_cogment import open_platform
from trio_cogment.rl.views.drivers import open_driver
from trio_cogment.rpc import RunningServer, open_listeners, serve


@asynccontextmanager
async def served_orchestrator() -> AsyncIterator[str]:
    async with open_platform() as platform, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1", 0)
        server: RunningServer = await nursery.start(serve, platform.services, listeners)
        yield f"grpc://127.0.0.1:{server.port}"
        nursery.cancel_scope.cancel()


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
