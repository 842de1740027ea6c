from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spaces.strategies import same
from trio_cogment.gateways.openenv.foreign_schemas import CHARACTERS, action_codec, observation_codec
from trio_cogment.gateways.openenv.schemas import seat_schemas
from trio_cogment.spaces import Box, Dict, Discrete, Sequence, Space, SpaceError, Text


def of(**properties: Any) -> dict[str, Any]:
    metadata = {"type": "object", "additionalProperties": True}
    return {"type": "object", "properties": {**properties, "metadata": metadata}}


def test_a_server_of_this_package_tells_its_spaces() -> None:
    schemas = seat_schemas("player_0", Box(-np.inf, np.inf, (2,)), Discrete(3))
    action, observation = action_codec(schemas["action"]), observation_codec(schemas["observation"])
    assert (action.space, observation.space) == (Discrete(3), Box(-np.inf, np.inf, (2,)))
    assert action.fields(np.int64(2)) == {"value": 2}
    fields = {"value": [1, "Infinity"], "terminated": False}
    assert same(observation.value(fields), np.array([1, np.inf], np.float32))
    with pytest.raises(SpaceError, match="expected the field value, got other"):
        observation.value({"other": 1})


@pytest.mark.parametrize(
    ("schema", "space"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 3}, Discrete(3, 1)),
        ({"type": "integer"}, Box(-(2**63), 2**63 - 1, (), "int64")),
        ({"type": "integer", "minimum": 0}, Box(0, 2**63 - 1, (), "int64")),
        ({"type": "number", "maximum": 1.5}, Box(-np.inf, 1.5, (), "float64")),
        ({"type": "boolean"}, Discrete(2)),
        ({"type": "string", "maxLength": 9}, Text(9, 0, CHARACTERS)),
        ({"type": "array", "items": {"type": "number"}}, Sequence(Box(-np.inf, np.inf, (), "float64"))),
        (
            {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
            Box(-np.inf, np.inf, (2,), "float64"),
        ),
        ({"type": "object", "properties": {"b": {"type": "boolean"}}}, Dict({"b": Discrete(2)})),
        ({"$ref": "#/$defs/Move"}, Discrete(4)),
    ],
)
def test_the_space_of_a_field(schema: dict[str, Any], space: Space) -> None:
    whole = of(field=schema) | {"$defs": {"Move": {"type": "integer", "minimum": 0, "maximum": 3}}}
    assert action_codec(whole).space == Dict({"field": space})


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        of(),
        of(field={"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        of(field={"enum": ["left", "right"]}),
        of(field={"type": "object", "additionalProperties": True}),
        of(field={"$ref": "#/$defs/Missing"}),
        of(field={"type": "array"}),
        of(known={"type": "boolean"}, field={"type": "object", "properties": {"a": {}}}),
        {"properties": {"field": {"$ref": "#/$defs/Loop"}}, "$defs": {"Loop": {"$ref": "#/$defs/Loop"}}},
    ],
)
def test_what_has_no_space_is_text(schema: Any) -> None:
    codec = action_codec(schema)
    assert isinstance(codec.space, Text)
    assert codec.fields('{"message": "h\\u00e9"}') == {"message": "hé"}
    with pytest.raises(SpaceError, match="expected JSON"):
        codec.fields("left")
    with pytest.raises(SpaceError, match="expected a JSON object"):
        codec.fields("[1]")


def test_observations_with_strings_are_text_because_they_may_hold_any_character() -> None:
    schema = of(message={"type": "string"})
    assert isinstance(action_codec(schema).space, Dict)
    codec = observation_codec(schema, 40)
    assert codec.value({"message": "hé\n", "extra": [1]}) == '{"message":"h\\u00e9\\n","extra":[1]}'
    with pytest.raises(SpaceError, match="expected 2 to 40 characters"):
        codec.value({"message": "x" * 40})


def test_observations_may_have_more_fields_than_the_schema_but_not_fewer() -> None:
    codec = observation_codec(of(x={"type": "number"}))
    assert same(codec.value({"x": 1, "metadata": {}, "y": "?"}), {"x": np.array(1.0)})
    with pytest.raises(SpaceError, match="got no 'x'"):
        codec.value({"y": 1})
