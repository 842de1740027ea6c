"""NumPy arrays as messages `Array`, and back.

An array is written as its bytes: little-endian, in C order; an array of strings as a list of strings. Everything that
cogment-lab and cogment-verse write is read, whatever messages of theirs it is in: only names of fields matter.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces._array_forms import (
    array_of_lists,
    array_of_npy,
    array_of_text_bytes,
    check_empty_shape,
    strings,
    unreal_bools,
)
from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.dtypes import BY_NUMBER, DTYPES, dtype_of_kind, dtype_of_number
from trio_cogment.spaces.errors import SpaceError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

#: More are refused: NumPy 1 has room for no more.
MAX_DIMENSIONS = 32
_MAX_LENGTH = 2**32 - 1

#: For the common case: NumPy's type string of little-endian elements -> number in messages.
DTYPE_NUMBERS = {row.code: row.number for row in DTYPES if row.size}
#: The other way round, with the size of an element.
_NUMPY = {int(row.number): (np.dtype(row.code), row.size) for row in DTYPES if row.size}


def encode_array(array: ArrayLike) -> pb.Array:
    """Return an array as a message.

    The array may have any byte order and memory layout. Python's numbers, strings and lists of them count as the arrays
    that NumPy makes of them.

    Raises:
        SpaceError: the type of the elements has no counterpart, some are masked, or it is not an array.
    """
    message = pb.Array()
    fill_array(message, array)
    return message


def fill_array(message: pb.Array, array: ArrayLike) -> None:
    """Write an array into an empty message, which may be a part of another: that saves a copy; see `encode_array`."""
    if type(array) is not np.ndarray:
        array = _as_array(array)
    number = DTYPE_NUMBERS.get(array.dtype.str)
    if number is None:
        _fill_uncommon(message, array)
        return
    message.dtype = number
    try:
        message.shape.extend(array.shape)
    except ValueError:
        raise _too_long(array) from None
    message.raw_data = array.tobytes()


def fill_scalar(message: pb.Array, scalar: np.generic) -> None:
    """Write a NumPy scalar into an empty message; it is a scalar again when it is decoded; see `fill_array`."""
    fill_array(message, np.asarray(scalar))
    message.scalar = True


def decode_array(message: Any, *, copy: bool = False) -> NDArray[Any]:
    """Return a message as an array.

    Args:
        message: ours, or another with the same names of fields.
        copy: return an array that can be written to. Otherwise it is read-only, and shares the message's bytes if they
            are the elements.

    Raises:
        SpaceError: the type or the form of the content is unknown, or the content does not match shape and type.
    """
    shape = tuple(message.shape)
    known = _NUMPY.get(message.dtype)
    raw = message.raw_data
    if raw and known is not None:
        dtype, size = known
        if len(shape) > MAX_DIMENSIONS:
            raise _too_many(len(shape))
        if len(raw) != (expected := math.prod(shape) * size):
            raise SpaceError(f"raw_data: expected {expected} bytes for {dtype.name} {shape}, got {len(raw)}")
        array = np.frombuffer(raw, dtype).reshape(shape)
        if dtype.kind == "b" and unreal_bools(array):
            raise SpaceError("raw_data: expected 0 or 1 for each bool")
    else:
        array = _decode_uncommon(message, shape, raw)
        array.flags.writeable = False
    return array.astype(array.dtype.newbyteorder("=")) if copy else array


def decode_number(message: Any, *, copy: bool = False) -> Any:
    """Return a message as the NumPy scalar that it was made of, or else as an array; see `decode_array`."""
    array = decode_array(message, copy=copy)
    if not getattr(message, "scalar", False):
        return array
    if array.shape != ():
        raise SpaceError(f"shape: expected no dimensions for a scalar, got {array.shape}")
    return array[()]


def _as_array(array: ArrayLike) -> NDArray[Any]:
    if isinstance(array, np.ma.MaskedArray):
        raise SpaceError("expected an array, got a masked array: messages cannot say which elements are masked")
    try:
        return np.asarray(array)
    except (ValueError, TypeError, OverflowError) as error:
        raise SpaceError(f"expected an array: {error}") from error


def _fill_uncommon(message: pb.Array, array: NDArray[Any]) -> None:
    row = dtype_of_kind(array.dtype.kind, array.dtype.itemsize, array.dtype)
    if row.size:
        fill_array(message, array.astype(row.code))
        return
    message.dtype = row.number
    try:
        message.string_data.extend(array.ravel().tolist())
    except UnicodeEncodeError as error:
        raise SpaceError(f"expected strings that UTF-8 can encode: {error.reason}") from error
    try:
        message.shape.extend(array.shape)
    except ValueError:
        raise _too_long(array) from None


def _too_long(array: NDArray[Any]) -> SpaceError:
    # Only an array without elements can have a dimension beyond 32 bits and be here.
    return SpaceError(f"shape: expected at most {_MAX_LENGTH} in each dimension, got {array.shape}")


def _decode_uncommon(message: Any, shape: tuple[int, ...], raw: bytes) -> NDArray[Any]:
    if len(shape) > MAX_DIMENSIONS:
        raise _too_many(len(shape))
    check_empty_shape(shape)
    if not raw and message.npy_data:
        # The file says itself what it holds: cogment-lab writes an unknown type for many that NumPy has.
        array = array_of_npy(message.npy_data)
        row = BY_NUMBER.get(message.dtype)
        found = dtype_of_kind(array.dtype.kind, array.dtype.itemsize, array.dtype)
        if message.dtype != pb.DTYPE_UNKNOWN and row is not found:
            raise SpaceError(
                f"npy_data: expected {row.name if row else message.dtype}, as dtype says; got {found.name}"
            )
        if array.shape != shape:
            raise SpaceError(f"npy_data: expected the shape {shape}, got {array.shape}")
        return array
    row = dtype_of_number(message.dtype)
    if raw:
        array = array_of_text_bytes(raw, math.prod(shape))
    else:
        array = strings(getattr(message, "string_data", ())) if row.kind == "U" else array_of_lists(message, row)
    if array.size != math.prod(shape):
        raise SpaceError(f"expected {math.prod(shape)} elements for the shape {shape}, got {array.size}")
    return array.reshape(shape)


def _too_many(dimensions: int) -> SpaceError:
    return SpaceError(f"shape: expected at most {MAX_DIMENSIONS} dimensions, got {dimensions}")
