"""The part `classes` of profiles as files: how the payloads of actor classes become tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml

from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import LAYERS, ClassMapping, FieldAnnotation
from trio_cogment.sdk.spec.yaml_file import YamlFile, is_blank

_CLASS_KEYS = ("layer", "actions", "observations")
_KEYS = ("shape", "minimum", "maximum", "dtype", "skip")
_MOST_DIGITS = 40


def read_classes(file: YamlFile, node: yaml.Node | None, name: str) -> dict[str, ClassMapping]:
    """Return the mappings of actor classes, by class.

    Args:
        file: the file.
        node: what is under `classes`; None: nothing.
        name: of the node, for errors.

    Raises:
        InvalidArgumentError: a key is unknown, or a value makes no sense; the text has the line.
    """
    entries = [] if node is None or is_blank(node) else file.entries(node, name)
    return {key: _class(file, value, f"{name}.{key}") for key, _, value in entries}


def _class(file: YamlFile, node: yaml.Node, name: str) -> ClassMapping:
    values = file.values(node, name, _CLASS_KEYS)
    given: dict[str, Any] = {}
    if "layer" in values:
        given["layer"] = file.text(values["layer"], f"{name}.layer")
        if given["layer"] not in LAYERS:
            what = f"expected one of {', '.join(LAYERS)}, got {given['layer']!r}"
            raise file.fault(values["layer"], f"{name}.layer: {what}")
    for side in ("actions", "observations"):
        if side in values:
            fields = file.entries(values[side], f"{name}.{side}")
            given[side] = {key: _annotation(file, value, f"{name}.{side}.{key}") for key, _, value in fields}
    return ClassMapping(**given)


def _annotation(file: YamlFile, node: yaml.Node, name: str) -> FieldAnnotation:
    values: Mapping[str, yaml.Node] = file.values(node, name, _KEYS)
    given: dict[str, Any] = {}
    for key, value in values.items():
        within = f"{name}.{key}"
        if key == "shape":
            given[key] = tuple(_integer(file, item, item_name) for item_name, item in file.items(value, within))
        elif key in ("minimum", "maximum"):
            given[key] = _numbers(file, value, within)
        elif key == "skip":
            text = file.text(value, within)
            if text not in ("true", "false"):
                raise file.fault(value, f"{within}: expected true or false, got {text!r}")
            given[key] = text == "true"
        else:
            given[key] = file.text(value, within)
    return FieldAnnotation(**given)


def _numbers(file: YamlFile, node: yaml.Node, name: str) -> Any:
    """Return a number, or numbers in lists within each other."""
    if isinstance(node, yaml.SequenceNode):
        return [_numbers(file, item, item_name) for item_name, item in file.items(node, name)]
    text = file.text(node, name)
    try:
        found: float = int(text) if len(text) <= _MOST_DIGITS else float(text)
    except ValueError:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
    if math.isnan(found):
        raise file.fault(node, f"{name}: expected a number, got {text[:100]!r}")
    return found


def _integer(file: YamlFile, node: yaml.Node, name: str) -> int:
    found = _numbers(file, node, name)
    if not isinstance(found, int) or not -1 <= found < 2**31:
        raise file.fault(node, f"{name}: expected a length, or -1 for any")
    return found
