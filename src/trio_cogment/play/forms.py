"""Forms for people to act with, as JSON; and the action that an answer is.

| kind | further fields | the answer |
|---|---|---|
| `choice` | `options`: each with `value`, `label`, `keys`, and `allowed` if it is not | one of the values |
| `number` | `low`, `high` (null: there is none), `integer`, `initial` | a number |
| `sliders` | the same as lists, and `shape` | nested lists of numbers |
| `switch` | - | true or false |
| `switches` | `shape`, `fixed`: 0 or 1, or null where it is free | nested lists of 0 and 1 |
| `choices` | `forms`: of the elements, in C order; `shape` | nested lists of numbers |
| `text` | `least`, `most`: characters; `characters`, or null; `bytes`: it is base64 | a text |
| `object` | `fields`: each with `name`, `form`, `optional`, and `alternatives` (the oneof it is of) | an object |
| `list` | `forms` | a list of as many |
| `sequence` | `form` | a list |
| `one_of` | `forms` | a list: position and value |
| `json` | `about` | anything |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.sdk.spec.fields import by_type, enum_numbers, is_map, is_well_known

#: Messages within messages are not forms beyond this depth, but JSON.
_MAX_DEPTH = 6
#: More alternatives are chosen by number.
MAX_OPTIONS = 64
_NUMBER = {"kind": "number", "low": None, "high": None, "integer": False, "initial": 0}
_TEXT = {"kind": "text", "least": 0, "most": 65536, "characters": None, "bytes": False}
#: The forms of fields that hold one value, but enums.
_FORMS: dict[int, dict[str, Any]] = by_type(
    text=_TEXT,
    content=_TEXT | {"bytes": True},
    boolean={"kind": "switch"},
    number=lambda _bits: _NUMBER,
    integer=lambda integers: _NUMBER | {"low": integers.least, "high": integers.most, "integer": True},
)
#: Keys for what labels often say.
_KNOWN_KEYS = {
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "forward": "ArrowUp",
    "back": "ArrowDown",
    "fire": "Space",
    "jump": "Space",
    "shoot": "Space",
}
_DIGITS = "1234567890"
_LETTERS = "qwertyuiopasdfghjklzxcvbnm"


def options(values: Sequence[Any], labels: Sequence[str], allowed: Sequence[bool] = ()) -> list[dict[str, Any]]:
    """Return the options of a `choice`.

    Args:
        values: to choose from.
        labels: what they are called; where there is none, the value itself.
        allowed: which may be chosen now; empty: all.
    """
    found: list[dict[str, Any]] = []
    taken: set[str] = set()
    for index, value in enumerate(values):
        label = labels[index] if index < len(labels) else str(value)
        keys = [key for key in (_key_of(label), _key_at(index)) if key and key not in taken]
        taken.update(keys)
        option = {"value": value, "label": label, "keys": keys}
        if allowed and not allowed[index]:
            option["allowed"] = False
        found.append(option)
    return found


def _key_of(label: str) -> str:
    return _KNOWN_KEYS.get(label.strip().lower(), "")


def _key_at(index: int) -> str:
    keys = _DIGITS + _LETTERS
    return keys[index] if index < len(keys) else ""


def message_form(described: Descriptor, labels: Sequence[str] = (), depth: int = 0) -> dict[str, Any]:
    """Return the form of a message of protobuf.

    Args:
        described: its type.
        labels: what the values of its only field are called, if that is an enum.
        depth: of the message within others.
    """
    fields = []
    for each in described.fields:
        oneof = each.containing_oneof
        real = oneof is not None and not (len(oneof.fields) == 1 and oneof.name == f"_{each.name}")
        fields.append(
            {
                "name": each.name,
                "form": _field_form(each, labels if len(described.fields) == 1 else (), depth),
                "optional": each.has_presence,
                **({"alternatives": oneof.name} if oneof is not None and real else {}),
            }
        )
    return {"kind": "object", "fields": fields}


def _field_form(described: FieldDescriptor, labels: Sequence[str], depth: int) -> dict[str, Any]:
    if described.message_type is not None and (
        depth >= _MAX_DEPTH or is_map(described) or is_well_known(described.message_type)
    ):
        return {"kind": "json", "about": described.message_type.full_name}
    if described.message_type is not None:
        form = message_form(described.message_type, (), depth + 1)
    elif described.enum_type is not None:
        names = list(enum_numbers(described.enum_type))
        form = {"kind": "choice", "options": options(names, labels or [_shorter(name, names) for name in names])}
    else:
        form = dict(_FORMS[described.type])
    return {"kind": "sequence", "form": form} if described.is_repeated else form


def _shorter(name: str, names: Sequence[str]) -> str:
    """Return the name of a value of an enum without what all of them begin with, as people read it."""
    words = [each.split("_") for each in names]
    common = 0
    while all(len(each) > common + 1 for each in words) and len({each[common] for each in words}) == 1:
        common += 1
    return " ".join(name.split("_")[common:]).lower() if len(names) > 1 else name.lower()


def message_of(answer: Any, kind: type[Message]) -> Message:
    """Return the message that an answer describes.

    Raises:
        InvalidArgumentError: it describes none.
    """
    if not isinstance(answer, dict):
        raise InvalidArgumentError("action: expected an object")
    if is_well_known(kind.DESCRIPTOR) and answer.keys() == {"value"}:
        answer = answer["value"]  # to protobuf's JSON such a message is its value
    try:
        return json_format.ParseDict(answer, kind(), max_recursion_depth=32)
    except (json_format.Error, ValueError, TypeError, RecursionError) as error:
        raise InvalidArgumentError(f"action: {str(error)[:300]}") from None
