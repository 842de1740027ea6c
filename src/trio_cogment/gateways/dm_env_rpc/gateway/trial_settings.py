"""Settings that change a trial's parameters: its configurations, its length, and who plays in it."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError, Message

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.dm_env_rpc.gateway import setting_values as values
from trio_cogment.gateways.dm_env_rpc.gateway.config_fields import UnknownFieldError, set_field
from trio_cogment.gateways.dm_env_rpc.gateway.setting_values import NotThatError
from trio_cogment.gateways.dm_env_rpc.gateway.settings import Settings
from trio_cogment.sdk.spec import Spec
from trio_cogment.spaces.tensors import decode_tensor, encode_tensor

_MOST_STEPS = 2**31 - 1
_SEEDS = (-(2**63), 2**64 - 1)
#: The setting, and the property of trials, by which they join a run of a trainer.
RUN_ID = "run_id"
#: The configurations that can name the environment object whose episodes trials are. There, an episode without a seed
#: goes on with the generator of the one before.
_WITH_INSTANCE = frozenset({"trio_cogment.rl.EnvironmentConfig", "trio_cogment.dm_env_rpc.BridgeConfig"})


def take_trial_settings(params: TrialParams, settings: Settings, spec: Spec) -> TrialParams:
    """Return parameters with what settings say of them.

    The settings are `max_steps`, `run_id`, `env_config`, `env...`, `trial...` and `actors...`.

    Raises:
        InvalidArgumentError: a setting makes no sense, or names what these trials do not have.
    """
    found = TrialParams()
    found.CopyFrom(params)
    steps = settings.integer("max_steps", 0, _MOST_STEPS)
    if steps is not None:
        found.max_steps = steps
    run_id = settings.text(RUN_ID)
    if run_id is not None:
        found.properties[RUN_ID] = run_id
    content = settings.take("env_config", values.content)
    if content is not None:
        found.environment.config.content = content
        _parsed("setting 'env_config'", content, spec.environment_config)
    _fill(found.environment, "config", settings, "env.", spec.environment_config)
    _fill(found, "trial_config", settings, "trial.", spec.trial_config)
    for actor in found.actors:
        implementation = settings.text(f"actors.{actor.name}.implementation")
        if implementation is not None:
            actor.implementation = implementation
        kind = spec.actor_class(actor.actor_class).config
        _fill(actor, "config", settings, f"actors.{actor.name}.config.", kind)
    return found


def check_configs(params: TrialParams, spec: Spec) -> None:
    """Refuse parameters whose configurations are not of their types.

    Raises:
        InvalidArgumentError: one is not; the text names it.
    """
    _parsed("environment.config", params.environment.config.content, spec.environment_config)
    _parsed("trial_config", params.trial_config.content, spec.trial_config)
    for actor in params.actors:
        kind = spec.actor_class(actor.actor_class).config
        _parsed(f"actor {actor.name!r}: config", actor.config.content, kind)


def _fill(holder: Any, field: str, settings: Settings, prefix: str, kind: type[Message] | None) -> None:
    if kind is None:
        settings.refuse(prefix, "the project declares no type for this configuration")
        return
    config = _parsed(prefix, getattr(holder, field).content, kind)
    if settings.fill(prefix, config):
        getattr(holder, field).content = config.SerializeToString()


def _parsed(name: str, content: bytes, kind: type[Message] | None) -> Any:
    try:
        return None if kind is None else kind.FromString(content)
    except DecodeError:
        expected = kind.DESCRIPTOR.full_name if kind is not None else ""
        raise InvalidArgumentError(f"{name}: expected a {expected}, got {len(content)} other bytes") from None


# Seeds


def take_seed(settings: Settings, params: TrialParams, spec: Spec, field: str) -> int | None:
    """Return the setting `seed`, None if it was not given.

    Raises:
        InvalidArgumentError: the environment takes no seed, or not this one.
    """
    seed = settings.integer("seed", *_SEEDS)
    if seed is not None:
        with_seed(params, spec, field, seed)
    return seed


def check_seed_field(spec: Spec, field: str) -> None:
    """Refuse a name that is of no field for seeds in the environment's configuration.

    Raises:
        InvalidArgumentError: there is no such field, or it holds no integers.
    """
    if spec.environment_config is None:
        raise InvalidArgumentError("seed_field: the project declares no type for the environment's configuration")
    try:
        set_field(spec.environment_config(), field, decode_tensor(encode_tensor(0)))
    except UnknownFieldError as error:
        raise InvalidArgumentError(f"seed_field: {error}") from None
    except NotThatError as error:
        raise InvalidArgumentError(f"seed_field: expected a field for integers; {field!r} is for {error}") from None


def with_seed(params: TrialParams, spec: Spec, field: str, seed: int) -> TrialParams:
    """Return parameters with a seed in the environment's configuration.

    Args:
        params: of the trial.
        spec: its types.
        field: of the configuration.
        seed: the seed.

    Raises:
        InvalidArgumentError: there is no such field, or it cannot hold the seed.
    """
    if spec.environment_config is None:
        raise InvalidArgumentError("setting 'seed': the project declares no type for the environment's configuration")
    config = _parsed("environment.config", params.environment.config.content, spec.environment_config)
    value = decode_tensor(encode_tensor(seed))
    try:
        set_field(config, field, value)
    except UnknownFieldError as error:
        raise InvalidArgumentError(f"setting 'seed': {error}") from None
    except NotThatError as error:
        raise values.refused("seed", error, value) from None
    found = TrialParams()
    found.CopyFrom(params)
    found.environment.config.content = config.SerializeToString()
    return found


def goes_on(spec: Spec) -> bool:
    """Whether a trial without a seed goes on with the random generator of the trial before it in its world."""
    kind = spec.environment_config
    return kind is not None and kind.DESCRIPTOR.full_name in _WITH_INSTANCE


def in_world(params: TrialParams, spec: Spec, world: str) -> TrialParams:
    """Return parameters whose trials are episodes of one environment object, if their configuration can say so.

    Args:
        params: of the trials.
        spec: their types.
        world: what the object is called, unless the parameters have a name for it.
    """
    found = TrialParams()
    found.CopyFrom(params)
    kind = spec.environment_config
    if kind is not None and goes_on(spec):
        config: Any = kind.FromString(params.environment.config.content)
        if not config.instance:
            config.instance = world
            found.environment.config.content = config.SerializeToString()
    return found
