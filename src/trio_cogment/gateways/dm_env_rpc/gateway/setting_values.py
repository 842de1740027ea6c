"""Values of settings: tensors as numbers, texts and bytes, wherever nothing is lost.

Clients write Python's numbers as INT64 and DOUBLE, whatever the server has in mind. So every type of numbers is taken
that holds the very value; only a DOUBLE for a field of 32 bits is rounded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensors import decode_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: One element may stand for all of a shape, for which the message does not pay.
MAX_ELEMENTS = 2**20
_LONGEST_SHOWN = 100
_LARGEST_FLOAT = 3.4028235677973366e38  # from here on, rounding to 32 bits gives infinity


class NotThatError(ValueError):
    """A value is not of the kind that is needed; the text says which is."""


def refused(name: str, expected: object, value: object) -> InvalidArgumentError:
    """Return the error for a setting that cannot be read.

    Args:
        name: of the setting.
        expected: what it should be.
        value: what it is: an array, or a text.
    """
    return InvalidArgumentError(f"setting {name!r}: expected {expected}, got {described(value)}")


def array_of(name: str, tensor: pb.Tensor) -> NDArray[Any]:
    """Return the array that a setting has.

    Raises:
        InvalidArgumentError: it is not a tensor that makes sense, or too large.
    """
    try:
        array = decode_tensor(tensor)
    except SpaceError as error:
        raise InvalidArgumentError(str(error.of(f"setting {name!r}"))) from None
    if array.size > MAX_ELEMENTS:  # without elements, a shape has its own limit
        raise InvalidArgumentError(f"setting {name!r}: expected at most {MAX_ELEMENTS} elements, got {array.size}")
    return array


def text(value: NDArray[Any]) -> str:
    """Return a scalar STRING.

    Raises:
        NotThatError: it is none; so it is with the other functions.
    """
    if value.ndim or value.dtype.kind != "U":
        raise NotThatError("a string")
    return str(value[()])


def integer(value: NDArray[Any], least: int, most: int) -> int:
    """Return a scalar number that is an integer within limits, which belong to them."""
    if not value.ndim and value.dtype.kind in "iuf":
        number = value.item()
        if math.isfinite(number) and number == int(number) and least <= int(number) <= most:
            return int(number)
    raise NotThatError(f"an integer from {least} to {most}")


def number(value: NDArray[Any], *, bits: int = 64) -> float:
    """Return a scalar number as one of floating point that has this many bits."""
    if value.ndim or value.dtype.kind not in "iuf":
        raise NotThatError("a number")
    found = value.item()
    if isinstance(found, int):
        digits = 53 if bits == 64 else 24
        # What is left of an integer without the zeros at its end has to fit the mantissa.
        if found and (abs(found) // (found & -found)).bit_length() > digits:
            raise NotThatError(f"a number that a floating-point number of {bits} bits can be")
        return float(found)
    if bits == 32 and math.isfinite(found) and abs(found) >= _LARGEST_FLOAT:
        raise NotThatError("a number of 32 bits")
    return float(found)


def boolean(value: NDArray[Any]) -> bool:
    """Return a scalar BOOL, or the numbers 0 and 1 as one."""
    if not value.ndim and value.dtype.kind in "biuf" and value.item() in (0, 1):
        return bool(value.item())
    raise NotThatError("true or false")


def content(value: NDArray[Any]) -> bytes:
    """Return a vector of UINT8 as bytes."""
    if value.ndim == 1 and (value.dtype.name == "uint8" or not value.size):
        return value.tobytes()
    raise NotThatError("a vector of UINT8")


def plain(value: NDArray[Any]) -> Any:
    """Return a value as Python has it: scalars that Python knows, lists of strings, and arrays of everything else."""
    if value.dtype.kind == "O":
        raise NotThatError("numbers or strings")
    if value.dtype.kind == "U":
        return value.tolist()
    if value.ndim:
        return value
    return value.item() if value.dtype.name in ("int64", "float64", "bool") else value[()]


def described(value: object) -> str:
    """Return the description of a value for errors: of an array, or anything else."""
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", ())
    if dtype is None:
        return _shortened(repr(value))
    if shape:
        return f"an array of {dtype.name if dtype.kind != 'U' else 'strings'} with the shape {list(shape)}"
    return "a message" if dtype.kind == "O" else _shortened(repr(value.item()))  # type: ignore[attr-defined]  # an array


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
