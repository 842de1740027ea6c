from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.spaces.strategies import spaces
from trio_cogment.gateways.openenv.schemas import SPACE_KEYWORD, openapi, schema_of, seat_schemas, space_in
from trio_cogment.spaces import Box, Dict, Discrete, MultiBinary, OneOf, Sequence, Space, SpaceError, Text, Tuple
from trio_cogment.spaces.json_values import dumps, loads


@given(spaces)
def test_every_space_survives_in_its_schema(space: Space) -> None:
    assert space_in(loads(dumps(schema_of(space)))) == space


@pytest.mark.parametrize(
    ("space", "schema"),
    [
        (Discrete(3, -1), {"type": "integer", "minimum": -1, "maximum": 1}),
        (
            Box(0, 255, (2, 3), "uint8"),
            {
                "type": "array",
                "items": {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 0, "maximum": 255},
                    "minItems": 3,
                    "maxItems": 3,
                },
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (
            Box(-1, np.inf, (), "float32"),
            {"anyOf": [{"type": "number", "minimum": -1.0}, {"enum": ["Infinity"]}]},
        ),
        (Box(False, True, (), "bool"), {"type": "boolean"}),
        (
            MultiBinary(2),
            {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1}, "minItems": 2, "maxItems": 2},
        ),
        (Text(4), {"type": "string", "minLength": 1, "maxLength": 4}),
        (
            Sequence(Dict({"a": Discrete(2)}), stack=True),
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1}}},
                "required": ["a"],
                "additionalProperties": False,
            },
        ),
        (Tuple([]), {"type": "array", "minItems": 0, "maxItems": 0}),
        (
            OneOf([Text(1)]),
            {
                "anyOf": [
                    {
                        "type": "array",
                        "minItems": 2,
                        "maxItems": 2,
                        "prefixItems": [{"const": 0}, {"type": "string", "minLength": 1, "maxLength": 1}],
                    }
                ]
            },
        ),
    ],
)
def test_what_a_schema_says(space: Space, schema: dict[str, Any]) -> None:
    found = schema_of(space)
    found.pop(SPACE_KEYWORD)
    assert found == schema


def test_a_schema_without_a_space_and_one_with_nonsense() -> None:
    assert space_in({"type": "integer"}) is None
    assert space_in(None) is None
    with pytest.raises(SpaceError, match="space: type: expected one of"):
        space_in({SPACE_KEYWORD: {"type": "Sphere"}})


def test_the_documents_of_a_seat_are_json() -> None:
    schemas = seat_schemas("player_0", Box(-np.inf, np.inf, (4,)), Discrete(2))
    document = openapi("CartPole-v1", schemas)
    assert loads(dumps(document)) == document
    assert document["info"] == {**document["info"], "title": "CartPole-v1", "version": "1.0.0"}
    assert {"/reset", "/step", "/state", "/mcp", "/schema", "/metadata", "/health"} == document["paths"].keys()
    assert schemas["action"]["required"] == ["value"]


def parts_of(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and those within it."""
    if isinstance(schema, dict):
        if "type" in schema or "anyOf" in schema or "enum" in schema:
            yield schema
        for name, inner in schema.items():
            if name != SPACE_KEYWORD:
                yield from parts_of(inner)


def test_tools_can_read_the_description() -> None:
    """What they insist on: methods, summaries, and types that JSON has."""
    schemas = seat_schemas("player_0", Box(-np.inf, np.inf, (4,)), Discrete(2))
    paths = openapi("CartPole-v1", schemas)["paths"]
    methods = {path: " ".join(operations) for path, operations in paths.items()}
    assert methods == {
        **dict.fromkeys(("/reset", "/step", "/mcp"), "post"),
        **dict.fromkeys(("/state", "/health", "/metadata", "/schema"), "get"),
    }
    for path, operations in paths.items():
        for method, operation in operations.items():
            assert operation["summary"].endswith(".")
            assert ("requestBody" in operation) is (method == "post")
            assert "200" in operation["responses"], path
    types = {"array", "boolean", "integer", "null", "number", "object", "string"}
    found = [part for name in ("action", "observation", "state") for part in parts_of(schemas[name])]
    assert {part["type"] for part in [*found, *parts_of(paths)] if isinstance(part.get("type"), str)} <= types
    assert schemas["state"]["properties"]["seat"] == {"type": "string"}
