"""Profiles: their templates with the settings of requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from google.protobuf.wrappers_pb2 import BoolValue

from tests.gateways.dm_env_rpc.gateway.projects import shop
from trio_cogment.api import dm_env_rpc_bridge_pb2, rl_pb2
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.gateways.dm_env_rpc import DM_ENV_RPC_SPEC
from trio_cogment.gateways.dm_env_rpc.gateway.profile import Profile
from trio_cogment.gateways.dm_env_rpc.gateway.templates import WorldTemplate
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.sdk.spec import Spec
from trio_cogment.spaces.tensors import encode_tensor


def tensors(settings: Mapping[str, Any]) -> dict[str, pb.Tensor]:
    return {name: encode_tensor(value) for name, value in settings.items()}


def params(**changes: Any) -> TrialParams:
    actors = [
        actor_params("anna", "clerk", endpoint=CLIENT),
        actor_params("bert", "buyer", endpoint=CLIENT),
        actor_params("ben.2", "buyer", endpoint=CLIENT),
        actor_params("robot", "buyer", implementation="slow"),
    ]
    return trial_params(actors, environment="shop", **changes)


def one_player(**changes: Any) -> TrialParams:
    return trial_params([actor_params("anna", "player", endpoint=CLIENT)], **changes)


def profile(**changes: Any) -> Profile:
    return Profile(templates={"default": WorldTemplate(params=params())}, spec=shop(), **changes)


def config_of(found: TrialParams, name: str = "EnvironmentConfig") -> dict[str, Any]:
    holder = found.environment.config if name == "EnvironmentConfig" else found.trial_config
    return json_format.MessageToDict(shop().message(f"shop.{name}").FromString(holder.content))


def created(settings: Mapping[str, Any], **changes: Any) -> WorldTemplate:
    return profile(**changes).create_world(tensors(settings))


def test_without_settings_a_world_is_its_template() -> None:
    assert created({}) == profile().templates["default"]


def test_settings_of_the_trial() -> None:
    found = created(
        {
            "max_steps": 20,
            "env.stock": 3.0,
            "env.level.size": 4,
            "trial.label": "x",
            "actors.robot.implementation": "fast",
            "actors.anna.config.level.size": 7,
            "actors.ben.2.implementation": "named with a dot",
        }
    ).params
    assert (found.max_steps, found.actors[3].implementation) == (20, "fast")
    assert found.actors[2].implementation == "named with a dot"
    assert config_of(found) == {"stock": 3, "level": {"size": 4}}
    assert config_of(found, "TrialConfig") == {"label": "x"}
    assert shop().message("shop.ActorConfig").FromString(found.actors[0].config.content).level.size == 7
    assert profile().templates["default"].params == params()


def test_a_whole_configuration_comes_first() -> None:
    content = shop().message("shop.EnvironmentConfig")(stock=1, price=2.0).SerializeToString()
    found = created({"env.stock": 5, "env_config": np.frombuffer(content, np.uint8)})
    assert config_of(found.params) == {"stock": 5, "price": 2.0}


def test_settings_that_exclude_each_other() -> None:
    with pytest.raises(InvalidArgumentError, match=r"setting 'env\.large': there is one for 'small', too, and they ex"):
        created({"env.large": "x", "env.small": 1})
    content = shop().message("shop.EnvironmentConfig")(small=1).SerializeToString()
    found = created({"env.large": "x", "env_config": np.frombuffer(content, np.uint8)})
    assert config_of(found.params) == {"large": "x"}
    found = created(
        {"env.levels.a.size": 1, "env.anything.a.b": 1, "env.level.size": 2, "env.small": 1, "env.maybe": 1}
    )
    assert config_of(found.params)["small"] == 1


def test_policies_are_settings() -> None:
    found = created(
        {
            "world_name": "mine",
            "start_when": 2,
            "on_leave": "autopilot",
            "reset": "world",
            "destroy": "force",
            "step_timeout_seconds": 5,
            "reset_world_timeout_seconds": 0.5,
            "world_idle_seconds": 0,
            "reward_mode": "last",
            "expose_discount": True,
            "require_actions": 1,
            "presence": True,
        }
    )
    assert found == WorldTemplate(
        params=params(),
        name="mine",
        start_when=2,
        on_leave="autopilot",
        reset="world",
        destroy="force",
        step_timeout_seconds=5.0,
        reset_world_timeout_seconds=0.5,
        world_idle_seconds=0.0,
        reward_mode="last",
        expose_discount=True,
        require_actions=True,
        presence=True,
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max_step": 3}, r"CreateWorld: unknown setting 'max_step'; did you mean 'max_steps'\?"),
        ({"xyz": 3}, r"CreateWorld: unknown setting 'xyz'; expected one of .*env\.<field>"),
        ({"actors.nobody.implementation": "x"}, "unknown setting 'actors.nobody.implementation'"),
        ({"max_steps": -1}, "setting 'max_steps': expected an integer from 0 to 2147483647, got -1"),
        (
            {"max_steps": [1]},
            r"setting 'max_steps': expected an integer .*, got an array of int64 with the shape \[1\]",
        ),
        ({"max_steps": "3"}, "setting 'max_steps': expected an integer from 0 to 2147483647, got '3'"),
        ({"env.size": 3}, "setting 'env.size': shop.EnvironmentConfig has no field 'size'"),
        ({"env.stock": -1}, "setting 'env.stock': expected an integer from 0 to 4294967295, got -1"),
        ({"env_config": [1, 2]}, "setting 'env_config': expected a vector of UINT8"),
        ({"env_config": np.array([255], np.uint8)}, "setting 'env_config': expected a shop.EnvironmentConfig, got 1"),
        ({"actors.bert.config.speed": 1}, "setting 'actors.bert.config.speed': the project declares no type for this"),
        (
            {"seed": 2**63},
            "setting 'seed': expected an integer from -9223372036854775808 to 9223372036854775807, got",
        ),
        (
            {"seed": 2.0**65},
            "setting 'seed': expected an integer from -9223372036854775808 to 18446744073709551615, got",
        ),
        ({"seed": 0.5}, "setting 'seed': expected an integer"),
        ({"world_name": ""}, "setting 'world_name': expected a name of 1 to 200 printable characters, got ''"),
        ({"world_name": "a\nb"}, "setting 'world_name': expected a name"),
        ({"on_leave": "stay"}, "setting 'on_leave': expected one of 'end', 'autopilot', 'vacate', got 'stay'"),
        ({"start_when": "never"}, "setting 'start_when': expected 'all', 'first' or a number of actors, got 'never'"),
        ({"start_when": 0}, "setting 'start_when': expected an integer from 1"),
        ({"start_when": 4}, "start_when: expected 'all', 'first' or 1 to 3, got 4"),
        ({"step_timeout_seconds": -1}, "setting 'step_timeout_seconds': expected seconds, 0 or more, got -1"),
        ({"world_idle_seconds": np.nan}, "setting 'world_idle_seconds': expected seconds"),
        ({"presence": 2}, "setting 'presence': expected true or false, got 2"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        created(settings)


def test_tensors_that_make_no_sense_are_refused() -> None:
    empty = pb.Tensor()
    huge = pb.Tensor(shape=[2000, 2000])
    huge.int64s.array.append(1)
    both = {"env.sizes": empty, "env.prices": huge}
    for name, tensor in both.items():
        with pytest.raises(InvalidArgumentError, match=f"setting '{name}': expected"):
            profile().create_world({name: tensor})


def test_without_types_there_are_no_settings_for_configurations() -> None:
    untyped = Profile.of(params())
    for name in ("env.stock", "trial.label", "actors.anna.config.speed", "seed"):
        with pytest.raises(InvalidArgumentError, match=f"setting '{name}': the project declares no type"):
            untyped.create_world(tensors({name: 1}))
    found = untyped.create_world(tensors({"env_config": np.array([255], np.uint8)}))
    assert found.params.environment.config.content == b"\xff"


def test_required_settings() -> None:
    with pytest.raises(InvalidArgumentError, match="CreateWorld: expected the setting 'max_steps', 'seed', got none"):
        created({"env.stock": 1}, required_settings=("seed", "max_steps", "env.stock"))
    assert created({"seed": 1}, required_settings=("seed",)).seed == 1


# Several templates


def several(**names: int) -> Profile:
    templates = {name: WorldTemplate(params=params(max_steps=steps)) for name, steps in names.items()}
    return Profile(templates=templates, spec=shop())


def test_a_template_is_chosen_by_name() -> None:
    assert several(a=1, b=2).create_world(tensors({"template": "b"})).params.max_steps == 2
    assert several(a=1, default=2).create_world({}).params.max_steps == 2
    assert several(a=1).create_world({}).params.max_steps == 1


def test_a_template_that_does_not_exist_or_is_not_named() -> None:
    with pytest.raises(NotFoundError, match="setting 'template': expected one of 'a', 'b'; got 'c'"):
        several(a=1, b=2).create_world(tensors({"template": "c"}))
    with pytest.raises(InvalidArgumentError, match="expected the setting 'template', which is one of 'a', 'b'"):
        several(a=1, b=2).create_world({})


# Slots


SLOTS = ("anna", "bert", "ben.2")


@pytest.mark.parametrize(
    ("settings", "free", "expected"),
    [
        ({"actor_name": "bert"}, SLOTS, "bert"),
        ({"actor_name": "bert", "actor_class": "buyer"}, SLOTS, "bert"),
        ({"actor_class": "buyer"}, SLOTS, "bert"),
        ({"actor_class": "buyer"}, ("anna", "ben.2"), "ben.2"),
        ({}, ("ben.2",), "ben.2"),
    ],
)
def test_a_client_gets_a_slot(settings: dict[str, Any], free: tuple[str, ...], expected: str) -> None:
    assert profile().join(created({}), tensors(settings), free) == expected


@pytest.mark.parametrize(
    ("settings", "free", "error", "expected"),
    [
        ({"actor_name": "carl"}, SLOTS, NotFoundError, "setting 'actor_name': expected one of 'anna', 'bert', 'ben.2'"),
        ({"actor_name": "robot"}, SLOTS, NotFoundError, "setting 'actor_name'.*got 'robot'"),
        ({"actor_name": "bert"}, ("anna",), AlreadyExistsError, "actor 'bert': somebody else"),
        (
            {"actor_name": "bert", "actor_class": "clerk"},
            SLOTS,
            InvalidArgumentError,
            "setting 'actor_class': actor 'bert' is a 'buyer', not a 'clerk'",
        ),
        ({"actor_class": "cook"}, SLOTS, NotFoundError, "setting 'actor_class': expected one of 'buyer', 'clerk'"),
        ({"actor_class": "buyer"}, ("anna",), ResourceExhaustedError, "actors 'bert', 'ben.2': others have joined"),
        ({}, (), ResourceExhaustedError, "actors 'anna', 'bert', 'ben.2': others have joined"),
        ({}, SLOTS, InvalidArgumentError, "expected the setting 'actor_name' or 'actor_class'; free are 'anna'"),
        ({"actor_name": 1}, SLOTS, InvalidArgumentError, "setting 'actor_name': expected a string, got 1"),
        ({"seed": 1}, SLOTS, InvalidArgumentError, "JoinWorld: unknown setting 'seed'; expected one of actor_class, "),
    ],
)
def test_a_client_gets_no_slot(
    settings: dict[str, Any], free: tuple[str, ...], error: type[CogmentError], expected: str
) -> None:
    with pytest.raises(error, match=expected):
        profile().join(created({}), tensors(settings), free)


# Resets and seeds


def test_a_reset_changes_the_next_trials() -> None:
    world = created({"env.stock": 1, "max_steps": 5})
    changed = profile().reset(world, tensors({"env.stock": 2, "seed": 9}))
    assert (changed.params.max_steps, changed.seed) == (5, 9)
    assert config_of(profile().trial(changed, "w")) == {"stock": 2, "seed": "9"}
    assert config_of(world.params) == {"stock": 1}


@pytest.mark.parametrize("name", ["world_name", "template", "start_when", "reward_mode"])
def test_a_reset_changes_no_policies(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"Reset: unknown setting '{name}'"):
        profile().reset(created({}), tensors({name: "x"}))


def seeds(chosen: Profile, world: WorldTemplate, kind: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        config = kind.FromString(chosen.trial(world, "w").environment.config.content)
        found.append(config.seed if config.HasField("seed") else None)
        world = chosen.after_trial(world)
    return found


@pytest.mark.parametrize(
    ("spec", "kind"),
    [(RL_SPEC, rl_pb2.EnvironmentConfig), (DM_ENV_RPC_SPEC, dm_env_rpc_bridge_pb2.BridgeConfig)],
)
def test_environments_with_a_generator_are_seeded_once(spec: Spec, kind: Any) -> None:
    chosen = Profile.of(one_player(), spec=spec)
    world = chosen.create_world(tensors({"seed": -4}))
    assert seeds(chosen, world, kind, 3) == [-4, None, None]
    assert kind.FromString(chosen.trial(world, "w").environment.config.content).instance == "w"


def test_a_world_of_named_environment_objects_keeps_the_name() -> None:
    config = rl_pb2.EnvironmentConfig(instance="shared")
    chosen = Profile.of(one_player(environment_config=config), spec=RL_SPEC)
    found = chosen.trial(chosen.create_world({}), "w")
    assert rl_pb2.EnvironmentConfig.FromString(found.environment.config.content) == config


def test_other_environments_get_one_seed_after_the_other() -> None:
    chosen = profile(seed_field="maybe")
    world = chosen.create_world(tensors({"seed": 2**31 - 2}))
    kind = shop().message("shop.EnvironmentConfig")
    found = []
    for _ in range(3):
        found.append(kind.FromString(chosen.trial(world, "w").environment.config.content).maybe)
        world = chosen.after_trial(world)
    assert found == [2**31 - 2, 2**31 - 1, 0]


def test_without_a_seed_nothing_is_seeded() -> None:
    world = created({})
    assert profile().trial(world, "w") == world.params
    assert profile().after_trial(world) is world


def test_a_seed_needs_its_field() -> None:
    seedless = dataclasses.replace(shop(), environment_config=BoolValue)
    worlds = Profile(templates={"default": WorldTemplate(params=params())}, spec=seedless)
    with pytest.raises(InvalidArgumentError, match=r"setting 'seed': google.protobuf.BoolValue has no field 'seed'"):
        worlds.create_world(tensors({"seed": 1}))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seed_field": "sod"}, "seed_field: shop.EnvironmentConfig has no field 'sod'"),
        ({"seed_field": "name"}, "seed_field: expected a field for integers; 'name' is for a string"),
        ({"required_settings": ["seed", "sed"]}, "required_settings: no world has a setting 'sed'"),
        ({"required_settings": ["env."]}, r"required_settings: no world has a setting 'env\.'"),
        ({"required_settings": ["actors.nobody.implementation"]}, "required_settings: no world has a setting 'actors"),
    ],
)
def test_names_that_no_client_could_give(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        profile(**changes)


def test_a_seed_cannot_be_required_without_its_field() -> None:
    templates = {"default": WorldTemplate(params=params())}
    for kind, expected in ((BoolValue, "BoolValue has no field 'seed'"), (None, "declares no type")):
        with pytest.raises(InvalidArgumentError, match=f"seed_field: .*{expected}"):
            Profile(
                templates=templates,
                spec=dataclasses.replace(shop(), environment_config=kind),
                required_settings=["seed"],
            )


def test_types_may_come_later_than_required_settings() -> None:
    untyped = Profile(
        templates={"default": WorldTemplate(params=params())}, required_settings=["env.stock", "template"]
    )
    assert untyped.typed(shop()).required_settings == ["env.stock", "template"]
    with pytest.raises(InvalidArgumentError, match=r"no world has a setting 'env\.stock'"):
        untyped.typed(dataclasses.replace(shop(), environment_config=None))


# Profiles


def test_a_profile_with_mistakes() -> None:
    with pytest.raises(InvalidArgumentError, match="templates: expected at least one"):
        Profile(templates={})
    broken = params()
    broken.environment.config.content = b"\xff"
    with pytest.raises(InvalidArgumentError, match=r"template 'default': environment\.config: expected a shop.Env"):
        Profile.of(broken, spec=shop())
    broken = params()
    broken.actors[0].config.content = b"\xff"
    with pytest.raises(InvalidArgumentError, match=r"template 'default': actor 'anna': config: expected a shop\.Actor"):
        Profile.of(broken, spec=shop())


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ({"on_leave": "stay"}, "on_leave: expected one of end, autopilot, vacate; got 'stay'"),
        ({"step_timeout_seconds": -1.0}, "step_timeout_seconds: expected seconds, 0 or more; got -1.0"),
        ({"world_idle_seconds": float("inf")}, "world_idle_seconds: expected seconds"),
        ({"start_when": 4}, "start_when: expected 'all', 'first' or 1 to 3, got 4"),
    ],
)
def test_policies_that_make_no_sense(policies: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        Profile.of(params(), **policies)


def test_trials_without_clients() -> None:
    with pytest.raises(InvalidArgumentError, match="expected an actor with the endpoint cogment://client, got none"):
        Profile.of(trial_params([actor_params("robot", "buyer", implementation="slow")]))


@pytest.mark.parametrize(
    ("actor_class", "advice"), [("playr", r"did you mean 'player'\?"), ("zebra", "expected one of player")]
)
def test_a_slot_of_an_unknown_class(actor_class: str, advice: str) -> None:
    found = trial_params([actor_params("anna", actor_class, endpoint=CLIENT)])
    expected = f"template 'default': actor 'anna': unknown actor_class '{actor_class}'; {advice}"
    with pytest.raises(InvalidArgumentError, match=expected):
        Profile.of(found, spec=RL_SPEC)
    with pytest.raises(InvalidArgumentError, match=expected):
        Profile.of(found).typed(RL_SPEC)


def test_an_endpoint_with_a_slip() -> None:
    found = trial_params([actor_params("anna", "player", endpoint="cogment://cleint")])
    expected = r"params: actor 'anna': endpoint: 'cogment://cleint': expected .*; did you mean 'cogment://client'\?"
    with pytest.raises(InvalidArgumentError, match=expected):
        Profile.of(found)
