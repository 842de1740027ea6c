"""Reads the file of `--config`: the values of flags, and settings that no flag has, in one YAML file.

At its top are the flags by their names, and a mapping for each class of `trio_cogment.base.config`, by the names in
`SECTIONS`. A blank value counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.cli.configuration import READERS, SECTIONS, Configuration, section_class
from trio_cogment.cli.errors import Failure
from trio_cogment.sdk.spec.yaml_file import YamlFile, is_blank, line_of


def load_configuration(path: Path, flags: Mapping[str, bool]) -> Configuration:
    """Read a file.

    Args:
        path: where it is.
        flags: the flags it may have, each with whether it can be given several times.

    Raises:
        Failure: it cannot be read, or something in it is not understood; the text names the line.
    """
    try:
        return _load(path, flags)
    except InvalidArgumentError as error:
        raise Failure(f"--config: {error}") from error


def _load(path: Path, flags: Mapping[str, bool]) -> Configuration:
    file = YamlFile(path)
    found = Configuration()
    entries = [] if file.root is None or is_blank(file.root) else file.entries(file.root, "the file")
    sections: dict[str, Any] = {}
    for key, place, node in entries:
        if key in SECTIONS:
            sections[key] = section_class(key)() if is_blank(node) else _section(file, node, key, section_class(key))
        elif key not in flags:
            raise file.unknown_key(place, "the file", key, [*flags, *SECTIONS])
        elif not is_blank(node):
            found.flags[key] = _flag(file, node, key, several=flags[key])
            found.places[key] = f"{path}, line {line_of(place)}"
    return Configuration(sections=sections, flags=found.flags, places=found.places)


def _flag(file: YamlFile, node: yaml.Node, name: str, *, several: bool) -> str | list[str]:
    # As text: the flag itself converts and checks it.
    if several and isinstance(node, yaml.SequenceNode):
        return [file.text(item, item_name) for item_name, item in file.items(node, name)]
    text = file.text(node, name)
    return [text] if several else text


def _section(file: YamlFile, node: yaml.Node, name: str, kind: type[Any]) -> Any:
    types = {field.name: str(field.type) for field in fields(kind)}
    values: dict[str, Any] = {}
    places: dict[str, yaml.Node] = {}
    for key, place, value in file.entries(node, name):
        if key not in types:
            raise file.unknown_key(place, name, key, types)
        if is_blank(value):
            continue
        places[key] = place
        text = file.text(value, f"{name}.{key}")
        expected, read = READERS[types[key]]
        try:
            values[key] = read(text)
        except ValueError:
            raise file.fault(place, f"{name}.{key}: expected {expected}, got {text!r}") from None
    try:
        return kind(**values)
    except ValueError as error:
        # The message of the class itself begins with the name of the field.
        key = str(error).partition(":")[0]
        raise file.fault(places.get(key, node), f"{name}.{error}") from None
