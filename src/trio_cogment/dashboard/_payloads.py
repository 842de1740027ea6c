"""Payloads as pages can show them: JSON of bounded size, whatever is in them.

What has a known type becomes its fields; in it, arrays keep their bytes, which the page draws as an image or a curve,
and pictures are pictures. Anything else is shown as hexadecimal digits. Long things are cut: the page says so.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from google.protobuf import duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from trio_cogment.api.spaces_pb2 import Array, DType, Value
from trio_cogment.sdk.spec.fields import enum_name, is_map
from trio_cogment.web.json_text import MAX_SAFE_INTEGER, shortest
from trio_cogment.web.pictures import picture_type

#: Of one payload: values, characters of a text, bytes of an array or picture, bytes as digits; and how deep it goes.
_MAX_VALUES = 2000
_MAX_CHARACTERS = 4000
_MAX_DATA_BYTES = 512 * 1024
_MAX_HEX_BYTES = 512
_MAX_DEPTH = 16
#: Numbers of one payload that become curves.
_MAX_NUMBERS = 8
#: Types of arrays whose bytes are shown, by the names that pages know.
_DTYPES = {
    DType.DTYPE_FLOAT32: "f4",
    DType.DTYPE_FLOAT64: "f8",
    DType.DTYPE_INT8: "i1",
    DType.DTYPE_INT16: "i2",
    DType.DTYPE_INT32: "i4",
    DType.DTYPE_INT64: "i8",
    DType.DTYPE_UINT8: "u1",
    DType.DTYPE_UINT16: "u2",
    DType.DTYPE_UINT32: "u4",
    DType.DTYPE_UINT64: "u8",
    DType.DTYPE_BOOL: "b1",
}
#: The same as `struct` has them.
_FORMATS = dict(zip(_DTYPES.values(), "fdbhiqBHIQ?", strict=True))

_WRAPPERS: tuple[type[Message], ...] = (
    wrappers_pb2.BoolValue,
    wrappers_pb2.BytesValue,
    wrappers_pb2.DoubleValue,
    wrappers_pb2.FloatValue,
    wrappers_pb2.Int32Value,
    wrappers_pb2.Int64Value,
    wrappers_pb2.StringValue,
    wrappers_pb2.UInt32Value,
    wrappers_pb2.UInt64Value,
)
_OTHERS: tuple[type[Message], ...] = (
    *(struct_pb2.Struct, struct_pb2.Value, struct_pb2.ListValue),
    *(duration_pb2.Duration, timestamp_pb2.Timestamp, empty_pb2.Empty, Array),
)
#: Types that messages between participants often have, whatever the project: by their full names.
_WELL_KNOWN = {one.DESCRIPTOR.full_name: one for one in (*_WRAPPERS, *_OTHERS)}
_NO_TYPES: Mapping[str, type[Message]] = MappingProxyType({})


class _Room:
    """How much of a payload may still be shown."""

    def __init__(self) -> None:
        self.values = _MAX_VALUES

    def take(self) -> bool:
        self.values -= 1
        return self.values >= 0


def shown(payload: Message | bytes | None, types: Mapping[str, type[Message]] = _NO_TYPES) -> Any:
    """Return a payload as JSON can have it.

    A message is `{"type": ..., "value": ...}`, bytes are `{"hex": ..., "size": ...}`. Within a value, arrays are
    `{"$array": {"dtype", "shape", "data"}}` with the data as base64, and pictures `{"$image": ..., "type": ...}`.

    Args:
        payload: see above; a `google.protobuf.Any` is shown as what is in it.
        types: that may be in an `Any`, by their full names, besides the well-known ones.
    """
    if payload is None:
        return None
    if isinstance(payload, bytes):
        return _bytes(payload)
    if isinstance(payload, AnyMessage):
        return _packed(payload, types)
    return {"type": payload.DESCRIPTOR.full_name, "value": _message(payload, _Room(), 0)}


def _packed(payload: AnyMessage, types: Mapping[str, type[Message]]) -> Any:
    name = payload.type_url.rpartition("/")[2]
    known = types.get(name) or _WELL_KNOWN.get(name)
    if known is not None:
        try:
            return {"type": name, "value": _message(known.FromString(payload.value), _Room(), 0)}
        except DecodeError:
            pass  # somebody has given it another type than it has: its bytes are shown
    return {"type": name, "value": _bytes(payload.value)}


def _bytes(data: bytes) -> Any:
    kind = picture_type(data)
    if kind and len(data) <= _MAX_DATA_BYTES:
        return {"$image": base64.b64encode(data).decode(), "type": kind}
    return {"hex": data[:_MAX_HEX_BYTES].hex(), "size": len(data)}


def _message(message: Message, room: _Room, depth: int) -> Any:
    if isinstance(message, Array):
        array = _array(message)
        if array is not None:
            return array
    if depth >= _MAX_DEPTH:
        return "\u2026"
    plain = _PLAIN.get(message.DESCRIPTOR.full_name)
    if plain is not None:
        return plain(message, room, depth)
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if not room.take():
            found["\u2026"] = "\u2026"
            break
        found[field.name] = _field(field, value, room, depth)
    return found


def _field(field: FieldDescriptor, value: Any, room: _Room, depth: int) -> Any:
    if is_map(field):
        return {str(key): _one(field, item, room, depth) for key, item in value.items() if room.take()}
    if field.is_repeated:
        items = [_one(field, item, room, depth) for item in value if room.take()]
        return items if len(items) == len(value) else [*items, "\u2026"]
    return _one(field, value, room, depth)


def _one(field: FieldDescriptor, value: Any, room: _Room, depth: int) -> Any:
    if isinstance(value, Message):
        return _message(value, room, depth + 1)
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, str):
        return value if len(value) <= _MAX_CHARACTERS else value[:_MAX_CHARACTERS] + "\u2026"
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return shortest(value) if field.type == FieldDescriptor.TYPE_FLOAT else value
    if field.enum_type is not None:
        return enum_name(field.enum_type, value) or value
    return value


def _wrapped(message: Any, room: _Room, depth: int) -> Any:
    """Return what a wrapper of one value has, a default one too."""
    return _one(message.DESCRIPTOR.fields_by_name["value"], message.value, room, depth)


def _struct(message: Any, room: _Room, depth: int) -> Any:
    return {str(key): _value(item, room, depth + 1) for key, item in message.fields.items() if room.take()}


def _list(message: Any, room: _Room, depth: int) -> Any:
    return [_value(item, room, depth + 1) for item in message.values if room.take()]


def _value(message: Any, room: _Room, depth: int) -> Any:
    """Return what JSON calls it."""
    kind = message.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    field = message.DESCRIPTOR.fields_by_name[kind]
    return _one(field, getattr(message, kind), room, depth)


def _space_value(message: Any, room: _Room, depth: int) -> Any:
    """Return the parts of a composite value by their keys and places."""
    kind = message.WhichOneof("kind")
    if kind is None or kind == "null":
        return None
    if kind == "dict":
        fields = message.dict.fields
        return {field.key: _message(field.value, room, depth + 1) for field in fields if room.take()}
    if kind in ("tuple", "list"):
        items = (message.tuple if kind == "tuple" else message.list).items
        return [_message(item, room, depth + 1) for item in items if room.take()]
    return _one(message.DESCRIPTOR.fields_by_name[kind], getattr(message, kind), room, depth)


#: Messages that are shown as what they stand for, and not as their fields.
_PLAIN: dict[str, Callable[[Any, _Room, int], Any]] = {
    **dict.fromkeys((one.DESCRIPTOR.full_name for one in _WRAPPERS), _wrapped),
    struct_pb2.Struct.DESCRIPTOR.full_name: _struct,
    struct_pb2.ListValue.DESCRIPTOR.full_name: _list,
    struct_pb2.Value.DESCRIPTOR.full_name: _value,
    Value.DESCRIPTOR.full_name: _space_value,
}


def _array(array: Array) -> Any:
    """Return an array with its bytes; None: it is in another form, or too large, and shown by its fields."""
    code = _DTYPES.get(array.dtype)
    if code is None or not array.raw_data or len(array.raw_data) > _MAX_DATA_BYTES:
        return None
    data = base64.b64encode(array.raw_data).decode()
    return {"$array": {"dtype": code, "shape": list(array.shape), "data": data}}


def numbers(payload: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield the first numbers in what `shown` has returned, with where they are: they make curves."""
    for count, found in enumerate(_numbers(payload, name)):
        if count >= _MAX_NUMBERS:
            return
        yield found


def _numbers(value: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, int | float):  # a bool is one, too
        if _is_exact(value):
            yield name, float(value)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _numbers(item, f"{name}[{index}]")
    elif isinstance(value, dict):
        if "$array" in value:
            yield from _array_numbers(value["$array"], name)
        elif "hex" not in value and "$image" not in value:
            inner = value["value"] if value.keys() == {"type", "value"} else value
            if inner is not value:
                yield from _numbers(inner, name)
            else:
                for key, item in value.items():
                    yield from _numbers(item, f"{name}.{key}" if name else key)


def _array_numbers(array: Any, name: str) -> Iterator[tuple[str, float]]:
    size = math.prod(array["shape"])
    if not 0 < size <= _MAX_NUMBERS:
        return
    data = base64.b64decode(array["data"])
    layout = f"<{size}{_FORMATS[array['dtype']]}"
    if len(data) != struct.calcsize(layout):
        return
    for index, item in enumerate(struct.unpack(layout, data)):
        if _is_exact(item):
            value = shortest(item) if array["dtype"] == "f4" else float(item)
            yield (name if size == 1 else f"{name}[{index}]"), value


def _is_exact(value: float) -> bool:
    """Return whether a curve can have a number: a large integer, an id say, would be rounded."""
    return not isinstance(value, int) or abs(value) <= MAX_SAFE_INTEGER
