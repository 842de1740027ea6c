"""The body that starts a trial, as its parameters.

It looks like `TrialParams` but for payloads, which are objects of the types that the project declares. Endpoints of
hosts and ports are refused: whoever reaches this port would choose where the orchestrator connects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from trio_cogment.api.common_pb2 import SerializedMessage, TrialParams
from trio_cogment.base.endpoints import GrpcEndpoint, LegacyEndpoint, parse_endpoint
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.rest.fields import as_integer, fields_of, items, text
from trio_cogment.gateways.rest.messages import from_json, payload_from_json
from trio_cogment.sdk.spec import Spec

_TRIAL = (
    *("trial_id", "config", "properties", "max_steps", "max_inactivity", "nb_buffered_ticks"),
    *("datalog", "environment", "actors"),
)
_DATALOG = ("endpoint", "exclude_fields")
_ENVIRONMENT = ("name", "endpoint", "implementation", "config")
_ACTOR = (
    *("name", "actor_class", "endpoint", "implementation", "config", "initial_connection_timeout"),
    *("response_timeout", "optional", "default_action"),
)
_PAYLOADS = ("config", "default_action")


def trial_from_json(body: Any, spec: Spec) -> tuple[str, TrialParams]:
    """Return the id that is asked for, empty for any, and the parameters of the trial.

    Raises:
        InvalidArgumentError: a field is missing or makes no sense; the text names it.
    """
    fields = fields_of(body, _TRIAL, "")
    environment = fields_of(fields.get("environment"), _ENVIRONMENT, "environment")
    actors = [fields_of(actor, _ACTOR, f"actors[{index}]") for index, actor in enumerate(items(fields, "actors"))]
    if not actors:
        raise InvalidArgumentError("actors: expected one at least")
    if not text(environment, "implementation", "environment"):
        raise InvalidArgumentError("environment.implementation: expected a name")
    plain = {name: value for name, value in fields.items() if name not in ("trial_id", "config")}
    if plain.get("nb_buffered_ticks") is not None:
        plain["nb_buffered_ticks"] = as_integer(plain["nb_buffered_ticks"], "nb_buffered_ticks")
        if plain["nb_buffered_ticks"] < 2:
            raise InvalidArgumentError("nb_buffered_ticks: expected 2 or more")
    if fields.get("datalog") is not None:
        datalog = fields_of(fields["datalog"], _DATALOG, "datalog")
        _check_endpoint(text(datalog, "endpoint", "datalog"), "datalog.endpoint")
    params: TrialParams = from_json(
        {**plain, "environment": _without_payloads(environment), "actors": [*map(_without_payloads, actors)]},
        TrialParams,
        "body",
    )
    _set(params.trial_config, fields, "config", spec.trial_config, "config")
    _check_endpoint(params.environment.endpoint, "environment.endpoint")
    _set(params.environment.config, environment, "config", spec.environment_config, "environment.config")
    for index, (given, actor) in enumerate(zip(actors, params.actors, strict=True)):
        where = f"actors[{index}]"
        kind = spec.actor_class(actor.actor_class)
        _check_endpoint(actor.endpoint, f"{where}.endpoint")
        _set(actor.config, given, "config", kind.config, f"{where}.config")
        if given.get("default_action") is not None:
            _set(actor.default_action, given, "default_action", kind.action, f"{where}.default_action")
    return text(fields, "trial_id"), params


def _without_payloads(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _PAYLOADS}


def _set(
    target: SerializedMessage, fields: Mapping[str, Any], name: str, kind: type[Message] | None, where: str
) -> None:
    """Write a payload: what a type is declared for is there in any case, as with the reference."""
    value = fields.get(name)
    if value is None and kind is None:
        return
    payload = payload_from_json({} if value is None else value, kind, where)
    target.content = payload if isinstance(payload, bytes) else payload.SerializeToString()
    target.SetInParent()


def _check_endpoint(endpoint: str, where: str) -> None:
    if isinstance(parse_endpoint(endpoint, field_name=where), GrpcEndpoint | LegacyEndpoint):
        raise InvalidArgumentError(f"{where}: expected cogment://discover or cogment://client: no address may be given")
