"""Fields of protobuf messages: what may stand in one of each type, and what else it is that its descriptor says.

Payloads are messages of types that only the project knows, so whoever fills one or shows one, from YAML, from tensors
or for a page, goes through its descriptor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from trio_cogment.sdk.spec._messages import WELL_KNOWN

V = TypeVar("V")

_F = FieldDescriptor
_INTEGER_BITS = {
    (32, True): (_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32),
    (32, False): (_F.TYPE_UINT32, _F.TYPE_FIXED32),
    (64, True): (_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64),
    (64, False): (_F.TYPE_UINT64, _F.TYPE_FIXED64),
}


class Integers(NamedTuple):
    """The integers that a field can have.

    Attributes:
        bits: 32 or 64.
        signed: there are negative ones.
    """

    bits: int
    signed: bool

    @property
    def least(self) -> int:
        """The least one."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def most(self) -> int:
        """The largest one."""
        return (1 << (self.bits - self.signed)) - 1


def by_type(
    *, text: V, content: V, boolean: V, number: Callable[[int], V], integer: Callable[[Integers], V]
) -> dict[int, V]:
    """Return what belongs to each type of fields that hold one value, but enums: they have their own names.

    Args:
        text: for strings.
        content: for bytes.
        boolean: for truth values.
        number: for floating-point numbers of this many bits.
        integer: for integers.
    """
    return {
        _F.TYPE_STRING: text,
        _F.TYPE_BYTES: content,
        _F.TYPE_BOOL: boolean,
        _F.TYPE_FLOAT: number(32),
        _F.TYPE_DOUBLE: number(64),
        **{kind: integer(Integers(*row)) for row, kinds in _INTEGER_BITS.items() for kind in kinds},
    }


def enum_numbers(enum: EnumDescriptor) -> dict[str, int]:
    """Return the values of an enum, by their names."""
    return {value.name: int(value.number) for value in enum.values}


def enum_name(enum: EnumDescriptor, number: int) -> str | None:
    """Return the name of a value; None: a newer version of the project has it."""
    known = enum.values_by_number.get(number)
    return None if known is None else str(known.name)


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map, whose entries are messages with a `key` and a `value`."""
    return field.message_type is not None and is_entry(field.message_type)


def is_entry(kind: Any) -> bool:
    """Whether messages of a type are the entries of a map."""
    return bool(kind.GetOptions().map_entry)


def is_wrapper(kind: Any) -> bool:
    """Whether messages of a type have one field, `value`, which may stand for the message."""
    return str(kind.file.name) == f"{WELL_KNOWN}wrappers.proto"


def is_well_known(kind: Any) -> bool:
    """Whether a type comes with protobuf, which has a form of its own for most of these in JSON."""
    return str(kind.file.name).startswith(WELL_KNOWN)


def other_choice(message: Any, field: FieldDescriptor) -> str | None:
    """Return the field that is set in a message and excludes another, as both are of one `oneof`; None: none is."""
    group = field.containing_oneof
    chosen = None if group is None else message.WhichOneof(group.name)
    return None if chosen in (None, field.name) else str(chosen)
