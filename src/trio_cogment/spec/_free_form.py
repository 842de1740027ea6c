"""`google.protobuf.Struct` and its like from YAML: whatever the file has, as in protobuf's JSON."""

from __future__ import annotations

import re
from typing import Any

import yaml

from trio_cogment.spec.yaml_file import YamlFile, is_blank

#: The messages that hold anything.
FREE_FORM = frozenset({"google.protobuf.Struct", "google.protobuf.ListValue", "google.protobuf.Value"})

_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def fill_free_form(file: YamlFile, node: yaml.Node, message: Any, name: str) -> None:
    """Fill a `Struct` from a mapping, a `ListValue` from a list, and a `Value` from anything.

    A plain scalar is a boolean or a number if it looks like one in YAML 1.2; a quoted one is text.

    Raises:
        InvalidArgumentError: the node is of another kind.
    """
    kind = message.DESCRIPTOR.name
    if kind == "Struct":
        for key, _, value in file.entries(node, name):
            fill_free_form(file, value, message.fields[key], f"{name}.{key}")
    elif kind == "ListValue":
        for item_name, item in file.items(node, name):
            fill_free_form(file, item, message.values.add(), item_name)
    elif isinstance(node, yaml.MappingNode):
        message.struct_value.SetInParent()
        fill_free_form(file, node, message.struct_value, name)
    elif isinstance(node, yaml.SequenceNode):
        message.list_value.SetInParent()
        fill_free_form(file, node, message.list_value, name)
    elif is_blank(node):
        message.null_value = 0
    else:
        _fill_scalar(
            file.text(node, name), is_plain=isinstance(node, yaml.ScalarNode) and node.style is None, value=message
        )


def _fill_scalar(text: str, *, is_plain: bool, value: Any) -> None:
    if is_plain and text in _BOOLEANS:
        value.bool_value = _BOOLEANS[text]
    elif is_plain and _NUMBER.fullmatch(text) and abs(float(text)) != float("inf"):
        value.number_value = float(text)
    else:
        value.string_value = text
