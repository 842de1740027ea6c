"""Count of the entries in a message's repeated fields: a few bytes may stand for a million of them.

Each entry that is a message, a text or bytes becomes an object when somebody looks at it, so a message of four
megabytes can be hundreds of megabytes, and seconds of work for a handler that goes through it. Names of an enumeration
count as well, as nobody needs many. Numbers are packed, and do not count: they may be somebody's image.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc._streams import BadMessageError

#: Texts are bytes, too.
_COUNTED: Final = frozenset(
    [FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_ENUM, FieldDescriptor.CPPTYPE_MESSAGE]
)
#: Whether messages of a type can have entries, at any level.
_types: dict[Any, bool] = {}


def check_entries(message: Message, most: int) -> None:
    """Refuse a message with more entries than that, at all levels together.

    Raises:
        BadMessageError: its text names the limit.
    """
    left = most
    unseen: list[Any] = [message]
    while unseen:
        for field, value in unseen.pop().ListFields():
            if field.is_repeated and field.cpp_type in _COUNTED:
                left -= len(value)
                if left < 0:
                    text = f"more than {most} entries in repeated fields; max_message_entries is {most}"
                    raise BadMessageError(StatusCode.RESOURCE_EXHAUSTED, text)
            described = field.message_type
            if described is not None and has_entries(described):
                unseen += _messages(field, described, value)


def _messages(field: FieldDescriptor, described: Any, value: Any) -> Iterator[Any]:
    if not field.is_repeated:
        yield value
    elif not described.GetOptions().map_entry:
        yield from value
    elif described.fields_by_name["value"].message_type is not None:
        yield from value.values()


def has_entries(descriptor: Any) -> bool:
    """Whether messages of a type can have entries: most need not be looked into."""
    found = _types.get(descriptor)
    if found is None:
        _types[descriptor] = False  # it may contain itself
        found = _types[descriptor] = any(
            (field.is_repeated and field.cpp_type in _COUNTED)
            or (field.message_type is not None and has_entries(field.message_type))
            for field in descriptor.fields
        )
    return found
