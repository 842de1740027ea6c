"""Values of spaces as messages `Value`, and back.

The message says by itself what the value is: an array, a dict of values, and so on. So a value goes both ways without
its space, and so does information that has none, of the kind that JSON can hold. With the space at hand, what came is
checked, and given the types that Gymnasium has.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.arrays import DTYPE_NUMBERS, decode_array, decode_number, fill_array, fill_scalar
from trio_cogment.spaces.base import Space, described
from trio_cogment.spaces.composite import GraphValue, is_graph, part
from trio_cogment.spaces.errors import MAX_DEPTH, SpaceError

_INTEGERS = (-(2**63), 2**63 - 1)


def encode_value(value: Any, space: Space | None = None) -> pb.Value:
    """Return a value as a message.

    Arrays, NumPy's and Python's numbers, strings, bytes, bools, None, and graphs are values; so are dicts with strings
    as keys, tuples and lists of values.

    Args:
        value: what to encode.
        space: what it has to be in, if given.

    Raises:
        SpaceError: a part of it is nothing of that kind, or is not in the space; the text names the part.
    """
    message = pb.Value()
    fill_value(message, value if space is None else space.check(value))
    return message


def decode_value(message: pb.Value, space: Space | None = None, *, copy: bool = False) -> Any:
    """Return a message as a value.

    Args:
        message: what to decode.
        space: what the value has to be in, if given; then it has the types that `Space.check` gives.
        copy: return arrays that can be written to; otherwise they are read-only and share the message's bytes.

    Raises:
        SpaceError: the message makes no sense, or its value is not in the space; the text names the part.
    """
    value = _decode(message, copy, 0)
    return value if space is None else space.check(value)


def fill_fields(message: pb.Value.Fields, values: dict[str, Any], depth: int = 0) -> None:
    """Write a dict into an empty message; see `fill_value`."""
    message.SetInParent()
    for key, value in values.items():
        if not isinstance(key, str):
            raise SpaceError(f"expected strings as keys, got {described(key)}")
        field = message.fields.add()
        try:
            field.key = key
        except UnicodeEncodeError as error:
            raise SpaceError(f"expected keys that UTF-8 can encode: {error.reason}") from error
        part(fill_value, key, field.value, value, depth + 1)


def decode_fields(message: pb.Value.Fields, *, copy: bool = False, depth: int = 0) -> dict[str, Any]:
    """Return the dict that a message holds; see `decode_value`."""
    found: dict[str, Any] = {}
    for field in message.fields:
        if field.key in found:
            raise SpaceError("expected each key once").inside(field.key)
        found[field.key] = part(_decode, field.key, field.value, copy, depth + 1)
    return found


def fill_value(message: pb.Value, value: Any, depth: int = 0) -> None:
    """Write a value into an empty message, which may be a part of another: that saves copies; see `encode_value`."""
    if type(value) is np.ndarray:
        fill_array(message.array, value)
        return
    if depth >= MAX_DEPTH:
        raise SpaceError(f"expected at most {MAX_DEPTH} levels of nesting")
    known = _WRITERS_OF_TYPES.get(type(value))
    if known is not None:
        known(message, value, depth)
        return
    if is_graph(value):
        _fill_graph(message.graph, value, depth)
        return
    for kind, writer in _WRITERS:
        if isinstance(value, kind):
            writer(message, value, depth)
            return
    raise SpaceError(
        "expected an array, a number, a string, bytes, a bool, None, or a dict, tuple or list of such; "
        f"got {described(value)}"
    )


def _fill_graph(message: pb.Value.Graph, value: Any, depth: int) -> None:
    part(fill_value, "nodes", message.nodes, value.nodes, depth + 1)
    if value.edges is not None:
        part(fill_value, "edges", message.edges, value.edges, depth + 1)
    if value.edge_links is not None:
        part(fill_array, "edge_links", message.edge_links, value.edge_links)


def _fill_text(message: pb.Value, value: str, _depth: int) -> None:
    try:
        message.text = value
    except UnicodeEncodeError as error:
        raise SpaceError(f"expected text that UTF-8 can encode: {error.reason}") from error


def _fill_bool(message: pb.Value, value: bool, _depth: int) -> None:
    message.boolean = value


def _fill_integer(message: pb.Value, value: int, _depth: int) -> None:
    lowest, highest = _INTEGERS
    if not lowest <= value <= highest:
        raise SpaceError(f"expected integers of 64 bits, got one of {value.bit_length()}")
    message.integer = value


def _fill_real(message: pb.Value, value: float, _depth: int) -> None:
    message.real = value


def _fill_bytes(message: pb.Value, value: bytes, _depth: int) -> None:
    message.data = value


def _fill_items(message: pb.Value.Items, values: Any, depth: int) -> None:
    message.SetInParent()
    for position, value in enumerate(values):
        part(fill_value, position, message.items.add(), value, depth + 1)


#: The first that fits writes. NumPy's scalars come first: some are Python's numbers, too; and a bool is an integer.
_WRITERS: tuple[tuple[type, Callable[[pb.Value, Any, int], None]], ...] = (
    (np.generic, lambda message, value, _depth: fill_scalar(message.array, value)),
    (dict, lambda message, value, depth: fill_fields(message.dict, value, depth)),
    (str, _fill_text),
    (bool, _fill_bool),
    (int, _fill_integer),
    (float, _fill_real),
    (tuple, lambda message, value, depth: _fill_items(message.tuple, value, depth)),
    (list, lambda message, value, depth: _fill_items(message.list, value, depth)),
    (type(None), lambda message, _value, _depth: message.null.SetInParent()),
    (bytes, _fill_bytes),
    (np.ndarray, lambda message, value, _depth: fill_array(message.array, value)),
)
#: The same for values of exactly these types, which most are.
_WRITERS_OF_TYPES = {kind: writer for kind, writer in _WRITERS if kind not in (np.generic, np.ndarray)}


def _decode(message: pb.Value, copy: bool, depth: int) -> Any:
    if depth >= MAX_DEPTH:
        raise SpaceError(f"expected at most {MAX_DEPTH} levels of nesting")
    kind = message.WhichOneof("kind")
    if kind == "array":
        return decode_number(message.array, copy=copy)
    if kind == "dict":
        return decode_fields(message.dict, copy=copy, depth=depth)
    if kind == "tuple":
        return tuple(_decode_items(message.tuple, copy, depth))
    if kind == "list":
        return _decode_items(message.list, copy, depth)
    if kind == "graph":
        return _decode_graph(message.graph, copy, depth)
    if kind == "null":
        return None
    if kind is None:
        raise SpaceError("expected a value, got none, or one of a newer version")
    return getattr(message, kind)


def _decode_items(message: pb.Value.Items, copy: bool, depth: int) -> list[Any]:
    return [part(_decode, position, item, copy, depth + 1) for position, item in enumerate(message.items)]


def _decode_graph(message: pb.Value.Graph, copy: bool, depth: int) -> GraphValue:
    nodes = part(_decode, "nodes", message.nodes, copy, depth + 1)
    edges = part(_decode, "edges", message.edges, copy, depth + 1) if message.HasField("edges") else None
    has_links = message.HasField("edge_links")
    links = part(lambda: decode_array(message.edge_links, copy=copy), "edge_links") if has_links else None
    return GraphValue(nodes, edges, links)


# The bytes of a message without the message


class _UnusualError(Exception):
    """A value is to be written by way of a message."""


def serialized_fields(values: dict[str, Any]) -> bytes:
    """Return the bytes of the message that `fill_fields` makes of a dict, in a fraction of the time.

    Raises:
        SpaceError: as `fill_fields` does.
    """
    parts: list[bytes] = []
    try:
        _add_fields(parts, values, 0)
    except (_UnusualError, UnicodeEncodeError):
        # It has what is rare, or what cannot be written: then the error says which part.
        message = pb.Value.Fields()
        fill_fields(message, values)
        found: bytes = message.SerializeToString()
        return found
    return b"".join(parts)


def _add_fields(parts: list[bytes], values: dict[str, Any], depth: int) -> int:
    """Add the bytes of a dict; return how many they are. What comes before a value has its size, and is added last."""
    if depth + 1 >= MAX_DEPTH:
        raise _UnusualError
    size = 0
    for key, value in values.items():
        if type(key) is not str:
            raise _UnusualError
        kind = type(value)
        if kind is dict:
            place = len(parts)
            parts.append(b"")
            within = _add_fields(parts, value, depth + 1)
            head = parts[place] = _head(key, "dict", within)
            size += len(head) + within
            continue
        content = b""
        if kind is np.ndarray:
            head, content = _array_head(key, value.dtype, value.shape), value.tobytes()
        elif kind is bytes:
            head, content = _head(key, "data", len(value)), value
        elif kind is bool:
            head = _boolean(key, value)
        elif kind is int and _INTEGERS[0] <= value <= _INTEGERS[1]:
            head = _integer(key, value)
        elif kind is str:
            content = value.encode()
            head = _head(key, "text", len(content))
        elif kind is float:
            head, content = _real_head(key), _DOUBLE.pack(value)
        else:
            raise _UnusualError
        parts += head, content
        size += len(head) + len(content)
    return size


_DOUBLE = struct.Struct("<d")
#: The tags of what has a length, as they come before an empty one, or before one of a single byte.
_FIELD = pb.Value.Fields(fields=[pb.Value.Fields.Field()]).SerializeToString()[:-1]
_VALUE = pb.Value.Fields.Field(value=pb.Value()).SerializeToString()[:-1]
_RAW_DATA = pb.Array(raw_data=b"x").SerializeToString()[:-2]
_TAGS = {
    "array": pb.Value(array=pb.Array()).SerializeToString()[:-1],
    "dict": pb.Value(dict=pb.Value.Fields()).SerializeToString()[:-1],
    "data": pb.Value(data=b"").SerializeToString()[:-1],
    "text": pb.Value(text="").SerializeToString()[:-1],
}


@lru_cache(1024)
def _length(size: int) -> bytes:
    """Return a size as it comes before so many bytes."""
    tag, found = _TAGS["data"], pb.Value(data=bytes(size)).SerializeToString()
    return bytes(found[len(tag) : len(found) - size])


# What comes before the content of a value of a dict; of a value that is short, all of it. Mostly a dict is one of many
# with the same keys and sizes.


def _field(key: str, head: bytes, size: int) -> bytes:
    """Return what comes before the rest of a value, which has this size, with the value's first bytes."""
    within = len(head) + size
    named = pb.Value.Fields.Field(key=key).SerializeToString() + _VALUE + _length(within)
    return _FIELD + _length(len(named) + within) + named + head


@lru_cache(1024)
def _head(key: str, name: str, size: int) -> bytes:
    return _field(key, _TAGS[name] + _length(size), size)


@lru_cache(1024)
def _integer(key: str, value: int) -> bytes:
    return _field(key, pb.Value(integer=value).SerializeToString(), 0)


@lru_cache(1024)
def _boolean(key: str, value: bool) -> bytes:
    return _field(key, pb.Value(boolean=value).SerializeToString(), 0)


@lru_cache(1024)
def _real_head(key: str) -> bytes:
    return _field(key, pb.Value(real=0.0).SerializeToString()[: -_DOUBLE.size], _DOUBLE.size)


@lru_cache(1024)
def _array_head(key: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    number, size = DTYPE_NUMBERS.get(dtype.str), dtype.itemsize * math.prod(shape)
    if number is None or not size:
        raise _UnusualError
    head = pb.Array(dtype=number, shape=shape).SerializeToString() + _RAW_DATA + _length(size)
    return _field(key, _TAGS["array"] + _length(len(head) + size) + head, size)
