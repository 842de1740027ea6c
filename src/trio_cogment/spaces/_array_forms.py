"""The forms of an array's elements that are read but not written, and arrays of strings."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.dtypes import DType, dtype_of_kind
from trio_cogment.spaces.errors import SpaceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: NumPy gives each string of an array the room of the longest: a short message could ask for any amount of memory.
MAX_STRINGS_BYTES = 2**26
#: A shape without elements, because one length is 0, may have other lengths whose product is this: as lists within
#: lists it would not be small.
LARGEST_EMPTY_SHAPE = 2**20
#: The lists of single numbers, by the kinds of elements that may be in them.
_LISTS = {
    "f": ("double_data",),
    "i": ("int32_data", "int64_data", "uint32_data"),
    "u": ("int32_data", "int64_data", "uint32_data"),
    "b": ("int32_data", "int64_data", "uint32_data"),
}
_ALL_LISTS = ("double_data", "int32_data", "int64_data", "uint32_data", "string_data")
_CHARACTER_BYTES = 4
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


def check_empty_shape(shape: Sequence[int]) -> None:
    """Refuse a shape that has no elements and yet is large.

    Raises:
        SpaceError: it is.
    """
    if 0 in shape and math.prod(length for length in shape if length) > LARGEST_EMPTY_SHAPE:
        raise SpaceError(
            f"shape: expected lengths whose product is at most {LARGEST_EMPTY_SHAPE} besides those of 0, got {shape}"
        )


def unreal_bools(array: NDArray[Any]) -> bool:
    """Whether some bytes of an array of bools are neither 0 nor 1: NumPy would count them as neither."""
    return bool(array.size) and int(array.view(np.uint8).max()) > 1


def strings(texts: Sequence[str]) -> NDArray[Any]:
    """Return an array with one dimension of these strings.

    Raises:
        SpaceError: it would take too much memory, or a string ends with null characters, which NumPy drops.
    """
    longest = max(map(len, texts), default=0)
    size = len(texts) * longest * _CHARACTER_BYTES
    if size > MAX_STRINGS_BYTES:
        raise SpaceError(
            f"string_data: expected {MAX_STRINGS_BYTES} bytes at most where each string has the room of the longest, "
            f"got {len(texts)} strings of up to {longest} characters"
        )
    if any(text.endswith("\0") for text in texts):
        raise SpaceError("string_data: expected strings that do not end with a null character")
    return np.array(list(texts), dtype=f"<U{max(longest, 1)}")


def array_of_text_bytes(raw: bytes, count: int) -> NDArray[Any]:
    """Return an array with one dimension of strings that came as NumPy has them in memory.

    Raises:
        SpaceError: the bytes are not those of this many strings.
    """
    if not count or len(raw) % (count * _CHARACTER_BYTES):
        raise SpaceError(f"raw_data: expected a multiple of {_CHARACTER_BYTES} bytes for each string, got {len(raw)}")
    array = np.frombuffer(raw, f"<U{len(raw) // (count * _CHARACTER_BYTES)}")
    _check_characters(np.frombuffer(raw, "<u4"), "raw_data")
    return array


def _check_characters(codes: NDArray[Any], field: str) -> None:
    first, last = _SURROGATES
    if codes.size and (codes.max() > _LAST_CHARACTER or bool(((codes >= first) & (codes <= last)).any())):
        raise SpaceError(f"{field}: expected characters of Unicode")


def array_of_npy(data: bytes) -> NDArray[Any]:
    """Return the array that a file in NumPy's format NPY holds.

    Raises:
        SpaceError: it is no such file, is cut off, or its elements are of a type that messages do not have.
    """
    # Not `np.load`: it accepts other formats too, and allocates as much memory as the header says.
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read_header(file)
        row = dtype_of_kind(dtype.kind, dtype.itemsize, dtype)
        array: NDArray[Any] = np.frombuffer(data[file.tell() :], dtype=dtype)
        array = array.reshape(shape, order="F" if by_columns else "C")
    except SpaceError as error:
        raise SpaceError(f"npy_data: {error.reason}") from None
    except (ValueError, TypeError, OverflowError, SyntaxError, TokenError, RecursionError, Warning) as error:
        # Which of them NumPy raises for a header that makes no sense depends on the nonsense.
        raise SpaceError(f"npy_data: {error}") from error
    if row.kind == "b" and unreal_bools(np.ascontiguousarray(array)):
        raise SpaceError("npy_data: expected 0 or 1 for each bool")
    if row.kind == "U":
        array = array.astype(array.dtype.newbyteorder("<"))
        _check_characters(np.frombuffer(array.tobytes(), "<u4"), "npy_data")
    elif row.size > 1:
        array = array.astype(row.code, copy=False)
    return array


def array_of_lists(message: Any, row: DType) -> NDArray[Any]:
    """Return an array with one dimension of the numbers in one of a message's lists.

    Raises:
        SpaceError: they are in a list that is not for this type, or are beyond its range.
    """
    filled = [name for name in _ALL_LISTS if getattr(message, name, None)]
    if not filled:
        return np.empty(0, row.code)
    name = filled[0]
    if name not in _LISTS[row.kind]:
        raise SpaceError(f"{name}: expected the elements of {row.name} in raw_data or {_LISTS[row.kind][0]}")
    # A list of Python integers may be of a type that has room for all of them, whatever the message's.
    values = np.array(getattr(message, name), dtype=np.float64 if row.kind == "f" else np.int64)
    if row.kind == "f":
        with np.errstate(over="ignore"):
            array = values.astype(row.code)
        good = not (np.isinf(array) & np.isfinite(values)).any()
    else:
        low, high = (0, 1) if row.kind == "b" else (int(np.iinfo(row.code).min), int(np.iinfo(row.code).max))
        good = low <= int(values.min()) and int(values.max()) <= high
        array = values.astype(row.code)
    if not good:
        raise SpaceError(f"{name}: expected numbers within the range of {row.name}")
    return array
