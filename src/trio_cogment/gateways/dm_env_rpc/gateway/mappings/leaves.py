"""Single fields of messages as tensors: numbers, strings, lists, bytes, arrays, and messages within an `Any`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import BytesValue

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.sides import TYPE_URLS, content_of
from trio_cogment.sdk.spec.fields import is_entry
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.arrays import decode_array, fill_array
from trio_cogment.spaces.tensor_specs import TensorSpec
from trio_cogment.spaces.tensors import in_shape, write_elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: One element stands for no more than this many where a client chooses the length.
MAX_FILLED = 2**16
ANY = AnyMessage.DESCRIPTOR.full_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A field, or a message, that is one tensor.

    Attributes:
        spec: of the tensor.
        field: the name of the field.
        parents: the names of the fields that lead to its message, the outermost first.
        arms: the `oneof`s that it is in, with the fields that it is in there.
    """

    spec: TensorSpec
    field: str
    parents: tuple[str, ...] = ()
    arms: tuple[tuple[str, str], ...] = ()

    def read(self, root: Any) -> pb.Tensor:
        """Return the tensor of a message.

        Raises:
            SpaceError: the field does not fit the specification.
        """
        tensor = pb.Tensor()
        self._read(reduce(getattr, self.parents, root), tensor)
        return tensor

    def write(self, root: Any, tensor: pb.Tensor) -> None:
        """Set the field of a message.

        Raises:
            SpaceError: the tensor is not what the specification says.
        """
        array = self.spec.check(tensor)
        if self.spec.type.name == "str":
            # NumPy's strings have no null characters at their ends.
            texts = np.empty(len(tensor.strings.array), object)
            texts[:] = list(tensor.strings.array)
            array = in_shape(texts, array.shape)
        if array.size > MAX_FILLED and min(self.spec.shape, default=0) < 0 and 0 in array.strides:
            expected = f"at most {MAX_FILLED} elements where one stands for all"
            raise SpaceError(f"shape: expected {expected}, got {array.size}", (), self.spec.name)
        message = root
        for name in self.parents:
            message = getattr(message, name)
            message.SetInParent()
        try:
            self._write(message, array)
        except (ValueError, OverflowError):
            raise SpaceError("expected what the field can hold", (), self.spec.name) from None

    def _read(self, message: Any, tensor: pb.Tensor) -> None:
        raise NotImplementedError

    def _write(self, message: Any, array: NDArray[Any]) -> None:
        raise NotImplementedError

    def _put(self, tensor: pb.Tensor, elements: NDArray[Any]) -> None:
        """Write elements in the shape of the specification; none at all are zeros where the shape is fixed."""
        spec = self.spec
        if not elements.size and min(spec.shape, default=0) >= 0:
            elements = _zeros(spec)
        try:
            shaped = elements.reshape(spec.shape)
        except ValueError:
            raise SpaceError(
                f"expected the shape {list(spec.shape)}, got {elements.size} elements", (), spec.name
            ) from None
        row = spec.type
        if row.is_number and shaped.dtype != row.dtype:
            shaped = self._narrowed(shaped)
        tensor.shape.extend(shaped.shape)
        write_elements(getattr(tensor, row.payload), row, shaped)

    def _narrowed(self, array: NDArray[Any]) -> NDArray[Any]:
        dtype = self.spec.type.dtype
        narrow = array.astype(dtype)
        if dtype.kind in "iu" and not (narrow == array).all():
            value = array[narrow != array].flat[0]
            raise SpaceError(f"expected values of the type {dtype}, got {value}", (), self.spec.name)
        return narrow


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarLeaf(Leaf):
    """A field with one number, string or value of an enum.

    Attributes:
        choices: the numbers of the enum, where they are not all between its bounds.
    """

    choices: frozenset[int] = frozenset()

    def _read(self, message: Any, tensor: pb.Tensor) -> None:
        value: Any = getattr(message, self.field)
        row = self.spec.type
        if row.raw:
            self._put(tensor, np.array(value))
        else:
            getattr(tensor, row.payload).array.append(value)

    def _write(self, message: Any, array: NDArray[Any]) -> None:
        value: Any = array.item()
        _check_choices([value], self.choices, self.spec)
        setattr(message, self.field, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLeaf(Leaf):
    """A list of numbers, strings or values of an enum.

    Attributes:
        dtype: of the elements in the message.
        choices: see `ScalarLeaf`.
    """

    dtype: str
    choices: frozenset[int] = frozenset()

    def _read(self, message: Any, tensor: pb.Tensor) -> None:
        elements = list(getattr(message, self.field))
        if self.dtype == "str":
            texts = np.empty(len(elements), object)
            texts[:] = elements
            self._put(tensor, texts)
        else:
            self._put(tensor, np.array(elements, self.dtype))

    def _write(self, message: Any, array: NDArray[Any]) -> None:
        elements = array.ravel().tolist()
        _check_choices(elements, self.choices, self.spec)
        getattr(message, self.field).extend(elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesLeaf(Leaf):
    """Bytes, which are the elements of an array: little-endian, in C order."""

    def _read(self, message: Any, tensor: pb.Tensor) -> None:
        dtype = self.spec.type.dtype.newbyteorder("<")
        content = getattr(message, self.field)
        if len(content) % dtype.itemsize:
            raise SpaceError(
                f"expected elements of {dtype.itemsize} bytes, got {len(content)} bytes", (), self.spec.name
            )
        self._put(tensor, np.frombuffer(content, dtype).astype(self.spec.type.dtype))

    def _write(self, message: Any, array: NDArray[Any]) -> None:
        setattr(message, self.field, array.astype(array.dtype.newbyteorder("<")).tobytes())


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayLeaf(Leaf):
    """A message `Array` of cogment-lab, cogment-verse or this package."""

    def _read(self, message: Any, tensor: pb.Tensor) -> None:
        empty = not message.HasField(self.field)
        array = np.empty(0) if empty else decode_array(getattr(message, self.field))
        if not empty and len(array.shape) != len(self.spec.shape):
            expected = f"{len(self.spec.shape)} dimensions"
            raise SpaceError(f"expected {expected}, got the shape {list(array.shape)}", (), self.spec.name)
        self._put(tensor, array)

    def _write(self, message: Any, array: NDArray[Any]) -> None:
        fill_array(getattr(message, self.field), array)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLeaf(Leaf):
    """A message, or a list of messages, each within an `Any`.

    Attributes:
        kind: the type of the messages; `google.protobuf.Any` itself is not wrapped once more.
        is_list: there are several; so are the entries of a map.
    """

    kind: Descriptor
    is_list: bool = False

    def _read(self, message: Any, tensor: pb.Tensor) -> None:
        if self.is_list:
            found = self._messages(message)
            tensor.shape.append(len(found))
        else:
            found = [getattr(message, self.field)]
        array = tensor.protos.array
        tensor.protos.SetInParent()
        for each in found:
            if self.kind.full_name == ANY:
                array.add(type_url=each.type_url, value=each.value)
            else:
                array.add(type_url=TYPE_URLS + self.kind.full_name, value=each.SerializeToString(deterministic=True))

    def _messages(self, message: Any) -> list[Any]:
        value = getattr(message, self.field)
        if not is_entry(self.kind):
            return list(value)
        is_message = self.kind.fields_by_name["value"].message_type is not None
        make: Any = GetMessageClass(self.kind)
        entries = []
        for key in sorted(value):
            entry = make(key=key)
            if is_message:
                entry.value.CopyFrom(value[key])
            else:
                entry.value = value[key]
            entries.append(entry)
        return entries

    def _write(self, message: Any, array: NDArray[Any]) -> None:
        for packed in array.ravel().tolist() if self.is_list else [array[()]]:
            self._write_one(message, packed)

    def _write_one(self, message: Any, packed: Any) -> None:
        field = getattr(message, self.field)
        if self.kind.full_name == ANY:
            target = field.add() if self.is_list else field
            target.type_url, target.value = packed.type_url, packed.value
            return
        content = content_of(packed, GetMessageClass(self.kind), self.spec.name)
        if not is_entry(self.kind):
            target = field.add() if self.is_list else field
            target.SetInParent()
            target.MergeFromString(content)
            return
        entry: Any = GetMessageClass(self.kind).FromString(content)
        if self.kind.fields_by_name["value"].message_type is not None:
            field[entry.key].CopyFrom(entry.value)
        else:
            field[entry.key] = entry.value


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesListLeaf(Leaf):
    """A list of bytes, each within an `Any` with a `google.protobuf.BytesValue`."""

    def _read(self, message: Any, tensor: pb.Tensor) -> None:
        found = getattr(message, self.field)
        tensor.shape.append(len(found))
        tensor.protos.SetInParent()
        for content in found:
            tensor.protos.array.add().Pack(BytesValue(value=content))

    def _write(self, message: Any, array: NDArray[Any]) -> None:
        for packed in array.ravel().tolist():
            content = content_of(packed, BytesValue, self.spec.name)
            getattr(message, self.field).append(BytesValue.FromString(content).value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThereLeaf(Leaf):
    """Whether a message without fields is there."""

    def _read(self, message: Any, tensor: pb.Tensor) -> None:
        tensor.bools.array.append(message.HasField(self.field))

    def _write(self, message: Any, array: NDArray[Any]) -> None:
        if array[()]:
            getattr(message, self.field).SetInParent()


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceLeaf(ThereLeaf):
    """Whether a field is there, beside the tensors of its value."""


def _zeros(spec: TensorSpec) -> NDArray[Any]:
    """Return what stands for nothing: zeros within the bounds, or empty strings."""
    if not spec.type.is_number:
        return np.full(
            spec.shape, "" if spec.type.name == "str" else False, object if spec.type.name == "str" else bool
        )
    zeros = np.zeros(spec.shape, spec.type.dtype)
    return np.clip(zeros, spec.minimum, spec.maximum) if (spec.minimum, spec.maximum) != (None, None) else zeros


def _check_choices(values: Iterable[int], choices: frozenset[int], spec: TensorSpec) -> None:
    if choices:
        for value in values:
            if value not in choices:
                expected = ", ".join(map(str, sorted(choices)))
                raise SpaceError(f"expected one of {expected}; got {value}", (), spec.name)
