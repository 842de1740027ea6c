"""Clients that overlap get answers as their service's model gives them one at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.models import datastore_clients, directory_clients, registry_clients
from tests.models.datastore_clients import IDS
from tests.models.runs import RUNS
from tests.models.trial_store import ENDED, RUNNING
from trio_cogment.testing import CallLog, World, simulate
from trio_cogment.testing.pytest_plugin import Sim

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.sim(seeds=3)
@pytest.mark.parametrize("name", RUNS)
def test_some_seeds(name: str, sim: Sim) -> None:
    sim(RUNS[name].judged)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", RUNS)
def test_many_seeds(name: str) -> None:
    for seed in range(2000):
        simulate(seed, RUNS[name].judged)


pauses = st.sampled_from([0.0, 0.0, 0.1, 1.0])
datastore_steps = st.builds(
    datastore_clients.Step,
    st.sampled_from(sorted(set(datastore_clients.STEPS))),
    st.sampled_from(IDS[:2]),
    st.integers(0, 2),
    st.sampled_from([RUNNING, RUNNING, ENDED]),
    st.integers(0, 2),
    pauses,
)
registry_steps = st.builds(
    registry_clients.Step,
    st.sampled_from(sorted(set(registry_clients.STEPS))),
    st.sampled_from(registry_clients.IDS),
    st.booleans(),
    st.integers(-3, 3).filter(bool),
    st.integers(0, 2),
    st.sampled_from(registry_clients.SIZES),
    pauses,
)
directory_steps = st.builds(
    directory_clients.Step,
    st.sampled_from(sorted(set(directory_clients.STEPS))),
    st.sampled_from(directory_clients.KINDS),
    st.sampled_from([(), (("map", "small"),), (("map", "small"), ("size", "1")), (("map", "large"),)]),
    token=st.sampled_from(["", "secret"]),
    which=st.integers(0, 3),
    pause=pauses,
)


def scripts(steps: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[Any]]]:
    return st.lists(st.lists(steps, min_size=1, max_size=6), min_size=2, max_size=3)


def judge(seed: int, name: str, play: Callable[[World], Awaitable[CallLog]]) -> None:
    simulate(seed, RUNS[name]._replace(play=play).judged)


examples = settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
many_examples = settings(max_examples=3000, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 1000)


def datastore_like_its_model(seed: int, faults: bool, script: list[list[Any]]) -> None:
    async def play(world: World) -> CallLog:
        return await datastore_clients.in_one_process(world, script, faults=faults)

    judge(seed, "datastore in process", play)


def registry_like_its_model(seed: int, script: list[list[Any]]) -> None:
    async def play(world: World) -> CallLog:
        return await registry_clients.in_one_process(world, script)

    judge(seed, "registry in process", play)


def directory_like_its_model(seed: int, script: list[list[Any]]) -> None:
    async def play(world: World) -> CallLog:
        return await directory_clients.in_one_process(world, script)

    judge(seed, "directory in process", play)


@examples
@given(seed=seeds, faults=st.booleans(), script=scripts(datastore_steps))
def test_datastore(seed: int, faults: bool, script: list[list[Any]]) -> None:
    datastore_like_its_model(seed, faults, script)


@examples
@given(seed=seeds, script=scripts(registry_steps))
def test_registry(seed: int, script: list[list[Any]]) -> None:
    registry_like_its_model(seed, script)


@examples
@given(seed=seeds, script=scripts(directory_steps))
def test_directory(seed: int, script: list[list[Any]]) -> None:
    directory_like_its_model(seed, script)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@many_examples
@given(seed=seeds, faults=st.booleans(), script=scripts(datastore_steps))
def test_datastore_for_long(seed: int, faults: bool, script: list[list[Any]]) -> None:
    datastore_like_its_model(seed, faults, script)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@many_examples
@given(seed=seeds, script=scripts(registry_steps))
def test_registry_for_long(seed: int, script: list[list[Any]]) -> None:
    registry_like_its_model(seed, script)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@many_examples
@given(seed=seeds, script=scripts(directory_steps))
def test_directory_for_long(seed: int, script: list[list[Any]]) -> None:
    directory_like_its_model(seed, script)
