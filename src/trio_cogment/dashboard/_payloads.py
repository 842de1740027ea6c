"""Payloads as pages can show them: JSON of bounded size, whatever is in them.

What has a known type becomes its fields; in it, arrays keep their bytes, which the page draws as an image or a curve,
and pictures are pictures. Anything else is shown as hexadecimal digits. Long things are cut: the page says so.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from trio_cogment.api.spaces_pb2 import Array, DType

#: Of one payload: values, characters of a text, bytes of an array or picture, bytes as digits; and how deep it goes.
_MAX_VALUES = 2000
_MAX_CHARACTERS = 4000
_MAX_DATA_BYTES = 512 * 1024
_MAX_HEX_BYTES = 512
_MAX_DEPTH = 16
_SAFE_INTEGER = 2**53
_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
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


class _Room:
    """How much of a payload may still be shown."""

    def __init__(self) -> None:
        self.values = _MAX_VALUES

    def take(self) -> bool:
        self.values -= 1
        return self.values >= 0


def shown(payload: Message | bytes | None) -> Any:
    """Return a payload as JSON can have it.

    A message is `{"type": ..., "value": ...}`, bytes are `{"hex": ..., "size": ...}`. Within a value, arrays are
    `{"$array": {"dtype", "shape", "data"}}` with the data as base64, and pictures `{"$image": ..., "type": ...}`.
    """
    if payload is None:
        return None
    if isinstance(payload, bytes):
        return _bytes(payload)
    if isinstance(payload, AnyMessage):
        return {"type": payload.type_url.rpartition("/")[2], "value": _bytes(payload.value)}
    return {"type": payload.DESCRIPTOR.full_name, "value": _message(payload, _Room(), 0)}


def _bytes(data: bytes) -> Any:
    for start, kind in _PICTURES.items():
        if data.startswith(start) and len(data) <= _MAX_DATA_BYTES:
            return {"$image": base64.b64encode(data).decode(), "type": kind}
    return {"hex": data[:_MAX_HEX_BYTES].hex(), "size": len(data)}


def _message(message: Message, room: _Room, depth: int) -> Any:
    if isinstance(message, Array):
        array = _array(message)
        if array is not None:
            return array
    if depth >= _MAX_DEPTH:
        return "\u2026"
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if not room.take():
            found["\u2026"] = "\u2026"
            break
        found[field.name] = _field(field, value, room, depth)
    return found


def _field(field: FieldDescriptor, value: Any, room: _Room, depth: int) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
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
        return value if math.isfinite(value) else str(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value if abs(value) < _SAFE_INTEGER else str(value)


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
        yield (name if size == 1 else f"{name}[{index}]"), float(item)
