"""Tensor types of the fields of a message, by type and annotation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import FieldAnnotation
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.leaves import (
    ArrayLeaf,
    BytesLeaf,
    BytesListLeaf,
    Leaf,
    ListLeaf,
    PackedLeaf,
    PresenceLeaf,
    ScalarLeaf,
    ThereLeaf,
)
from trio_cogment.sdk.spec.fields import by_type, enum_numbers
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensor_specs import TensorSpec
from trio_cogment.spaces.tensors import MAX_ELEMENTS

_F = FieldDescriptor
#: The types of fields as types of tensors.
_DTYPES = {
    **by_type(
        text="str",
        content="uint8",
        boolean="bool",
        number=lambda bits: f"float{bits}",
        integer=lambda integers: f"{'' if integers.signed else 'u'}int{integers.bits}",
    ),
    _F.TYPE_ENUM: "int32",
}
_INTEGERS = ("int8", "uint8", "int32", "uint32", "int64", "uint64")
_FLOATS = ("float32", "float64")
#: What a field of a type may be instead.
_CHANGES = {name: names for names in (_INTEGERS, _FLOATS) for name in names}
#: The fields by which a message `Array` of cogment-lab, cogment-verse and this package is known.
_ARRAY_FIELDS = {
    "dtype": (1, _F.TYPE_ENUM, False),
    "shape": (2, _F.TYPE_UINT32, True),
    "raw_data": (3, _F.TYPE_BYTES, False),
}


def leaf_of(
    field: FieldDescriptor,
    name: str,
    note: FieldAnnotation | None,
    parents: tuple[str, ...],
    arms: tuple[tuple[str, str], ...],
) -> Leaf:
    """Return the tensor of a field that is not a message, or is one that stays whole.

    Raises:
        SpaceError: the annotation does not go with the field.
    """
    place: dict[str, Any] = {"field": field.name, "parents": parents, "arms": arms}
    note = note or FieldAnnotation()
    if field.message_type is not None:
        if is_array(field) and note.dtype is not None:
            return ArrayLeaf(spec=_spec(name, note.dtype, note.shape or (-1,), note), **place)
        _no_more(name, note)
        spec = TensorSpec.of(name, "object", (-1,) if field.is_repeated else ())
        return PackedLeaf(spec=spec, kind=field.message_type, is_list=field.is_repeated, **place)
    if field.type == FieldDescriptor.TYPE_BYTES and field.is_repeated:
        _no_more(name, note)
        return BytesListLeaf(spec=TensorSpec.of(name, "object", (-1,)), **place)
    if field.type == FieldDescriptor.TYPE_BYTES:
        if note.dtype in ("str", "object"):
            raise SpaceError("dtype: expected numbers or bool, which have a size in bytes", (), name)
        return BytesLeaf(spec=_spec(name, note.dtype or "uint8", _shape(note), note), **place)
    usual = _DTYPES[field.type]
    dtype = note.dtype or usual
    if dtype != usual and dtype not in _CHANGES.get(usual, ()):
        expected = ", ".join(_CHANGES.get(usual, (usual,)))
        raise SpaceError(f"dtype: expected one of {expected}; got {dtype!r}", (), name)
    bounds: tuple[int | None, int | None] = (None, None)
    choices = frozenset[int]()
    if field.enum_type is not None:
        bounds, choices = _of_enum(field.enum_type, note)
    if not field.is_repeated:
        if note.shape is not None and tuple(note.shape):
            raise SpaceError("shape: expected none, for a field that is one value", (), name)
        return ScalarLeaf(spec=_spec(name, dtype, (), note, bounds), choices=choices, **place)
    return ListLeaf(spec=_spec(name, dtype, _shape(note), note, bounds), dtype=usual, choices=choices, **place)


def presence_of(field: FieldDescriptor, name: str, parents: tuple[str, ...], arms: tuple[tuple[str, str], ...]) -> Leaf:
    """Return the tensor that says whether a field is there."""
    return PresenceLeaf(spec=TensorSpec.of(name, "bool"), field=field.name, parents=parents, arms=arms)


def there_of(field: FieldDescriptor, name: str, parents: tuple[str, ...], arms: tuple[tuple[str, str], ...]) -> Leaf:
    """Return the tensor of a message without fields."""
    return ThereLeaf(spec=TensorSpec.of(name, "bool"), field=field.name, parents=parents, arms=arms)


def is_array(field: FieldDescriptor) -> bool:
    """Whether a field is a message `Array`."""
    if field.message_type is None or field.is_repeated:
        return False
    own = field.message_type.fields_by_name
    return all(
        name in own and (own[name].number, own[name].type, own[name].is_repeated) == wanted
        for name, wanted in _ARRAY_FIELDS.items()
    )


def _shape(note: FieldAnnotation) -> Sequence[int]:
    return (-1,) if note.shape is None else note.shape


def _spec(
    name: str,
    dtype: str,
    shape: Sequence[int],
    note: FieldAnnotation,
    bounds: tuple[int | None, int | None] = (None, None),
) -> TensorSpec:
    low = bounds[0] if note.minimum is None else note.minimum
    high = bounds[1] if note.maximum is None else note.maximum
    spec = TensorSpec.of(name, dtype, shape, low, high)
    if math.prod(map(abs, shape)) > MAX_ELEMENTS:
        raise SpaceError(f"shape: expected at most {MAX_ELEMENTS} elements, got {list(shape)}", (), name)
    if not shape or spec.type.name not in ("str", "object"):
        return spec
    if len(shape) > 1:
        raise SpaceError("shape: expected one dimension, for strings", (), name)
    return spec


def _no_more(name: str, note: FieldAnnotation) -> None:
    if note != FieldAnnotation():
        raise SpaceError(
            "expected no shape, bounds or dtype for what is within an Any; of messages, only an Array has those",
            (),
            name,
        )


def _of_enum(enum: EnumDescriptor, note: FieldAnnotation) -> tuple[tuple[int | None, int | None], frozenset[int]]:
    """Return the bounds of an enum whose numbers have no gaps, and its numbers unless its own bounds say enough."""
    numbers = frozenset(enum_numbers(enum).values())
    if numbers != frozenset(range(len(numbers))):
        return (None, None), numbers
    is_annotated = (note.minimum, note.maximum) != (None, None)
    return (0, len(numbers) - 1), numbers if is_annotated else frozenset()
