"""Substrates of Melting Pot itself, without its bots: beside each other and alone, stored, exported and replayed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.environments.test_melting_pot import check_side_by_side, check_trials, played
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.making import make_environment

pytestmark = [
    pytest.mark.rl_peers,
    pytest.mark.filterwarnings("ignore"),  # of the package and what it brings
]

NAMES = ["daycare", "coins", "prisoners_dilemma_in_the_matrix__repeated"]
STEPS = 25


@pytest.fixture(autouse=True, scope="module")
def _without_bots() -> Iterator[None]:
    """Let it be imported without TensorFlow, which runs the models of bots alone; they are not installed either."""
    with mock.patch.dict(sys.modules, {"tensorflow": mock.MagicMock()}):
        yield


@pytest.mark.parametrize("name", NAMES)
def test_two_trials_are_stored_exported_and_replayed(name: str, tmp_path: Path) -> None:
    check_trials(name, STEPS, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_beside_another_it_is_as_alone(name: str) -> None:
    check_side_by_side(name, STEPS, 12)


def test_a_player_sees_what_its_spec_says_to_the_end() -> None:
    """The limit of 1,000 steps is told as an end: Lab2D says nothing else."""
    env = make_environment("meltingpot/collaborative_cooking__circuit")
    told = played(env, 2000)
    assert {one.reward for one in told[0].values()} == {None}
    for now in (told[0], told[1], told[-1]):
        for agent in env.agents:
            assert env.observation_spaces[agent].contains(now[agent].value)
    assert len(told) == 1001
    assert all((one.terminated, one.truncated, one.info) == (True, False, {}) for one in told[-1].values())


def test_roles_and_what_a_substrate_does_not_take() -> None:
    assert len(make_environment("meltingpot/predator_prey__open", roles=["prey", "predator"]).agents) == 2
    with pytest.raises(InvalidArgumentError, match=r"roles: Invalid roles \['cat'\]; valid roles are \['predator', "):
        make_environment("meltingpot/predator_prey__open", roles=["cat", "prey"])
    with pytest.raises(InvalidArgumentError, match="seed: expected none"):
        make_environment("meltingpot/daycare").reset(3, None)
