"""Spaces for the actions and observations of any OpenEnv server, from the JSON schemas that it shows.

A server of this package tells its spaces. Others describe objects, in the way of Pydantic:

| schema | space |
|---|---|
| `integer` with both bounds, of 64 bits | `Discrete` |
| `integer`, `number` | `Box` without dimensions, of `int64` or `float64` |
| `boolean` | `Discrete(2)` |
| `string` | `Text` of printable ASCII characters, tabs and newlines |
| `array` of numbers of a fixed length | `Box` with one dimension more |
| other `array` | `Sequence` |
| `object` with properties | `Dict` |

Whatever else there is, such as alternatives or objects with any property, has no space. Then the whole is one `Text`:
the JSON itself. That is so for observations with strings, too: they may hold any character, and JSON can escape those.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.openenv.schemas import space_in
from trio_cogment.spaces import Box, Dict, Discrete, Sequence, Space, SpaceError, Text
from trio_cogment.spaces.base import described
from trio_cogment.spaces.errors import MAX_DEPTH
from trio_cogment.spaces.json_values import dumps, from_json_value, loads, to_json_value

#: The longest text of an action, and the longest JSON of an observation, unless the caller says otherwise.
DEFAULT_MAX_TEXT_CHARACTERS = 1_000_000
#: What strings of actions may hold, and the JSON of observations does.
CHARACTERS = string.ascii_letters + string.digits + string.punctuation + " \t\r\n"
#: Properties of OpenEnv's base classes, which are not part of an action or an observation.
COMMON = frozenset({"metadata", "done", "reward"})
_INTEGERS = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of a space go into the fields of an action or come out of those of an observation.

    Attributes:
        space: of the values.
        field: the one field that has the value; empty: the fields are the value.
        as_text: the value is the JSON of the fields.
    """

    space: Space
    field: str = ""
    as_text: bool = False

    def fields(self, value: Any) -> dict[str, Any]:
        """Return the fields of an action.

        Raises:
            SpaceError: the action is a text that is not a JSON object.
        """
        if self.as_text:
            try:
                found = loads(value)
            except InvalidArgumentError as error:
                raise SpaceError(str(error)) from None
        else:
            found = to_json_value(value)
        if self.field:
            return {self.field: found}
        if not isinstance(found, dict):
            raise SpaceError(f"expected a JSON object with the fields of an action, got {type(found).__name__}")
        return found

    def value(self, fields: Mapping[str, Any]) -> Any:
        """Return the value of an observation.

        Raises:
            SpaceError: there is none, or it is not in the space.
        """
        if self.as_text:
            return self.space.check(dumps(to_json_value(dict(fields))))
        if self.field:
            if self.field not in fields:
                raise SpaceError(f"expected the field {self.field}, got {', '.join(fields) or 'none'}")
            return from_json_value(fields[self.field], self.space)
        known = self.space.spaces if isinstance(self.space, Dict) else {}
        return from_json_value({key: inner for key, inner in fields.items() if key in known}, self.space)


@dataclass(frozen=True, slots=True)
class GivenAction:
    """Actions as a user wants them.

    Attributes:
        space: of the values.
        to_fields: makes the fields of an action of a value.
    """

    space: Space
    to_fields: Callable[[Any], Mapping[str, Any]]

    def fields(self, value: Any) -> Mapping[str, Any]:
        """Return the fields of an action.

        Raises:
            SpaceError: the user's function returned none.
        """
        found = self.to_fields(value)
        if not isinstance(found, Mapping):
            raise SpaceError(f"expected a dict from to_fields, got {described(found)}")
        fields: dict[str, Any] = to_json_value(dict(found))
        return fields


@dataclass(frozen=True, slots=True)
class GivenObservation:
    """Observations as a user wants them.

    Attributes:
        space: of the values.
        to_value: makes a value of the fields of an observation.
    """

    space: Space
    to_value: Callable[[Mapping[str, Any]], Any]

    def value(self, fields: Mapping[str, Any]) -> Any:
        """Return the value of an observation.

        Raises:
            SpaceError: the user's function returned none of the space.
        """
        return self.space.check(self.to_value(fields))


def action_codec(schema: Any, max_text_characters: int = DEFAULT_MAX_TEXT_CHARACTERS) -> Codec:
    """Return how actions are made for a server with this schema."""
    return _codec(schema, max_text_characters, strings=True)


def observation_codec(schema: Any, max_text_characters: int = DEFAULT_MAX_TEXT_CHARACTERS) -> Codec:
    """Return how observations of a server with this schema are read."""
    return _codec(schema, max_text_characters, strings=False)


def _codec(schema: Any, max_text_characters: int, *, strings: bool) -> Codec:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict):
        told = space_in(properties.get("value"))
        if told is not None:
            return Codec(told, field="value")
        definitions = schema.get("$defs")
        reader = _Reader(definitions if isinstance(definitions, dict) else {}, max_text_characters, strings)
        own = {name: inner for name, inner in properties.items() if name not in COMMON}
        found = {name: reader.space(inner, 0) for name, inner in own.items()}
        spaces = {name: space for name, space in found.items() if space is not None}
        if spaces and len(spaces) == len(own):
            return Codec(Dict(spaces))
    return Codec(Text(max_text_characters, 2, CHARACTERS), as_text=True)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Finds the spaces of parts of a schema; None stands for what has none."""

    definitions: Mapping[str, Any]
    max_text_characters: int
    strings: bool

    def space(self, schema: Any, depth: int) -> Space | None:
        if not isinstance(schema, dict) or depth >= MAX_DEPTH:
            return None
        if "$ref" in schema:
            return self.space(self.definitions.get(str(schema["$ref"]).removeprefix("#/$defs/")), depth + 1)
        if "enum" in schema or "const" in schema:
            return None
        kind = schema.get("type")
        if kind == "boolean":
            return Discrete(2)
        if kind == "integer":
            return _integers(schema)
        if kind == "number":
            return Box(_bound(schema, "minimum", -math.inf), _bound(schema, "maximum", math.inf), (), "float64")
        if kind == "string":
            return self._text(schema)
        if kind == "array":
            return self._array(schema, depth)
        return self._object(schema, depth) if kind == "object" else None

    def _text(self, schema: Mapping[str, Any]) -> Space | None:
        if not self.strings:
            return None
        longest = schema.get("maxLength")
        return Text(longest if isinstance(longest, int) and longest >= 0 else self.max_text_characters, 0, CHARACTERS)

    def _array(self, schema: Mapping[str, Any], depth: int) -> Space | None:
        inner = self.space(schema.get("items"), depth + 1)
        length = schema.get("minItems")
        if isinstance(length, int) and length == schema.get("maxItems") and isinstance(inner, Box):
            low, high = (np.broadcast_to(bound, (length, *inner.shape)) for bound in inner.bounds())
            return Box(low, high, (length, *inner.shape), inner.dtype)
        return None if inner is None else Sequence(inner)

    def _object(self, schema: Mapping[str, Any], depth: int) -> Space | None:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return None
        found = {name: self.space(inner, depth + 1) for name, inner in properties.items()}
        spaces = {name: space for name, space in found.items() if space is not None}
        return Dict(spaces) if len(spaces) == len(found) else None


def _integers(schema: Mapping[str, Any]) -> Space:
    lowest, highest = (_bound(schema, name, None) for name in ("minimum", "maximum"))
    if lowest is not None and highest is not None and 0 <= highest - lowest < 2**31:
        return Discrete(int(highest - lowest) + 1, int(lowest))
    low, high = _INTEGERS
    return Box(low if lowest is None else int(lowest), high if highest is None else int(highest), (), "int64")


def _bound(schema: Mapping[str, Any], name: str, default: Any) -> Any:
    found = schema.get(name)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else default
