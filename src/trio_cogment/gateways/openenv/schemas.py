"""The documents that an OpenEnv server shows: JSON schemas of actions, observations and states, and its OpenAPI.

Where a schema describes a value of a space, the keyword `x-trio-cogment-space` has the space itself, in Minari's JSON,
with strings for infinities; from it `openenv_environment` gets the very space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trio_cogment.spaces import (
    ArraySpace,
    Box,
    Dict,
    Discrete,
    Graph,
    OneOf,
    Sequence,
    Space,
    SpaceError,
    Text,
    Tuple,
    from_jsonable,
    to_jsonable,
)
from trio_cogment.spaces.json_values import NOT_FINITE, to_json_value

#: The keyword of a schema under which a space is.
SPACE_KEYWORD = "x-trio-cogment-space"
#: OpenEnv's checks call this version of its HTTP interface `openenv-http/1.x`.
API_VERSION = "1.0.0"

_OBJECT: dict[str, Any] = {"type": "object"}


def schema_of(space: Space) -> dict[str, Any]:
    """Return the JSON schema of the values of a space, in the form of `to_json_value`, with the space itself.

    Raises:
        SpaceError: the space cannot be described.
    """
    return {**_schema(space), SPACE_KEYWORD: to_json_value(to_jsonable(space))}


def space_in(schema: Any) -> Space | None:
    """Return the space that `schema_of` has put into a schema; None if there is none.

    Raises:
        SpaceError: what is there is no space.
    """
    described = schema.get(SPACE_KEYWORD) if isinstance(schema, dict) else None
    return None if described is None else from_jsonable(_with_infinities(described))


def _with_infinities(found: Any, key: str = "") -> Any:
    """Put numbers for the strings that stand for infinities, which only bounds can be."""
    if isinstance(found, dict):
        return {name: _with_infinities(inner, name) for name, inner in found.items()}
    if isinstance(found, list):
        return [_with_infinities(inner, key) for inner in found]
    if key in ("low", "high") and isinstance(found, str):
        return NOT_FINITE.get(found, found)
    return found


def _schema(space: Space) -> dict[str, Any]:
    if isinstance(space, ArraySpace):
        return _nested(space.shape, _number(space))
    if isinstance(space, Text):
        return {"type": "string", "minLength": space.min_length, "maxLength": space.max_length}
    if isinstance(space, Dict):
        return _object({key: _schema(inner) for key, inner in space.spaces.items()})
    if isinstance(space, Tuple):
        return _listed([_schema(inner) for inner in space.spaces])
    if isinstance(space, Sequence):
        return {"type": "array", "items": _schema(space.space)} if not space.stack else _batch(space.space)
    if isinstance(space, OneOf):
        return {
            "anyOf": [_listed([{"const": position}, _schema(inner)]) for position, inner in enumerate(space.spaces)]
        }
    if isinstance(space, Graph):
        links = {"type": "array", "items": _nested((2,), {"type": "integer", "minimum": 0})}
        nothing = {"type": "null"}
        edges = nothing if space.edge_space is None else {"anyOf": [_batch(space.edge_space), nothing]}
        parts = {"nodes": _batch(space.node_space), "edges": edges, "edge_links": {"anyOf": [links, nothing]}}
        return {**_object(parts), "required": ["nodes"]}
    raise SpaceError(f"expected a space that a schema can describe, got {type(space).__name__}", root="space")


def _number(space: ArraySpace) -> dict[str, Any]:
    """Return the schema of one element; where the bounds of the elements differ, it has the widest."""
    kind = space.dtype.kind
    low, high = space.bounds()
    if kind == "b":
        return {"type": "boolean"}
    if isinstance(space, Discrete):
        return {"type": "integer", "minimum": int(low), "maximum": int(high)}
    schema: dict[str, Any] = {"type": "number" if kind == "f" else "integer"}
    # A space without elements has no bounds.
    ends = {"minimum": _end(low, "min"), "maximum": _end(high, "max")} if math.prod(space.shape) else {}
    infinite = [name for name, number in NOT_FINITE.items() if number in ends.values()]
    schema |= {name: end for name, end in ends.items() if math.isfinite(end)}
    return {"anyOf": [schema, {"enum": infinite}]} if infinite and isinstance(space, Box) else schema


def _end(bound: Any, which: str) -> Any:
    """Return the lowest or highest number of a bound, which is a number or an array."""
    return getattr(bound, which)().item() if hasattr(bound, which) else bound


def _nested(shape: tuple[int, ...], element: dict[str, Any]) -> dict[str, Any]:
    for length in reversed(shape):
        element = {"type": "array", "items": element, "minItems": length, "maxItems": length}
    return element


def _batch(space: Space) -> dict[str, Any]:
    if isinstance(space, Dict):
        return _object({key: _batch(inner) for key, inner in space.spaces.items()})
    if isinstance(space, Tuple):
        return _listed([_batch(inner) for inner in space.spaces])
    return {"type": "array", "items": _schema(space)}


def _object(properties: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _listed(items: list[dict[str, Any]]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", "minItems": len(items), "maxItems": len(items)}
    return {**schema, "prefixItems": items} if items else schema


def seat_schemas(seat: str, observation_space: Space, action_space: Space) -> dict[str, Any]:
    """Return what `GET /schema` answers about a seat."""
    action = _object({"value": schema_of(action_space)})
    action["properties"]["metadata"] = {"type": "object", "description": "Not looked at."}
    observation = {
        "value": schema_of(observation_space),
        "terminated": {"type": "boolean", "description": "The task has ended for the seat, by its own rules."},
        "truncated": {"type": "boolean", "description": "It has ended for another reason: a time limit, for example."},
        "info": {"type": "object", "description": "What the environment says besides."},
        "action_mask": {"description": "Which actions are allowed, as Gymnasium's sample(mask=...) takes it."},
        "frame": _object({"media_type": {"type": "string"}, "base64": {"type": "string"}}),
    }
    optional = ("action_mask", "frame")
    return {
        "action": {"title": "Action", **action, "description": f"What the seat {seat} does."},
        "observation": {
            "title": "Observation",
            **_object(observation),
            "required": [name for name in observation if name not in optional],
            "description": f"What the seat {seat} is told. Infinity, -Infinity and NaN are strings.",
        },
        "state": {"title": "State", **_object(_STATE)},
    }


_STATE: dict[str, dict[str, Any]] = {
    "episode_id": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "The id of the trial."},
    "step_count": {"type": "integer", "minimum": 0},
    "trial": {"type": "string", "description": "The name by which sockets find the trial; empty: one's own."},
    "seat": {"type": "string"},
    "phase": {"type": "string", "enum": ["new", "joining", "playing", "stepping", "ended", "over", "closed"]},
}

_NAME = {"type": "string", "maxLength": 255}
_RESET = {
    "type": "object",
    "properties": {
        "seed": {"type": "integer", "minimum": 0},
        "episode_id": {**_NAME, "description": "An id for the trial."},
        "trial": {**_NAME, "description": "A name by which several sockets find each other; WebSockets only."},
        "seat": {**_NAME, "description": "The actor to be; by default the first that is free."},
        "seats": {"type": "array", "items": _NAME, "description": "The actors that are sockets in this trial."},
        "options": {**_OBJECT, "description": "Of the environment."},
        "frames": {"type": "boolean", "description": "Send a picture with each observation, if there is any."},
    },
    "additionalProperties": False,
}


def openapi(name: str, schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document of a server.

    Args:
        name: of the environment.
        schemas: what `seat_schemas` returns for the seat that HTTP calls get.
    """
    step = {"type": "object", "properties": {"action": schemas["action"], "timeout_s": {"type": "number"}}}
    result = _object(
        {
            "observation": schemas["observation"],
            "reward": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "done": {"type": "boolean"},
            "metadata": _OBJECT,
        }
    )
    health = _object({"status": {"type": "string"}})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": name,
            "version": API_VERSION,
            "description": "A seat of a trial as an OpenEnv environment. Episodes take place on the WebSocket /ws.",
        },
        "paths": {
            "/reset": _path("post", "Begin a trial, tell its first observation, and end it.", result, _RESET),
            "/step": _path(
                "post", "Begin a trial, make one step, and end it.", result, {**step, "required": ["action"]}
            ),
            "/state": _path("get", "The state of a session without episodes.", schemas["state"]),
            "/health": _path("get", "Whether the server runs.", health),
            "/metadata": _path("get", "The environment's name and description.", _OBJECT),
            "/schema": _path("get", "The schemas of actions, observations and states.", _OBJECT),
            "/mcp": _path("post", "JSON-RPC; there are no tools.", _OBJECT, _OBJECT),
        },
    }


def _path(
    method: str, summary: str, result: Mapping[str, Any], body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": result}}}},
    }
    if body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": body}}}
    return {method: operation}
