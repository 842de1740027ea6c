"""The wire format of protobuf: as much of it as is needed to find fields in a serialised message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from trio_cogment.base.shared_message import varint

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


def only_field(data: bytes, tag: bytes) -> bytes | None:
    """Return the content of the only field of a message, if that has this tag and a length; None: it is otherwise."""
    head = _only_head(tag, len(data))
    return data[len(head) :] if head and data.startswith(head) else None


@lru_cache(4096)
def _only_head(tag: bytes, size: int) -> bytes:
    """Return what a message of this size begins with that has one field only; empty: there is no such message."""
    for digits in range(1, 6):
        head = tag + varint(max(0, size - len(tag) - digits))
        if len(head) == len(tag) + digits:
            return head if size >= len(head) else b""
    return b""


class Field(NamedTuple):
    """A field whose places are wanted.

    Attributes:
        what: the name of its places; empty: they differ, and nothing is made of them.
        inside: for a message: the wanted fields in it, by tag.
    """

    what: str = ""
    inside: Mapping[int, Field] | None = None


class Place(NamedTuple):
    """Where a wanted field is: its value, without tag and length. For a message it marks the start and is empty."""

    what: str
    start: int
    end: int


def find_places(data: bytes, fields: Mapping[int, Field], start: int, end: int) -> Iterator[Place]:
    """Yield the places of wanted fields in a serialised message, in order.

    Raises:
        ValueError: there is something that no sample of a usual kind has.
    """
    at = start
    while at < end:
        found = data[at]
        at += 1
        kind, field = found & 7, fields.get(found)
        if found > 127:
            raise ValueError("a field with a number of 16 or more")
        if kind == LENGTH:
            begin = varint_end(data, at)
            until = begin + number_of(data[at:begin])
        else:
            begin = at
            if kind == EIGHT_BYTES:
                until = at + 8
            elif kind == FOUR_BYTES:
                until = at + 4
            elif kind == 0:
                until = varint_end(data, at)
            else:
                raise ValueError("a group")
        if field is not None:
            yield Place(field.what, begin, begin if field.inside is not None else until)
            if field.inside is not None:
                yield from find_places(data, field.inside, begin, until)
        at = until
