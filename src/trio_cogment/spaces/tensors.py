"""NumPy arrays as the tensors of dm_env_rpc, and back.

Elements are in row-major order. dm_env_rpc has fewer types than NumPy: `int16`, `uint16` and `float16` are written as
the next wider type that it has. Elements that are messages (the type PROTO) are NumPy's objects, each an `Any`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.any_pb2 import Any as AnyMessage

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.spaces._array_forms import check_empty_shape
from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.base import described
from trio_cogment.spaces.errors import SpaceError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

#: More elements are refused where one element stands for all of a shape: the message does not pay for them.
MAX_ELEMENTS = 2**26
#: As in messages `Array`.
MAX_DIMENSIONS = 32


@dataclass(frozen=True, slots=True)
class TensorType:
    """A type of elements.

    Attributes:
        name: NumPy's name; `str` and `object` for strings and messages.
        number: in `TensorSpec`.
        payload: the field of `Tensor` with the elements.
        raw: the elements are bytes.
    """

    name: str
    number: int
    payload: str
    raw: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of the elements."""
        return np.dtype(self.name)

    @property
    def is_number(self) -> bool:
        """Whether its elements are numbers; only those have bounds."""
        return self.dtype.kind in "fiu"


TYPES = (
    TensorType("float32", pb.FLOAT, "floats"),
    TensorType("float64", pb.DOUBLE, "doubles"),
    TensorType("int8", pb.INT8, "int8s", raw=True),
    TensorType("int32", pb.INT32, "int32s"),
    TensorType("int64", pb.INT64, "int64s"),
    TensorType("uint8", pb.UINT8, "uint8s", raw=True),
    TensorType("uint32", pb.UINT32, "uint32s"),
    TensorType("uint64", pb.UINT64, "uint64s"),
    TensorType("bool", pb.BOOL, "bools"),
    TensorType("str", pb.STRING, "strings"),
    TensorType("object", pb.PROTO, "protos"),
)
BY_NAME = {row.name: row for row in TYPES}
BY_NUMBER = {row.number: row for row in TYPES}
BY_PAYLOAD = {row.payload: row for row in TYPES}
_WIDER = {"int16": "int32", "uint16": "int32", "float16": "float32"}


def type_for(dtype: np.dtype[Any]) -> TensorType:
    """Return the type that holds all elements of a type of NumPy's.

    Raises:
        SpaceError: there is none.
    """
    name = "str" if dtype.kind == "U" else dtype.name
    row = BY_NAME.get(_WIDER.get(name, name))
    if row is None:
        known = ", ".join([*BY_NAME, *_WIDER])
        raise SpaceError(f"dtype: expected one of {known}; got {dtype}")
    return row


def encode_tensor(value: ArrayLike) -> pb.Tensor:
    """Return an array, number, string, or a list of them, as a tensor.

    Raises:
        SpaceError: the type of the elements has no counterpart, or it is not an array.
    """
    tensor = pb.Tensor()
    fill_tensor(tensor, value)
    return tensor


def fill_tensor(tensor: pb.Tensor, value: ArrayLike) -> None:
    """Write an array into an empty tensor, which may be a part of another message; see `encode_tensor`."""
    if isinstance(value, np.ma.MaskedArray):
        raise SpaceError("expected an array, got a masked array: tensors cannot say which elements are masked")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise SpaceError(f"expected an array: {error}") from error
    row = type_for(array.dtype)
    write_elements(getattr(tensor, row.payload), row, array)
    tensor.shape.extend(array.shape)


def encode_text(text: str) -> pb.Tensor:
    """Return a string as a tensor; unlike NumPy's strings it keeps NUL characters at its end.

    Raises:
        SpaceError: UTF-8 cannot encode it.
    """
    tensor = pb.Tensor()
    _extend(tensor.strings, [text])
    return tensor


def write_elements(holder: Any, row: TensorType, array: NDArray[Any]) -> None:
    """Write the elements of an array into a message of one of the types `Tensor.*Array`."""
    if row.raw:
        holder.array = array.astype(row.dtype, copy=False).tobytes()
        return
    holder.SetInParent()  # an array without elements has a type all the same
    elements = array.ravel().tolist()
    if row.name == "object":
        for element in elements:
            if getattr(getattr(element, "DESCRIPTOR", None), "full_name", None) != AnyMessage.DESCRIPTOR.full_name:
                raise SpaceError(f"expected messages of the type google.protobuf.Any, got {described(element)}")
            # By fields: the class of another descriptor pool is another class.
            holder.array.add(type_url=element.type_url, value=element.value)
        return
    _extend(holder, elements)


def _extend(holder: Any, elements: Iterable[Any]) -> None:
    try:
        holder.array.extend(elements)
    except (UnicodeEncodeError, ValueError) as error:
        raise SpaceError(f"expected strings that UTF-8 can encode: {error}") from error


def read_elements(holder: Any, row: TensorType) -> NDArray[Any]:
    """Return the elements in a message of one of the types `Tensor.*Array`, as an array of one dimension."""
    if row.raw:
        return np.frombuffer(holder.array, row.dtype)
    if row.name == "object":
        array = np.empty(len(holder.array), object)
        array[:] = [AnyMessage(type_url=element.type_url, value=element.value) for element in holder.array]
        return array
    return np.array(list(holder.array), row.dtype)


def tensor_type(tensor: pb.Tensor) -> TensorType:
    """Return the type of a tensor's elements.

    Raises:
        SpaceError: it has none.
    """
    payload = tensor.WhichOneof("payload")
    if payload is None:
        raise SpaceError(f"expected elements in one of {', '.join(BY_PAYLOAD)}, but there are none")
    return BY_PAYLOAD[payload]


def decode_tensor(tensor: pb.Tensor) -> NDArray[Any]:
    """Return a tensor as an array, read-only where it shares the message's bytes or repeats one element.

    One element fills any shape; each negative dimension of it becomes 1. Of several elements, a negative dimension
    follows from their number.

    Raises:
        SpaceError: it has no elements, they do not fit the shape, the shape has more than one negative dimension, or
            one element stands for more than `MAX_ELEMENTS`.
    """
    row = tensor_type(tensor)
    elements = read_elements(getattr(tensor, row.payload), row)
    return in_shape(elements, shape_for(tensor.shape, len(elements)))


def in_shape(elements: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Return elements in a shape that they fit, without a copy; one element fills it."""
    if len(elements) == 1 and math.prod(shape) != 1:
        return np.broadcast_to(elements.reshape(()), tuple(shape))
    return elements.reshape(tuple(shape))


def shape_for(shape: Iterable[int], count: int, expected: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return a shape without negative dimensions.

    Args:
        shape: as it was received.
        count: of the elements.
        expected: the shape of the specification, of the same rank; there, a negative dimension is of any length.

    Raises:
        SpaceError: the elements do not fit it, or it has more than one negative dimension.
    """
    found = list(shape)
    if len(found) > MAX_DIMENSIONS:
        raise SpaceError(f"shape: expected at most {MAX_DIMENSIONS} dimensions, got {len(found)}")
    unknown = [position for position, length in enumerate(found) if length < 0]
    if len(unknown) > 1:
        raise SpaceError(f"shape: expected at most one negative dimension, got {found}")
    if unknown and count == 1:
        wanted = -1 if expected is None else expected[unknown[0]]
        found[unknown[0]] = max(wanted, 1) if wanted else 0
    elif unknown:
        rest = math.prod(length for length in found if length >= 0)
        if rest == 0 or count % rest:
            raise SpaceError(f"shape: {count} elements do not fit {found}")
        found[unknown[0]] = count // rest
    size = math.prod(found)
    if count not in (1, size):
        raise SpaceError(f"expected {size} elements for the shape {found}, got {count}")
    if count == 1 and size > MAX_ELEMENTS:
        raise SpaceError(f"shape: expected at most {MAX_ELEMENTS} elements where one stands for all, got {size}")
    check_empty_shape(found)
    return tuple(found)
