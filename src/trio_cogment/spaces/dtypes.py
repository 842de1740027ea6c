"""The types of an array's elements, in one table: the message's number, NumPy's name, size and range.

This module does not import NumPy. Other protocols that carry arrays have numbers of their own; they are added beside
these and refer to the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces.errors import SpaceError


@dataclass(frozen=True, slots=True)
class DType:
    """A type of elements.

    Attributes:
        name: NumPy's name.
        number: in the message `Array`.
        code: NumPy's array protocol type string, little-endian.
        size: of one element in bytes; 0 if it is not fixed.
    """

    name: str
    number: pb.DType
    code: str
    size: int

    @property
    def kind(self) -> str:
        """`f` for floats, `i` and `u` for integers, `b` for bool, `U` for strings; as NumPy says."""
        return self.code[1]


DTYPES = (
    DType("float16", pb.DTYPE_FLOAT16, "<f2", 2),
    DType("float32", pb.DTYPE_FLOAT32, "<f4", 4),
    DType("float64", pb.DTYPE_FLOAT64, "<f8", 8),
    DType("int8", pb.DTYPE_INT8, "|i1", 1),
    DType("int16", pb.DTYPE_INT16, "<i2", 2),
    DType("int32", pb.DTYPE_INT32, "<i4", 4),
    DType("int64", pb.DTYPE_INT64, "<i8", 8),
    DType("uint8", pb.DTYPE_UINT8, "|u1", 1),
    DType("uint16", pb.DTYPE_UINT16, "<u2", 2),
    DType("uint32", pb.DTYPE_UINT32, "<u4", 4),
    DType("uint64", pb.DTYPE_UINT64, "<u8", 8),
    DType("bool", pb.DTYPE_BOOL, "|b1", 1),
    DType("str", pb.DTYPE_STRING, "<U", 0),
)
BY_NAME = {row.name: row for row in DTYPES}
BY_NUMBER = {int(row.number): row for row in DTYPES}
#: The numeric ones by kind and size, which is all that matters: NumPy has several names for some of them.
BY_KIND = {(row.kind, row.size): row for row in DTYPES}


def dtype_of_number(number: int) -> DType:
    """Return the type that has this number in messages.

    Raises:
        SpaceError: there is none. Guessing one would silently give wrong elements.
    """
    row = BY_NUMBER.get(number)
    if row is None:
        known = ", ".join(f"{number} ({row.name})" for number, row in sorted(BY_NUMBER.items()))
        raise SpaceError(f"dtype: expected one of {known}; got {number}")
    return row


def dtype_of_kind(kind: str, size: int, described: object) -> DType:
    """Return the type of a kind and size, as those of a NumPy type.

    Raises:
        SpaceError: messages have none for it.
    """
    row = BY_KIND.get((kind, 0 if kind == "U" else size))
    if row is None:
        known = ", ".join(row.name for row in DTYPES)
        raise SpaceError(f"dtype: expected one of {known}; got {described}")
    return row
