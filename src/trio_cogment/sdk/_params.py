"""Functions that make trial parameters, and read the payloads in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.message import Message

from trio_cogment.api.common_pb2 import (
    ActorParams,
    DatalogParams,
    EnvironmentParams,
    SerializedMessage,
    TrialParams,
)
from trio_cogment.base.endpoints import DISCOVER
from trio_cogment.sdk.spec import Payload, Spec, decode, encode


def serialized(payload: Payload) -> SerializedMessage:
    """Return a payload as trial parameters carry it, to be copied into them: `actor.config.CopyFrom(serialized(...))`.

    Raises:
        InvalidArgumentError: it is neither bytes nor a protobuf message.
    """
    return SerializedMessage(content=encode(payload, None, "payload"))


def _serialized(payload: Payload | None, kind: type[Message] | None, what: str) -> SerializedMessage | None:
    return None if payload is None else SerializedMessage(content=encode(payload, kind, what))


def trial_config(params: TrialParams, spec: Spec) -> Any:
    """Return the config of a trial, of the type that the spec declares, or bytes; None if it has none.

    Raises:
        RemoteProtocolError: the bytes are not of that type; so it is with the other functions.
    """
    return _read(params, "trial_config", spec.trial_config, "trial_config")


def environment_config(params: TrialParams, spec: Spec) -> Any:
    """Return the config of the environment; see `trial_config`."""
    return _read(params.environment, "config", spec.environment_config, "environment.config")


def actor_config(actor: ActorParams, spec: Spec) -> Any:
    """Return the config of an actor; see `trial_config`."""
    return _read(actor, "config", spec.actor_class(actor.actor_class).config, f"actor {actor.name!r}: config")


def default_action(actor: ActorParams, spec: Spec) -> Any:
    """Return the default action of an actor; see `trial_config`."""
    kind = spec.actor_class(actor.actor_class).action
    return _read(actor, "default_action", kind, f"actor {actor.name!r}: default_action")


def _read(holder: Message, field: str, kind: type[Message] | None, what: str) -> Any:
    return decode(getattr(holder, field).content, kind, what) if holder.HasField(field) else None


def actor_params(
    name: str,
    actor_class: str,
    *,
    implementation: str = "",
    endpoint: str = DISCOVER,
    config: Payload | None = None,
    initial_connection_timeout_seconds: float = 0.0,
    response_timeout_seconds: float = 0.0,
    optional: bool = False,
    default_action: Payload | None = None,
    observe_every: int = 0,
    hold_action: bool = False,
    spec: Spec | None = None,
) -> ActorParams:
    """Return the parameters of one actor; see the API document, "Trial Parameters". A timeout of 0 means none.

    With a `spec`, the types of `config` and `default_action` are checked. With `observe_every=n` the actor is observed
    every n-th tick, and its action goes on until the next observation. With `hold_action` an actor that has not acted
    in time takes part with its last action, and not with its default one. See docs/real-time.md.

    Raises:
        InvalidArgumentError: a payload has the wrong type.
    """
    kind = (spec or Spec()).actor_class(actor_class)
    who = f"actor {name!r}"
    return ActorParams(
        name=name,
        actor_class=actor_class,
        endpoint=endpoint,
        implementation=implementation,
        config=_serialized(config, kind.config, f"{who}: config"),
        initial_connection_timeout=initial_connection_timeout_seconds,
        response_timeout=response_timeout_seconds,
        optional=optional,
        default_action=_serialized(default_action, kind.action, f"{who}: default_action"),
        observe_every=observe_every,
        hold_action=hold_action,
    )


def trial_params(
    actors: Iterable[ActorParams],
    *,
    environment: str = "",
    environment_endpoint: str = DISCOVER,
    environment_name: str = "",
    environment_config: Payload | None = None,
    trial_config: Payload | None = None,
    datalog_endpoint: str | None = None,
    datalog_exclude_fields: Iterable[str] = (),
    max_steps: int = 0,
    max_inactivity_seconds: int = 0,
    nb_buffered_ticks: int = 0,
    tick_hz: float = 0.0,
    properties: Mapping[str, str] = {},
    spec: Spec | None = None,
) -> TrialParams:
    """Return the parameters of a trial; `environment` is the implementation. 0 means no limit, or the default.

    With `tick_hz` ticks end by the clock, so many a second: see docs/real-time.md.

    Without a `datalog_endpoint` the samples go where the orchestrator sends them by default: to the datastore of its
    process, if there is one. An empty one means nowhere. With a `spec`, the types of `environment_config` and
    `trial_config` are checked.

    Raises:
        InvalidArgumentError: a payload has the wrong type.
    """
    spec = spec or Spec()
    params = TrialParams(
        trial_config=_serialized(trial_config, spec.trial_config, "trial_config"),
        environment=EnvironmentParams(
            name=environment_name,
            endpoint=environment_endpoint,
            implementation=environment,
            config=_serialized(environment_config, spec.environment_config, "environment_config"),
            tick_hz=tick_hz,
        ),
        actors=actors,
        max_steps=max_steps,
        max_inactivity=max_inactivity_seconds,
        nb_buffered_ticks=nb_buffered_ticks,
        properties=properties,
    )
    datalog = DatalogParams(endpoint=datalog_endpoint or "", exclude_fields=datalog_exclude_fields)
    if datalog_endpoint is not None or datalog.exclude_fields:
        params.datalog.CopyFrom(datalog)
    return params
