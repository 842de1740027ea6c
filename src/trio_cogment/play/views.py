"""Views of observations for a page: parts with a name and a kind, and the bytes of pictures beside them.

| kind | further fields |
|---|---|
| `image` | `blob`: which of the message's blobs it is |
| `grid` | `rows`: lists of numbers |
| `numbers` | `values` |
| `array` | `shape`, `dtype`, `low`, `high`: of one that is too large to be written out |
| `text` | `text` |
| `value` | `value`: a number, a truth value or null |
| `json` | `value`: anything that JSON has |

All that comes from a trial is data here: pages set it as text, never as markup.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from trio_cogment.sdk.spec.fields import enum_name, is_map, is_well_known
from trio_cogment.web.json_text import json_text, name_of, shortest
from trio_cogment.web.pictures import PICTURES, picture_type

#: Longer texts are cut.
MAX_TEXT_CHARACTERS = 64 * 1024
MAX_PARTS = 256
_MAX_DEPTH = 32
_LENGTH = struct.Struct("!I")


@dataclass(slots=True)
class View:
    """See the module.

    Attributes:
        parts: what is shown, in this order.
        blobs: media types and contents.
    """

    parts: list[dict[str, Any]] = field(default_factory=list)
    blobs: list[tuple[str, bytes]] = field(default_factory=list)

    def add(self, name: str, kind: str, **more: Any) -> None:
        """Add a part; when there are too many, the rest is left out, and that is said."""
        if len(self.parts) < MAX_PARTS:
            self.parts.append({"name": name, "kind": kind, **more})
        elif len(self.parts) == MAX_PARTS:
            self.parts.append({"name": "", "kind": "text", "text": "… and more"})

    def add_text(self, name: str, text: str) -> None:
        """Add a text."""
        cut = text[:MAX_TEXT_CHARACTERS]
        self.add(name, "text", text=cut if len(cut) == len(text) else f"{cut}…")

    def add_bytes(self, name: str, content: bytes, media_type: str = "") -> None:
        """Add bytes: a picture, if they are one, or how many they are."""
        media_type = media_type if media_type in PICTURES else picture_type(content)
        if media_type:
            self.add(name, "image", blob=len(self.blobs))
            self.blobs.append((media_type, content))
        else:
            self.add_text(name, f"{len(content)} bytes: {content[:64].hex(' ')}{'…' if len(content) > 64 else ''}")

    def add_json(self, name: str, value: Any) -> None:
        """Add anything that JSON has, by what it is."""
        if isinstance(value, str):
            self.add_text(name, value)
        elif value is None or isinstance(value, bool | int | float):
            self.add(name, "value", value=finite(value))
        elif isinstance(value, list) and _is_grid(value):
            self.add(name, "grid", rows=finite(value))
        elif isinstance(value, list) and all(_is_number(each) for each in value):
            self.add(name, "numbers", values=finite(value))
        else:
            text = json.dumps(finite(value), ensure_ascii=False)
            if len(text) > MAX_TEXT_CHARACTERS:
                self.add_text(name, text)
            else:
                self.add(name, "json", value=finite(value))


def finite(value: Any) -> Any:
    """Return a value of JSON with texts in place of the numbers that it does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return name_of(value)
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    if isinstance(value, dict):
        return {str(key): finite(each) for key, each in value.items()}
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_grid(value: list[Any]) -> bool:
    return (
        bool(value)
        and all(isinstance(row, list) and row and all(map(_is_number, row)) for row in value)
        and len({len(row) for row in value}) == 1
    )


def message_view(message: Message) -> View:
    """Return what is shown of a message of protobuf: its fields, those of messages in it as `a.b`."""
    view = View()
    _add_message(view, "", message, 0)
    return view


def _add_message(view: View, name: str, message: Message, depth: int) -> None:
    if depth > _MAX_DEPTH or is_well_known(message.DESCRIPTOR):
        view.add_json(name, _plain(message))
        return
    fields: Any = message.DESCRIPTOR.fields  # protobuf has two types for it
    for described in fields:
        if described.has_presence and not message.HasField(described.name):
            continue
        own = f"{name}.{described.name}" if name else described.name
        value = getattr(message, described.name)
        if described.is_repeated:
            view.add_json(own, _repeated(described, value))
        elif described.message_type is not None:
            _add_message(view, own, value, depth + 1)
        elif described.type == FieldDescriptor.TYPE_BYTES:
            view.add_bytes(own, value)
        elif described.enum_type is not None:
            view.add_text(own, _enum_name(described, value))
        else:
            view.add_json(own, _single(described, value))


def _repeated(described: FieldDescriptor, value: Any) -> Any:
    if is_map(described):
        assert described.message_type is not None
        inner = described.message_type.fields_by_name["value"]
        return {str(key): _single(inner, value[key]) for key in value}
    return [_single(described, each) for each in value]


def _single(described: FieldDescriptor, value: Any) -> Any:
    if described.message_type is not None:
        return _plain(value)
    if described.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(value).decode()
    if described.type == FieldDescriptor.TYPE_FLOAT:
        return shortest(value)
    return _enum_name(described, value) if described.enum_type is not None else value


def _enum_name(described: FieldDescriptor, value: int) -> str:
    assert described.enum_type is not None
    return enum_name(described.enum_type, value) or str(value)


def _plain(message: Message) -> Any:
    try:
        return json_format.MessageToDict(message, preserving_proto_field_name=True)
    except (ValueError, TypeError, RecursionError, json_format.Error):  # an Any of a type that is not known here
        return f"{message.DESCRIPTOR.full_name}, {message.ByteSize()} bytes"


def page_message(header: dict[str, Any], blobs: Sequence[tuple[str, bytes]] = ()) -> bytes:
    """Return a message to a page: the length of its header (4 bytes), the header as JSON, and the blobs.

    The header gets `blobs`: their media types and sizes.
    """
    if blobs:
        header = {**header, "blobs": [{"type": media_type, "size": len(content)} for media_type, content in blobs]}
    text = json_text(header).encode()
    return b"".join((_LENGTH.pack(len(text)), text, *(content for _, content in blobs)))
