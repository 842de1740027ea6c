"""Arrays in payloads: the `Array` message of cogment-lab and cogment-verse as NumPy arrays.

NumPy is imported when the first array is requested: `pip install trio-cogment[arrays]`.
"""

from __future__ import annotations

import io
import math
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from trio_cogment.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np

#: NumPy's names for `DType` of cogment-lab's `ndarray.proto`; the data is little-endian and in C order.
_DTYPES = {1: "<f4", 2: "<f8", 3: "i1", 4: "<i4", 5: "<i8", 6: "u1"}
_TEXT = 7
#: The fields of the message that hold single values.
_LISTS = ("double_data", "int32_data", "int64_data", "uint32_data", "string_data")
_ARRAY_FIELDS = ("dtype", "shape", "raw_data", "npy_data")
#: The field of an observation or action that holds the array.
_WRAPPER_FIELD = "value"


def array_message(payload: Any) -> Message | None:
    """Return the `Array` message that a payload is, or holds in its field `value`; None if there is none."""
    if not isinstance(payload, Message):
        return None
    if all(name in payload.DESCRIPTOR.fields_by_name for name in _ARRAY_FIELDS):
        return payload
    inner = payload.DESCRIPTOR.fields_by_name.get(_WRAPPER_FIELD)
    if inner is None or inner.message_type is None or inner.is_repeated:
        return None
    found: Message = getattr(payload, _WRAPPER_FIELD)
    return array_message(found) if payload.HasField(_WRAPPER_FIELD) else None


def as_array(payload: Any) -> np.ndarray[Any, Any]:
    """Return the array that a payload is, or holds in its field `value`.

    The array is read-only where it shares the payload's bytes: copy it to change it.

    Raises:
        InvalidArgumentError: the payload is not an array, its type is unknown, or its data does not match its shape.
    """
    message: Any = array_message(payload)
    if message is None:
        raise InvalidArgumentError(f"payload: expected an array, got {type(payload).__name__}")
    shape = tuple(message.shape)
    array = _npy(message.npy_data) if message.npy_data else _values(message)
    if array.size != math.prod(shape):
        raise InvalidArgumentError(f"array: expected {math.prod(shape)} values for the shape {shape}, got {array.size}")
    return array.reshape(shape)


def _values(message: Any) -> np.ndarray[Any, Any]:
    import numpy as np

    for name in _LISTS:
        values = getattr(message, name, None)
        if values:
            return np.array(values, dtype=None if message.dtype == _TEXT else _dtype(message.dtype))
    if message.dtype == _TEXT:
        return np.array([], dtype=str)
    dtype = np.dtype(_dtype(message.dtype))
    if len(message.raw_data) % dtype.itemsize:
        raise InvalidArgumentError(
            f"array.raw_data: expected a multiple of {dtype.itemsize} bytes, got {len(message.raw_data)}"
        )
    return np.frombuffer(message.raw_data, dtype=dtype)


def _dtype(number: int) -> str:
    # Guessing the type would silently give wrong numbers.
    if number not in _DTYPES:
        raise InvalidArgumentError(f"array.dtype: expected one of {sorted([*_DTYPES, _TEXT])}, got {number}")
    return _DTYPES[number]


def _npy(data: bytes) -> np.ndarray[Any, Any]:
    import numpy as np

    # Not `np.load`: it accepts other formats too, and allocates as much memory as the header says.
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read_header(file)
        array = np.frombuffer(data[file.tell() :], dtype=dtype)
        return array.reshape(shape, order="F" if by_columns else "C")
    except (ValueError, SyntaxError, TokenError) as error:
        raise InvalidArgumentError(f"array.npy_data: {error}") from error
