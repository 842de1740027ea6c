"""Parameter files: the YAML that `--params` names, with a trial's default parameters."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.spec.yaml_file import YamlFile, is_blank

#: The `max_inactivity` of files that do not give one, in seconds, as with the reference.
DEFAULT_MAX_INACTIVITY_SECONDS = 30

_ROOT = "trial_params"
_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_UINT32 = (0, 2**32 - 1)
_SINT64 = (-(2**63), 2**63 - 1)
_LARGEST_FLOAT = 3.4e38

#: Errors for keys of Cogment 1, by their place in the file.
_LEGACY = {
    "datalog": "is the layout of Cogment 1; now it is trial_params: {datalog: {endpoint: 'grpc://host:port', "
    "exclude_fields: [...]}}",
    "trial.pre_hooks": "is the layout of Cogment 1; now hooks are given with --pre_trial_hooks",
    f"{_ROOT}.datalog.type": "is the layout of Cogment 1; remove it: a data log is on when it has an endpoint",
    f"{_ROOT}.datalog.url": "is the layout of Cogment 1; now it is 'endpoint'",
    f"{_ROOT}.datalog.fields": "is the layout of Cogment 1; now it is 'exclude_fields', a list",
    f"{_ROOT}.environment.id": "is an old name of 'name'",
}


def load_params(path: str | Path) -> TrialParams:
    """Read the `trial_params` of a file; other top-level keys are ignored, so that a whole cogment.yaml works.

    Keys are the fields of `TrialParams`, in snake_case or lowerCamelCase; a blank value counts as absent. Without a
    `max_inactivity`, it is 30 s.

    Raises:
        InvalidArgumentError: the file cannot be read, is not YAML, or has an unknown key or an invalid value; the
            text names the file, the line and the key.
    """
    file = YamlFile(path)
    params = TrialParams()
    given: set[str] = set()
    if file.root is not None and not is_blank(file.root):
        for key, place, node in file.entries(file.root, "the file"):
            if key == _ROOT and not is_blank(node):
                given = _fill(file, node, params, _ROOT)
            else:
                _refuse_legacy(file, key, place, node)
    if "max_inactivity" not in given:
        params.max_inactivity = DEFAULT_MAX_INACTIVITY_SECONDS
    return params


def _refuse_legacy(file: YamlFile, key: str, place: yaml.Node, node: yaml.Node) -> None:
    if is_blank(node):
        return
    if key in _LEGACY:
        raise file.fault(place, f"{key}: {_LEGACY[key]}")
    if key == "trial" and isinstance(node, yaml.MappingNode):
        for inner, inner_place, value in file.entries(node, key):
            empty = is_blank(value) or (isinstance(value, yaml.SequenceNode) and not value.value)
            if f"{key}.{inner}" in _LEGACY and not empty:
                raise file.fault(inner_place, f"{key}.{inner}: {_LEGACY[f'{key}.{inner}']}")


def _fill(file: YamlFile, node: yaml.Node, message: Any, name: str) -> set[str]:
    """Set the fields of a message from a mapping, and return which were given."""
    fields = _fields(message.DESCRIPTOR)
    given: set[str] = set()
    for key, place, value in file.entries(node, name):
        field = fields.get(key)
        # Without the numbers of list items: `trial_params.actors[1].name` is `trial_params.actors.name`.
        if legacy := _LEGACY.get(re.sub(r"\[\d+\]", "", f"{name}.{key}")):
            raise file.fault(place, f"{name}.{key}: {legacy}")
        if field is None:
            raise file.unknown_key(place, name, key, {found.name for found in fields.values()})
        if field.name in given:
            raise file.fault(place, f"{name}.{key}: given twice, in two spellings")
        if is_blank(value):
            continue
        given.add(field.name)
        _set(file, value, message, field, f"{name}.{key}")
    return given


def _fields(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    return {spelling: field for field in descriptor.fields for spelling in (field.name, field.camelcase_name)}


def _set(file: YamlFile, node: yaml.Node, message: Any, field: FieldDescriptor, name: str) -> None:
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        for key, _, value in file.entries(node, name):
            # A property may have no value.
            target[key] = "" if is_blank(value) else file.text(value, f"{name}.{key}")
    elif field.is_repeated:
        for item_name, item in file.items(node, name):
            if field.message_type is not None:
                _fill(file, item, target.add(), item_name)
            else:
                target.append(_scalar(file, item, field, item_name))
    elif field.message_type is not None:
        # The message is present even if it is empty.
        target.SetInParent()
        _fill(file, node, target, name)
    else:
        setattr(message, field.name, _scalar(file, node, field, name))


def _scalar(file: YamlFile, node: yaml.Node, field: FieldDescriptor, name: str) -> Any:
    text = file.text(node, name)
    try:
        return _READERS[field.type](text)
    except ValueError as error:
        raise file.fault(node, f"{name}: expected {error}, got {text!r}") from None


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError("true or false")


def _integer(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        # Python's own conversion is slow with very long numbers, and refuses them.
        if _INTEGER.fullmatch(text) and len(text) <= len(str(most)) + 1 and least <= int(text) <= most:
            return int(text)
        raise ValueError(f"a decimal integer from {least} to {most}")

    return read


def _number(text: str) -> float:
    value = float(text) if _FLOAT.fullmatch(text) else math.inf
    if abs(value) > _LARGEST_FLOAT:
        raise ValueError("a number")
    return value


def _base64(text: str) -> bytes:
    # Both alphabets, with or without padding and line breaks: as in protobuf's JSON.
    plain = "".join(text.split()).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        raise ValueError("base64") from None


#: The parsers of the field types that occur in trial parameters.
_READERS: dict[int, Callable[[str], Any]] = {
    FieldDescriptor.TYPE_STRING: str,
    FieldDescriptor.TYPE_BYTES: _base64,
    FieldDescriptor.TYPE_BOOL: _boolean,
    FieldDescriptor.TYPE_FLOAT: _number,
    FieldDescriptor.TYPE_UINT32: _integer(*_UINT32),
    FieldDescriptor.TYPE_SINT64: _integer(*_SINT64),
}
