"""Substrates of Melting Pot: a small package with three of them stands for it here; `nox -s rl-peers` has its own."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trio_cogment.rl as tc
from tests.environments._melting_pot import KINDS, package
from tests.spaces.strategies import same
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError
from trio_cogment.environments.making import make_environment
from trio_cogment.spaces import Discrete, Observation

Told = list[Mapping[str, Observation]]


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch) -> None:
    found = package()
    monkeypatch.setitem(sys.modules, "meltingpot", found)
    monkeypatch.setitem(sys.modules, "meltingpot.substrate", vars(found)["substrate"])


# What is looked at of each substrate, here and in the package's own environment.


def made(name: str, seed: int) -> Any:
    """Make a substrate with what Python's generator draws after a seed; it draws on as before."""
    state = random.getstate()
    random.seed(seed)
    try:
        return make_environment(f"meltingpot/{name}")
    finally:
        random.setstate(state)


def drawn(env: Any, generator: np.random.Generator) -> dict[str, Any]:
    return {agent: env.action_spaces[agent].sample(generator) for agent in env.agents}


def played(env: Any, steps: int, beside: Any = None) -> Told:
    """Play an episode, or the beginning of one; the one beside it plays on meanwhile, with other moves."""
    generator, others = np.random.default_rng(1), np.random.default_rng(2)
    told = [env.reset(None, None)]
    if beside is not None:
        beside.reset(None, None)
    while not env.over and len(told) <= steps:
        told.append(env.step(drawn(env, generator)))
        if beside is not None:
            if beside.over:
                beside.reset(None, None)
            beside.step(drawn(beside, others))
    env.close()
    if beside is not None:
        beside.close()
    return told


def equal(one: Told, other: Told) -> bool:
    """Whether both tell the same, bit for bit."""
    return len(one) == len(other) and all(
        now.keys() == then.keys()
        and all(
            same(now[agent].value, then[agent].value)
            and (now[agent].reward, now[agent].terminated, now[agent].truncated)
            == (then[agent].reward, then[agent].terminated, then[agent].truncated)
            for agent in now
        )
        for now, then in zip(one, other, strict=True)
    )


def check_trials(name: str, steps: int, folder: Path) -> None:
    """Play two trials side by side, and one by name; store, export and replay them, and compare with what was told."""
    told: list[Told] = []

    class Recorded:
        """A substrate, and all that it has told."""

        def __init__(self) -> None:
            self.env = make_environment(f"meltingpot/{name}")

        def __getattr__(self, attribute: str) -> Any:
            return getattr(self.env, attribute)

        def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
            told.append([self.env.reset(seed, options)])
            self.mine = told[-1]
            return self.mine[0]

        def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
            self.mine.append(self.env.step(actions))
            return self.mine[-1]

    store = f"sqlite:{folder / 'trials.db'}"
    agents = make_environment(f"meltingpot/{name}").agents
    seats = {agent: tc.random(seed=number) for number, agent in enumerate(agents)}
    settings: Any = {"store": store, "seats": seats, "max_steps": steps}
    environments: tuple[str | Callable[[], Any], ...] = (Recorded, f"meltingpot/{name}")
    for environment, number in zip(environments, (2, 1), strict=True):
        results = tc.run_trials(number, environment=environment, parallel=2, **settings)
        assert not results.failures
    tc.export(store, parquet=folder / "data")
    replay: Any = tc.replay_environment(folder / "data")
    again: list[Told] = []
    for _ in range(replay.episodes):
        again.append([replay.reset(None, None)])
        while not replay.over:
            again[-1].append(replay.step({}))
    assert len(again) == 3
    assert len(told) == 2
    assert not equal(*told)
    for episode in told:
        if not any(one.terminated for one in episode[-1].values()):  # the trial was over before the substrate
            episode[-1] = {agent: _truncated(observation) for agent, observation in episode[-1].items()}
        assert sum(equal(episode, stored) for stored in again) == 1


def _truncated(observation: Observation) -> Observation:
    return Observation(
        observation.value, observation.reward, observation.terminated, True, observation.action_mask, observation.info
    )


def check_side_by_side(name: str, steps: int, tries: int) -> None:
    """Compare episodes beside another with those that are played alone with the same seed: one is among them.

    Args:
        name: of the substrate.
        steps: how many are played.
        tries: how often, until it is. The package's own plays one of several episodes for a seed.
    """
    alone: list[Told] = []
    beside: list[Told] = []
    for _ in range(tries):
        alone.append(played(made(name, 3), steps))
        beside.append(played(made(name, 3), steps, beside=made(name, 4)))
        if any(equal(one, other) for one in beside for other in alone):
            break
    else:
        pytest.fail(f"{name}: beside another it plays none of the {tries} episodes that it plays alone")
    assert not any(equal(played(made(name, 4), steps), one) for one in alone)


@pytest.mark.parametrize("name", KINDS)
def test_two_trials_are_stored_exported_and_replayed(name: str, tmp_path: Path) -> None:
    check_trials(name, 20, tmp_path)


@pytest.mark.parametrize("name", KINDS)
def test_one_that_is_cut_off_by_its_trial(name: str, tmp_path: Path) -> None:
    check_trials(name, 5, tmp_path)


@pytest.mark.parametrize("name", KINDS)
def test_beside_another_it_is_as_alone(name: str) -> None:
    check_side_by_side(name, 20, 1)


def test_a_player_sees_what_its_spec_says_and_an_end_is_terminated() -> None:
    env = make_environment("meltingpot/predator_prey__open")
    assert env.agents == ("player_0", "player_1", "player_2")
    assert env.action_spaces["player_0"] == Discrete(5, dtype="int32")
    told = played(env, 20)
    assert len(told) == 13
    for now in told:
        for agent in env.agents:
            assert env.observation_spaces[agent].contains(now[agent].value)
    assert {one.reward for one in told[0].values()} == {None}
    assert all((one.terminated, one.truncated, one.info) == (True, False, {}) for one in told[-1].values())
    assert all((one.terminated, one.truncated, one.info) == (False, False, {}) for one in told[0].values())


def test_roles_and_what_a_substrate_does_not_take() -> None:
    assert make_environment("meltingpot/predator_prey__open", roles=["prey", "predator"]).agents[1:] == ("player_1",)
    with pytest.raises(InvalidArgumentError, match=r"roles: Invalid roles \['cat'\]; valid roles are \['predator', "):
        make_environment("meltingpot/predator_prey__open", roles=["cat", "prey"])
    with pytest.raises(
        InvalidArgumentError, match="environment 'meltingpot/clean_up': arguments: expected roles alone"
    ):
        make_environment("meltingpot/clean_up", env_seed=3)
    with pytest.raises(InvalidArgumentError, match="seed: expected none"):
        make_environment("meltingpot/clean_up").reset(3, None)
    with pytest.raises(NotFoundError, match="did you mean 'clean_up'"):
        make_environment("meltingpot/clean_op")
