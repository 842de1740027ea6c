"""Environments of the field as games: who plays, and what the parameters of the trials say."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from trio_cogment.api import rl_pb2
from trio_cogment.base.endpoints import CLIENT, DISCOVER
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.spec import HUMAN, PLAYER, RL_SPEC
from trio_cogment.play.environment_games import people_params
from trio_cogment.spaces import Discrete, SpaceError, encode_action


class Chess:
    """What is asked of an environment here."""

    name = "chess"
    agents = ("white", "black")
    action_spaces: ClassVar = {"white": Discrete(5), "black": Discrete(3)}


def params(*people: str, environment: type[Chess] = Chess, **options: Any) -> Any:
    given: Any = environment()
    return people_params(given, people, **options)


def config(of: Any) -> rl_pb2.EnvironmentConfig:
    return rl_pb2.EnvironmentConfig.FromString(of.environment.config.content)


def test_people_and_bots() -> None:
    made = params("black", bot="robot", default=2)
    white, black = made.actors
    assert (white.name, white.endpoint, white.implementation, white.actor_class) == ("white", DISCOVER, "robot", PLAYER)
    assert not white.HasField("default_action")
    assert (black.name, black.endpoint, black.implementation, black.actor_class) == ("black", CLIENT, HUMAN, PLAYER)
    assert black.default_action.content == encode_action(2, Discrete(3)).SerializeToString()
    assert made.environment.implementation == "chess"
    assert RL_SPEC.environment_config is rl_pb2.EnvironmentConfig
    found = config(made)
    assert (list(found.frames_for), found.spec, found.HasField("seed")) == (["black"], "", False)


def test_everybody_may_be_a_person_and_nobody_has_to() -> None:
    made = params("white", "black", seed=7)
    assert [actor.endpoint for actor in made.actors] == [CLIENT, CLIENT]
    assert not any(actor.HasField("default_action") for actor in made.actors)
    assert (config(made).seed, list(config(made).frames_for)) == (7, ["white", "black"])
    assert [actor.endpoint for actor in params(bot="robot").actors] == [DISCOVER, DISCOVER]


def test_the_name_by_which_gymnasium_makes_it_is_kept() -> None:
    class Registered(Chess):
        gymnasium_spec = "Chess-v1"

    assert config(params("white", "black", environment=Registered)).spec == "Chess-v1"


def test_who_is_not_there() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^person 'ann': expected one of the agents 'white', 'black'$"):
        params("ann", bot="robot")
    with pytest.raises(InvalidArgumentError, match=r"^agent 'black': expected a person or a bot$"):
        params("white")


@pytest.mark.parametrize("default", [3, "1", [1]])
def test_a_default_action_is_one_of_its_own_space(default: Any) -> None:
    with pytest.raises(SpaceError, match=r"^default"):
        params("black", bot="robot", default=default)


def test_zero_is_an_action() -> None:
    made = params("white", bot="robot", default=0)
    assert made.actors[0].default_action.content == encode_action(0, Discrete(5)).SerializeToString()
