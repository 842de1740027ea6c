"""How protobuf writes fields: the little of it that is needed to put a message together by hand."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

#: How what follows a tag is to be read: a number of seven bits a byte, 8 bytes, so many bytes, 4 bytes.
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5

_WIRE_TYPES = {
    FieldDescriptor.TYPE_FIXED64: EIGHT_BYTES,
    FieldDescriptor.TYPE_MESSAGE: LENGTH,
    FieldDescriptor.TYPE_BYTES: LENGTH,
    FieldDescriptor.TYPE_FLOAT: FOUR_BYTES,
}


def varint(number: int) -> bytes:
    """Return a number, 0 or more, as protobuf writes it: seven bits at a time, the lowest first."""
    if number < 16384:
        return bytes((number,) if number < 128 else (number & 127 | 128, number >> 7))
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def number_of(digits: bytes) -> int:
    """Return the number that is written so."""
    if len(digits) == 2:
        return digits[0] & 127 | digits[1] << 7
    number = 0
    for digit in reversed(digits):
        number = number << 7 | digit & 127
    return number


def varint_end(data: bytes, at: int) -> int:
    """Return where a number that begins at `at` ends.

    Raises:
        IndexError: it does not.
    """
    while data[at] > 127:
        at += 1
    return at + 1


def tag(message: type[Message], name: str) -> int:
    """Return what stands before a field; a byte, for fields 1 to 15."""
    field = message.DESCRIPTOR.fields_by_name[name]
    return field.number << 3 | _WIRE_TYPES.get(field.type, VARINT)
