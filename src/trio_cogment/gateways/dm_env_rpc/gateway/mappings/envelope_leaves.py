"""Arrays within observations and actions of `trio_cogment.spaces` as tensors, from bytes to bytes.

Tensors of most types have their elements in one piece, as arrays in messages have; so they are copied, and no array of
NumPy's is made. What does not have the form that its space leads to expect takes the way of `SpaceTensors`.
"""

from __future__ import annotations

import struct

import numpy as np

from trio_cogment.api import spaces_pb2
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.arrays import encode_array
from trio_cogment.spaces.base import ArraySpace, Space, rounded
from trio_cogment.spaces.composite import Dict, Tuple
from trio_cogment.spaces.errors import Path
from trio_cogment.spaces.forms import constant_parts
from trio_cogment.spaces.tensor_specs import TensorSpec
from trio_cogment.spaces.tensors import encode_tensor

#: Of these types the message of a tensor has the elements in one piece, little-endian.
_IN_ONE_PIECE = frozenset({"float32", "float64", "int8", "uint8"})
#: Of one element, by NumPy's names.
_FORMATS = {"int32": "<i", "uint32": "<I", "int64": "<q", "uint64": "<Q", "float32": "<f", "float64": "<d"}


class ArrayReader:
    """Reads an array of observations into tensors.

    Args:
        space: of the observations.
        path: of the array.
        leaf: its space; the array has elements.
        spec: of its tensor.
    """

    def __init__(self, space: Space, path: Path, leaf: ArraySpace, spec: TensorSpec) -> None:
        self._way = _way(space, path)
        array = encode_array(np.zeros(leaf.shape, leaf.dtype))
        self._dtype, self._shape, self._size = array.dtype, list(leaf.shape), len(array.raw_data)
        self._row, self._numpy = spec.type, leaf.dtype
        self._parts: list[bytes] | None = None
        if spec.type.name in _IN_ONE_PIECE and spec.type.dtype == leaf.dtype:
            filled = (np.frombuffer(byte * self._size, leaf.dtype).reshape(leaf.shape) for byte in (b"\x00", b"\x01"))
            zeros, ones = (encode_tensor(each).SerializeToString() for each in filled)
            self._parts = constant_parts(zeros, ones, [self._size])

    def read(self, message: spaces_pb2.Observation, tensor: pb.Tensor) -> bool:
        """Write the array of an observation into an empty tensor; False if it has another form."""
        array = self._found(message)
        if array is None:
            return False
        content = array.raw_data
        if len(content) != self._size or array.dtype != self._dtype or array.shape != self._shape:
            return False
        if self._parts is not None:
            before, behind = self._parts
            tensor.MergeFromString(before + content + behind)
        else:
            holder = getattr(tensor, self._row.payload)
            holder.SetInParent()
            holder.array.extend(np.frombuffer(content, self._numpy).tolist())
            tensor.shape.extend(self._shape)
        return True

    def _found(self, message: spaces_pb2.Observation) -> spaces_pb2.Array | None:
        if not self._way:
            return message.value
        value = message.nested
        for key, position in self._way:
            try:
                if key is None:
                    value = value.tuple.items[position]
                    continue
                field = value.dict.fields[position]
            except IndexError:
                return None
            if field.key != key:
                return None
            value = field.value
        return value.array


def _way(space: Space, path: Path) -> list[tuple[str | None, int]]:
    """Return the keys, None in a tuple, and the positions that lead to a part."""
    found: list[tuple[str | None, int]] = []
    for step in path:
        if isinstance(space, Dict) and isinstance(step, str):
            found.append((step, list(space.spaces).index(step)))
            space = space.spaces[step]
        else:
            assert isinstance(space, Tuple)
            assert isinstance(step, int)
            found.append((None, step))
            space = space.spaces[step]
    return found


class ElementsWriter:
    """Makes the elements of an array in an action of a tensor.

    Args:
        leaf: the space of the array.
        spec: of the tensor.
    """

    def __init__(self, leaf: ArraySpace, spec: TensorSpec) -> None:
        self._leaf, self._spec = leaf, spec
        self._payload = spec.type.payload
        self._format: struct.Struct | None = None
        self._one_byte = False
        if leaf.shape == () and leaf.dtype == spec.type.dtype:
            self._low, self._high = (np.asarray(bound).item() for bound in leaf.bounds())
            self._one_byte = spec.type.raw
            self._signed = leaf.dtype.kind == "i"
            if spec.type.name in _FORMATS:
                self._format = struct.Struct(_FORMATS[spec.type.name])

    def elements(self, tensor: pb.Tensor) -> bytes:
        """Return the elements.

        Raises:
            SpaceError: the tensor is not what its specification says.
        """
        if (self._format is not None or self._one_byte) and not tensor.shape:
            array = getattr(tensor, self._payload).array
            if len(array) == 1:
                value = array[0]
                if self._one_byte and self._signed and value > 127:
                    value -= 256
                # NaN is not within any bounds.
                if self._low <= value <= self._high:
                    return array if self._format is None else self._format.pack(value)
        found = self._spec.check(tensor)
        leaf = self._leaf
        found = rounded(found, leaf.row) if leaf.row.kind == "f" else found.astype(leaf.dtype)
        if not leaf.within(found):
            raise SpaceError("expected a value of the space", (), self._spec.name)
        return found.tobytes()
