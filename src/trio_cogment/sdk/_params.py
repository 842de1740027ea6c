"""Functions that make trial parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.message import Message

from trio_cogment.api.common_pb2 import (
    ActorParams,
    DatalogParams,
    EnvironmentParams,
    SerializedMessage,
    TrialParams,
)
from trio_cogment.endpoints import DISCOVER
from trio_cogment.spec import Payload


def _serialized(payload: Payload | None) -> SerializedMessage | None:
    if payload is None:
        return None
    return SerializedMessage(content=payload.SerializeToString() if isinstance(payload, Message) else payload)


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
) -> ActorParams:
    """Return the parameters of one actor; see the API document, "Trial Parameters". A timeout of 0 means none."""
    return ActorParams(
        name=name,
        actor_class=actor_class,
        endpoint=endpoint,
        implementation=implementation,
        config=_serialized(config),
        initial_connection_timeout=initial_connection_timeout_seconds,
        response_timeout=response_timeout_seconds,
        optional=optional,
        default_action=_serialized(default_action),
    )


def trial_params(
    actors: Iterable[ActorParams],
    *,
    environment: str = "",
    environment_endpoint: str = DISCOVER,
    environment_name: str = "",
    environment_config: Payload | None = None,
    trial_config: Payload | None = None,
    datalog_endpoint: str = "",
    datalog_exclude_fields: Iterable[str] = (),
    max_steps: int = 0,
    max_inactivity_seconds: int = 0,
    nb_buffered_ticks: int = 0,
    properties: Mapping[str, str] = {},
) -> TrialParams:
    """Return the parameters of a trial; `environment` is the implementation. 0 means no limit, or the default."""
    params = TrialParams(
        trial_config=_serialized(trial_config),
        environment=EnvironmentParams(
            name=environment_name,
            endpoint=environment_endpoint,
            implementation=environment,
            config=_serialized(environment_config),
        ),
        actors=actors,
        max_steps=max_steps,
        max_inactivity=max_inactivity_seconds,
        nb_buffered_ticks=nb_buffered_ticks,
        properties=properties,
    )
    if datalog_endpoint:
        params.datalog.CopyFrom(DatalogParams(endpoint=datalog_endpoint, exclude_fields=datalog_exclude_fields))
    return params
