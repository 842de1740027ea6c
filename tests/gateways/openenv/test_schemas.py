from __future__ import annotations

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
