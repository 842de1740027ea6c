"""Protobuf messages from YAML: each field from a key of its name, each error with its line."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import yaml
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from trio_cogment.sdk.spec.fields import Integers, by_type, enum_numbers, is_map, is_wrapper, other_choice
from trio_cogment.sdk.spec.yaml_file import YamlFile, is_blank

_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
#: The messages that hold whatever the file has, as in protobuf's JSON.
_FREE_FORM = frozenset({"google.protobuf.Struct", "google.protobuf.ListValue", "google.protobuf.Value"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LARGEST = {32: 3.4e38, 64: 1.7e308}

#: Fills a message from a node in place of the usual way: (node, message, its field in another message, name in errors).
Special: TypeAlias = Callable[[yaml.Node, Any, Any, str], None]


class FieldReader:
    """Fills messages from a file.

    Keys are the names of fields, in snake_case or lowerCamelCase; a blank value counts as absent.

    Args:
        file: the file.
        refused: errors for keys that had a meaning once, by their names in errors, without the numbers of list items.
        special: what fills messages of these types, by full name.
    """

    def __init__(self, file: YamlFile, *, refused: Mapping[str, str] = {}, special: Mapping[str, Special] = {}) -> None:
        self._file = file
        self._refused = refused
        self._special = special

    def fill(self, node: yaml.Node, message: Any, name: str) -> set[str]:
        """Set the fields of a message from a mapping, and return which were given.

        Raises:
            InvalidArgumentError: there is an unknown key or an invalid value.
        """
        file = self._file
        if isinstance(node, yaml.ScalarNode) and hasattr(message, "FromJsonString") and not is_blank(node):
            return self._from_text(node, message, name)
        if message.DESCRIPTOR.full_name in _FREE_FORM:
            _fill_free_form(file, node, message, name)
            return set()
        fields = _fields(message.DESCRIPTOR)
        if is_wrapper(message.DESCRIPTOR) and not isinstance(node, yaml.MappingNode):
            self._set(node, message, fields["value"], name)
            return {"value"}
        given: set[str] = set()
        for key, place, value in file.entries(node, name):
            field = fields.get(key)
            # Without the numbers of list items: `trial_params.actors[1].name` is `trial_params.actors.name`.
            if refused := self._refused.get(re.sub(r"\[\d+\]", "", f"{name}.{key}")):
                raise file.fault(place, f"{name}.{key}: {refused}")
            if field is None:
                raise file.unknown_key(place, name, key, {found.name for found in fields.values()})
            if field.name in given:
                raise file.fault(place, f"{name}.{key}: given twice, in two spellings")
            if is_blank(value):
                continue
            if (other := other_choice(message, field)) is not None:
                raise file.fault(place, f"{name}: expected one of {other} and {field.name}, got both")
            given.add(field.name)
            self._set(value, message, field, f"{name}.{key}")
        return given

    def _from_text(self, node: yaml.ScalarNode, message: Any, name: str) -> set[str]:
        """Set a message that has a text of its own, such as a time."""
        try:
            message.FromJsonString(node.value)
        except ValueError as error:
            raise self._file.fault(node, f"{name}: {' '.join(str(error).split())}") from None
        return set()

    def _set(self, node: yaml.Node, message: Any, field: FieldDescriptor, name: str) -> None:
        target = getattr(message, field.name)
        if is_map(field):
            self._set_map(node, target, field, name)
        elif field.is_repeated:
            for item_name, item in self._file.items(node, name):
                if field.message_type is not None:
                    self._set_message(item, target.add(), message, item_name)
                else:
                    target.append(self._scalar(item, field, item_name))
        elif field.message_type is not None:
            # The message is present even if it is empty.
            target.SetInParent()
            self._set_message(node, target, message, name)
        else:
            setattr(message, field.name, self._scalar(node, field, name))

    def _set_message(self, node: yaml.Node, target: Any, within: Any, name: str) -> None:
        special = self._special.get(target.DESCRIPTOR.full_name)
        if special is not None:
            special(node, target, within, name)
        else:
            self.fill(node, target, name)

    def _set_map(self, node: yaml.Node, target: Any, field: FieldDescriptor, name: str) -> None:
        assert field.message_type is not None
        key_field, value_field = field.message_type.fields
        for text, place, value in self._file.entries(node, name):
            key = self._read(place, text, key_field, name)
            if value_field.message_type is not None:
                self._set_message(value, target[key], target, f"{name}.{text}")
            elif is_blank(value) and value_field.type == FieldDescriptor.TYPE_STRING:
                target[key] = ""  # a property may have no value
            else:
                target[key] = self._scalar(value, value_field, f"{name}.{text}")

    def _scalar(self, node: yaml.Node, field: FieldDescriptor, name: str) -> Any:
        return self._read(node, self._file.text(node, name), field, name)

    def _read(self, node: yaml.Node, text: str, field: FieldDescriptor, name: str) -> Any:
        try:
            return READERS[field.type](text) if field.enum_type is None else _enum(text, field.enum_type)
        except ValueError as error:
            raise self._file.fault(node, f"{name}: expected {error}, got {text!r}") from None


def _fields(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    return {spelling: field for field in descriptor.fields for spelling in (field.name, field.camelcase_name)}


def _enum(text: str, enum: EnumDescriptor) -> int:
    names = enum_numbers(enum)
    if text in names:
        return names[text]
    if _INTEGER.fullmatch(text) and len(text) < 12 and int(text) in names.values():
        return int(text)
    raise ValueError(f"one of {', '.join(names)}")


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError("true or false")


def _integer(integers: Integers) -> Callable[[str], int]:
    least, most = integers.least, integers.most

    def read(text: str) -> int:
        # Python's own conversion is slow with very long numbers, and refuses them.
        if _INTEGER.fullmatch(text) and len(text) <= len(str(most)) + 1 and least <= int(text) <= most:
            return int(text)
        raise ValueError(f"a decimal integer from {least} to {most}")

    return read


def _number(bits: int) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text) if _FLOAT.fullmatch(text) else math.inf
        if abs(value) > _LARGEST[bits]:
            raise ValueError("a number")
        return value

    return read


def _base64(text: str) -> bytes:
    # Both alphabets, with or without padding and line breaks: as in protobuf's JSON.
    plain = "".join(text.split()).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        raise ValueError("base64") from None


#: The parsers of all scalar types but enums.
READERS: dict[int, Callable[[str], Any]] = by_type(
    text=str, content=_base64, boolean=_boolean, number=_number, integer=_integer
)


def _fill_free_form(file: YamlFile, node: yaml.Node, message: Any, name: str) -> None:
    """Fill a `Struct` from a mapping, a `ListValue` from a list, and a `Value` from anything.

    A plain scalar is a boolean or a number if it looks like one in YAML 1.2; a quoted one is text.

    Raises:
        InvalidArgumentError: the node is of another kind.
    """
    kind = message.DESCRIPTOR.name
    if kind == "Struct":
        for key, _, value in file.entries(node, name):
            _fill_free_form(file, value, message.fields[key], f"{name}.{key}")
    elif kind == "ListValue":
        for item_name, item in file.items(node, name):
            _fill_free_form(file, item, message.values.add(), item_name)
    elif isinstance(node, yaml.MappingNode):
        message.struct_value.SetInParent()
        _fill_free_form(file, node, message.struct_value, name)
    elif isinstance(node, yaml.SequenceNode):
        message.list_value.SetInParent()
        _fill_free_form(file, node, message.list_value, name)
    elif is_blank(node):
        message.null_value = 0
    else:
        _fill_scalar(
            file.text(node, name), is_plain=isinstance(node, yaml.ScalarNode) and node.style is None, value=message
        )


def _fill_scalar(text: str, *, is_plain: bool, value: Any) -> None:
    if is_plain and text in _BOOLEANS:
        value.bool_value = _BOOLEANS[text]
    elif is_plain and _FLOAT.fullmatch(text) and abs(float(text)) != float("inf"):
        value.number_value = float(text)
    else:
        value.string_value = text
