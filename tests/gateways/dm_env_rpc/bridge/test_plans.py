"""Plans of a trial: its configuration over what the environment was made with."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trio_cogment.api import rl_pb2
from trio_cogment.api.dm_env_rpc_bridge_pb2 import BridgeConfig
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.dm_env_rpc.bridge.plans import Defaults, Link, config_of
from trio_cogment.spaces.values import fill_fields

LINK = Link(connect_timeout_seconds=1, step_timeout_seconds=2)
ACTORS = ("ann", "ben")


def defaults(**changes: Any) -> Defaults:
    given: dict[str, Any] = {
        "server": "grpc://h:1",
        "link": LINK,
        "world_name": None,
        "create_settings": {"size": 3, "kind": "x"},
        "join_settings": {"team": 1, "color": "red"},
        "actor_join_settings": {"ben": {"team": 2, "hat": True}},
        "reset_settings": {"level": 1},
        "observations": ("seen",),
        "end_with_any": False,
        "repeat_refused": False,
        "single_use": False,
    }
    return Defaults(**given | changes)


def config(**fields: Any) -> BridgeConfig:
    """Return a configuration; dicts are settings, and of `actor_join_settings` by actor."""
    found = BridgeConfig()
    for name, value in fields.items():
        if name == "actor_join_settings":
            for actor, settings in value.items():
                fill_fields(found.actor_join_settings[actor], settings)
        elif isinstance(value, dict):
            fill_fields(getattr(found, name), value)
        elif isinstance(value, list):
            getattr(found, name).extend(value)
        else:
            setattr(found, name, value)
    return found


def test_a_trial_that_says_nothing_gets_what_the_environment_was_made_with() -> None:
    plan = defaults().plan(BridgeConfig(), ACTORS)
    assert (plan.server, plan.server_name, plan.link, plan.actors) == ("grpc://h:1", "grpc://h:1", LINK, ACTORS)
    assert (plan.world_name, plan.create_settings) == (None, {"size": 3, "kind": "x"})
    assert plan.join_settings == {
        "ann": {"team": 1, "color": "red"},
        "ben": {"team": 2, "color": "red", "hat": True},
    }
    assert (plan.reset_settings, plan.observations) == ({"level": 1}, ("seen",))
    assert (plan.end_with_any, plan.repeat_refused, plan.single_use) == (False, False, False)
    assert defaults(world_name="w").plan(BridgeConfig(), ACTORS).world_name == "w"


def test_what_a_trial_says_counts_more() -> None:
    plan = defaults(world_name="w").plan(
        config(
            world_name="other",
            create_settings={"size": 9},
            join_settings={"color": "blue"},
            actor_join_settings={"ben": {"hat": False}},
            reset_settings={"level": 5},
            observations=["a", "b"],
            seed=0,
            end_when=BridgeConfig.ANY,
            on_error=BridgeConfig.REPEAT,
            single_use=True,
        ),
        ACTORS,
    )
    assert (plan.world_name, plan.create_settings) == ("other", {"size": 9, "kind": "x"})
    assert plan.join_settings == {
        "ann": {"team": 1, "color": "blue"},
        "ben": {"team": 2, "color": "blue", "hat": False},
    }
    assert (plan.reset_settings, plan.observations) == ({"level": 5, "seed": 0}, ("a", "b"))
    assert (plan.end_with_any, plan.repeat_refused, plan.single_use) == (True, True, True)


def test_an_environment_that_is_so_stays_so() -> None:
    made = defaults(end_with_any=True, repeat_refused=True, single_use=True)
    plan = made.plan(BridgeConfig(), ACTORS)
    assert (plan.end_with_any, plan.repeat_refused, plan.single_use) == (True, True, True)


@pytest.mark.parametrize(
    ("server", "asked", "expected"),
    [
        ("grpc://h:1", "", "grpc://h:1"),
        ("grpc://h:1", "grpc://h:1", "grpc://h:1"),
        ("grpc://h:1", "h:1", "grpc://h:1"),
        (None, "grpc://i:2", "grpc://i:2"),
        (None, "i:2", "grpc://i:2"),
    ],
)
def test_the_server(server: str | None, asked: str, expected: str) -> None:
    assert defaults(server=server).plan(config(server=asked), ACTORS).server == expected


class Channel:
    """One that is open."""

    authority = "h:7"


def test_a_channel_is_the_only_server() -> None:
    channel: Any = Channel()
    plan = defaults(server=channel).plan(BridgeConfig(), ACTORS)
    assert (plan.server, plan.server_name) == (channel, "h:7")
    nameless: Any = object()
    assert defaults(server=nameless).plan(BridgeConfig(), ACTORS).server_name == "dm_env_rpc"


@pytest.mark.parametrize(
    ("changes", "fields", "text"),
    [
        ({"server": None}, {}, "server: expected grpc://host:port, got none"),
        ({}, {"server": "grpc://i:2"}, "server: expected 'grpc://h:1'; got 'grpc://i:2'"),
        ({"server": Channel()}, {"server": "h:7"}, "server: expected none, because there is one server; got 'h:7'"),
        (
            {},
            {"actor_join_settings": {"cid": {"x": 1}}},
            "actor_join_settings: expected names of actors ('ann', 'ben'), got 'cid'",
        ),
        (
            {"actor_join_settings": {"cid": {}}},
            {},
            "actor_join_settings: expected names of actors ('ann', 'ben'), got 'cid'",
        ),
    ],
)
def test_what_makes_no_sense(changes: dict[str, Any], fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{re.escape('environment config: ' + text)}$"):
        defaults(**changes).plan(config(**fields), ACTORS)


def test_worlds_stand_for_each_other_if_no_more_than_the_sequence_differs() -> None:
    def key(actors: tuple[str, ...] = ACTORS, **fields: Any) -> Any:
        return defaults(actor_join_settings={}).plan(config(**fields), actors).key

    same: list[dict[str, Any]] = [
        *({"seed": 5}, {"reset_settings": {"level": 5}}, {"end_when": BridgeConfig.ANY}),
        *({"on_error": BridgeConfig.REPEAT}, {"single_use": True}),
    ]
    assert all(key(**fields) == key() for fields in same)
    others: list[dict[str, Any]] = [
        *({"world_name": "w"}, {"create_settings": {"size": 4}}, {"join_settings": {"team": 4}}),
        *({"observations": ["a"]}, {"instance": "i"}, {"actor_join_settings": {"ann": {"x": 1}}}),
    ]
    assert all(key(**fields) != key() for fields in others)
    assert key(("ann",)) != key()
    assert key(("ann", "ben")) != key(("ben", "ann"))


def test_configurations_in_each_form() -> None:
    given = config(seed=7)
    assert config_of(None) == BridgeConfig()
    assert config_of(given) is given
    assert config_of(given.SerializeToString()) == given
    assert config_of(rl_pb2.EnvironmentConfig(seed=7)).seed == 7
    with pytest.raises(InvalidArgumentError, match=r"^environment config: expected a BridgeConfig, got bytes$"):
        config_of(b"\xff\xff")
