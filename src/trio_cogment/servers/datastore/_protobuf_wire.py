"""The wire format of protobuf: as much of it as is needed to find fields in a serialised message."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

#: What follows a tag: a varint, 8 bytes, a length and this many bytes, 4 bytes.
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5

_WIRE_TYPES = {
    FieldDescriptor.TYPE_FIXED64: EIGHT_BYTES,
    FieldDescriptor.TYPE_MESSAGE: LENGTH,
    FieldDescriptor.TYPE_BYTES: LENGTH,
    FieldDescriptor.TYPE_FLOAT: FOUR_BYTES,
}


def number_of(digits: bytes) -> int:
    """Return the number that a varint stands for: seven bits a byte, the lowest first."""
    if len(digits) == 2:
        return digits[0] & 127 | digits[1] << 7
    number = 0
    for digit in reversed(digits):
        number = number << 7 | digit & 127
    return number


def varint_end(data: bytes, at: int) -> int:
    """Return where the varint that begins at `at` ends.

    Raises:
        IndexError: the data ends before it.
    """
    while data[at] > 127:
        at += 1
    return at + 1


def tag(message: type[Message], name: str) -> int:
    """Return the tag of a field, which is one byte for fields 1 to 15."""
    field = message.DESCRIPTOR.fields_by_name[name]
    return field.number << 3 | _WIRE_TYPES.get(field.type, VARINT)
