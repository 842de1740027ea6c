"""Scenarios of VMAS by name: beside each other and alone, stored, exported and replayed; seats in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trio_cogment.rl as tc
from tests.rl_peers.test_worlds import recorded, require_same
from tests.spaces.strategies import same
from trio_cogment.environments.making import make_environment

pytestmark = [
    pytest.mark.rl_peers,
    pytest.mark.filterwarnings("ignore"),  # of the old Gym, which VMAS needs
]

STEPS = 8
NAMES = ["vmas/balance", "vmas/navigation", "vmas/simple_tag", "vmas/flocking", "vmas/football", "vmas/dropout"]


def played(env: Any, seed: int, beside: Any = None) -> list[Any]:
    generator = np.random.default_rng(seed)
    told = [env.reset(seed, None)]
    if beside is not None:
        beside.reset(seed + 1, None)
    while not env.over:
        actions = {agent: env.action_spaces[agent].sample(generator) for agent in env.agents}
        told.append(env.step(actions))
        if beside is not None and not beside.over:
            beside.step(actions)
            if len(told) == 4:
                beside.reset(seed, None)
    return told


@pytest.mark.parametrize("name", NAMES)
def test_beside_another_it_is_as_alone(name: str) -> None:
    env, other = (make_environment(name, max_steps=STEPS) for _ in range(2))
    alone = played(env, 3)
    assert all(observation.truncated for observation in alone[-1].values())
    require_same(played(env, 3, beside=other), alone)
    require_same(played(other, 3), alone)


def test_discrete_actions() -> None:
    env = make_environment("vmas/balance", max_steps=STEPS, continuous_actions=False)
    require_same(played(env, 3), played(env, 3))


def test_without_a_seed_no_two_begin_alike() -> None:
    one, other = (make_environment("vmas/balance").reset(None, None) for _ in range(2))
    assert not same(one["agent_0"].value, other["agent_0"].value)


def test_what_others_draw_stays_as_it_is() -> None:
    import random

    import torch

    states = torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()
    played(make_environment("vmas/simple_tag", max_steps=STEPS), 3)
    assert (torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()) == states


@pytest.mark.parametrize("hosting", ["inline", "process"])
def test_trials_side_by_side_are_as_each_alone(hosting: Any, tmp_path: Path) -> None:
    """In this process, and in processes of their own."""

    def recorded_ones(folder: str, seeds: list[int]) -> list[list[Any]]:
        return recorded(tmp_path / folder, "vmas/balance", seeds, arguments={"max_steps": STEPS}, hosting=hosting)

    alone = [*recorded_ones("three", [3]), *recorded_ones("four", [4])]
    for found, expected in zip(recorded_ones("both", [3, 4]), alone, strict=True):
        assert len(found) == STEPS + 1
        require_same(found, expected)


@pytest.mark.parametrize("hosting", ["inline", "process"])
def test_trials_are_stored_exported_and_replayed(hosting: Any, tmp_path: Path) -> None:
    expected = [played(make_environment("vmas/balance", max_steps=STEPS), seed) for seed in (3, 4)]
    lines = {}
    for seed in (3, 4):
        generator = np.random.default_rng(seed)
        env = make_environment("vmas/balance")
        lines[seed] = [
            {agent: env.action_spaces[agent].sample(generator) for agent in env.agents} for _ in range(STEPS)
        ]

    store = f"sqlite:{tmp_path / 'trials.db'}"
    for seed in (3, 4):
        script = {agent: iter([line[agent] for line in lines[seed]]) for agent in env.agents}
        seats = {agent: tc.policy(lambda _, said=said: next(said)) for agent, said in script.items()}
        results = tc.run_trials(
            1,
            environment="vmas/balance",
            arguments={"max_steps": STEPS},
            seats=seats,
            store=store,
            seeds=[seed],
            hosting=hosting,
        )
        assert not results.failures
    tc.export(store, parquet=tmp_path / "data")
    replay: Any = tc.replay_environment(tmp_path / "data")
    for told in expected:
        again = [replay.reset(None, None)]
        while not replay.over:
            again.append(replay.step({}))
        require_same(again, told)
