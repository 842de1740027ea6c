"""Profiles as files: the section `dm_env_rpc` of a project file, or of a file of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import LAYERS, ClassMapping, FieldAnnotation
from trio_cogment.gateways.dm_env_rpc.gateway.profile import DEFAULT, Profile
from trio_cogment.gateways.dm_env_rpc.gateway.templates import CHOICES, FLAGS, POLICIES, SECONDS, WorldTemplate
from trio_cogment.sdk.spec import Spec, load_params, read_params
from trio_cogment.sdk.spec.project import load_spec
from trio_cogment.sdk.spec.yaml_file import YamlFile, is_blank

SECTION = "dm_env_rpc"
_PARAMS = "trial_params"
#: What a file means by the types of its trials, besides the path of a project file.
_OWN_TYPES = ("rl", "dm_env_rpc")
_PROJECT_FILES = ("cogment.yaml", "cogment.yml")
_OTHERS = "other_clients"
_KEYS = ("spec", "required_settings", "seed_field", "policies", "classes", "templates", _OTHERS)
_TEMPLATE_KEYS = ("params", _PARAMS, "policies", "classes", _OTHERS)
_MOST_DIGITS = 9
_CLASS_KEYS = ("layer", "actions", "observations")
_FIELD_KEYS = ("shape", "minimum", "maximum", "dtype", "skip")
_MOST_NUMBER_DIGITS = 40


def load_profile(path: str | Path) -> Profile:
    """Read a profile from a file. It blocks the thread.

    Args:
        path: the file. Without a section `dm_env_rpc` its `trial_params` are the only template.

    Raises:
        InvalidArgumentError: the file cannot be read, is not YAML, or has an unknown key or an invalid value; the text
            names the file, the line and the key.
        FailedPreconditionError: the types need `grpcio-tools`, and it is not installed.
    """
    return _Reader(YamlFile(path)).profile()


class _Reader:
    """Reads one file."""

    def __init__(self, file: YamlFile) -> None:
        self._file = file
        self._folder = Path(file.path).parent
        root = [] if file.root is None or is_blank(file.root) else file.entries(file.root, "the file")
        self._root = {key: node for key, _, node in root if not is_blank(node)}
        self._section = file.values(self._root.get(SECTION), SECTION, _KEYS)
        self._spec = self._found_spec()

    def profile(self) -> Profile:
        """Return what the file says."""
        section = self._section
        given: dict[str, Any] = {}
        if "required_settings" in section:
            given["required_settings"] = self._names(section, "required_settings", SECTION)
        if "seed_field" in section:
            given["seed_field"] = self._file.text(section["seed_field"], f"{SECTION}.seed_field")
        common = self._policies(section.get("policies"), f"{SECTION}.policies")
        common["classes"] = _read_classes(self._file, section.get("classes"), f"{SECTION}.classes")
        if _OTHERS in section:
            common[_OTHERS] = self._names(section, _OTHERS, SECTION)
        if "templates" in section:
            name = f"{SECTION}.templates"
            entries = self._file.entries(section["templates"], name)
            templates = {key: self._template(node, f"{name}.{key}", common) for key, _, node in entries}
        else:
            params = read_params(self._file, self._root.get(_PARAMS), _PARAMS, spec=self._spec)
            templates = {DEFAULT: self._made(self._root.get(_PARAMS), _PARAMS, params, common)}
        try:
            return Profile(templates=templates, spec=self._spec, **given)
        except InvalidArgumentError as error:
            raise self._file.fault(self._root.get(SECTION), f"{SECTION}: {error}") from None

    def _found_spec(self) -> Spec:
        node = self._section.get("spec")
        if node is None:
            if {"import", "actor_classes"} & self._root.keys():
                return load_spec(self._file.path)
            beside = [self._folder / name for name in _PROJECT_FILES if (self._folder / name).is_file()]
            return load_spec(beside[0]) if beside else Spec()
        text = self._file.text(node, f"{SECTION}.spec")
        if text == "rl":
            from trio_cogment.environments.spec import RL_SPEC

            return RL_SPEC
        if text == "dm_env_rpc":
            from trio_cogment.gateways.dm_env_rpc.bridge.served_server import DM_ENV_RPC_SPEC

            return DM_ENV_RPC_SPEC
        if not (self._folder / text).exists():
            own = ", ".join(_OWN_TYPES)
            what = f"expected {own} or the path of a project file; there is no file {text!r}"
            raise self._file.fault(node, f"{SECTION}.spec: {what}")
        return load_spec(self._folder / text)

    def _template(self, node: yaml.Node, name: str, common: Mapping[str, Any]) -> WorldTemplate:
        values = self._file.values(node, name, _TEMPLATE_KEYS)
        if ("params" in values) == (_PARAMS in values):
            got = "both" if "params" in values else "neither"
            raise self._file.fault(node, f"{name}: expected one of params (a file) and {_PARAMS}, got {got}")
        if "params" in values:
            path = self._folder / self._file.text(values["params"], f"{name}.params")
            try:
                params = load_params(path, spec=self._spec)
            except InvalidArgumentError as error:
                raise self._file.fault(values["params"], f"{name}.params: {error}") from None
        else:
            params = read_params(self._file, values[_PARAMS], f"{name}.{_PARAMS}", spec=self._spec)
        own = self._policies(values.get("policies"), f"{name}.policies")
        own["classes"] = {**common["classes"], **_read_classes(self._file, values.get("classes"), f"{name}.classes")}
        if _OTHERS in values:
            own[_OTHERS] = self._names(values, _OTHERS, name)
        return self._made(node, name, params, {**common, **own})

    def _names(self, values: Mapping[str, yaml.Node], key: str, name: str) -> tuple[str, ...]:
        items = self._file.items(values[key], f"{name}.{key}")
        return tuple(self._file.text(node, each) for each, node in items)

    def _made(
        self, node: yaml.Node | None, name: str, params: TrialParams, policies: Mapping[str, Any]
    ) -> WorldTemplate:
        try:
            return WorldTemplate(params=params, **policies)
        except InvalidArgumentError as error:
            raise self._file.fault(node, f"{name}: {error}") from None

    def _policies(self, node: yaml.Node | None, name: str) -> dict[str, Any]:
        found = {}
        for key, value in self._file.values(node, name, POLICIES).items():
            text = self._file.text(value, f"{name}.{key}")
            try:
                found[key] = _READERS[key](text)
            except ValueError as error:
                raise self._file.fault(value, f"{name}.{key}: expected {error}, got {text!r}") from None
        return found


# Policies


def _word(choices: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return read


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise ValueError("seconds, 0 or more")
    return found


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _start_when(text: str) -> str | int:
    if text in ("all", "first"):
        return text
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    raise ValueError("all, first or a number of actors")


_READERS: Mapping[str, Callable[[str], Any]] = {
    "start_when": _start_when,
    **{name: _word(choices) for name, choices in CHOICES.items()},
    **dict.fromkeys(SECONDS, _seconds),
    **dict.fromkeys(FLAGS, _flag),
}


# Mappings of actor classes


def _read_classes(file: YamlFile, node: yaml.Node | None, name: str) -> dict[str, ClassMapping]:
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
    values: Mapping[str, yaml.Node] = file.values(node, name, _FIELD_KEYS)
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
        found: float = int(text) if len(text) <= _MOST_NUMBER_DIGITS else float(text)
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
