"""Parameter files: YAML with `trial_params`, the form of the reference's default parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import json_format

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.errors import InvalidArgumentError

#: What a file gets that does not say how long a trial may be idle (seconds), as with the reference.
DEFAULT_MAX_INACTIVITY_SECONDS = 30

_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})


def load_params(path: str | Path) -> TrialParams:
    """Read the `trial_params` of a file; other top-level keys are passed over, so a whole cogment.yaml works.

    Keys are the fields of `TrialParams`, in snake_case or lowerCamelCase; a blank value counts as absent.

    Raises:
        InvalidArgumentError: the file cannot be read, is no YAML, or has an unknown key or a bad value; the text names
            the file and the key.
    """
    try:
        document = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Texts)
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise InvalidArgumentError(f"{path}: nested too deeply") from None
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"{path}: expected a mapping at the top, with the key trial_params")
    try:
        given = _without_blanks(document.get("trial_params"))
    except RecursionError:
        raise InvalidArgumentError(f"{path}: trial_params: nested too deeply, or an alias of itself") from None
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise InvalidArgumentError(f"{path}: trial_params: expected a mapping")
    params = TrialParams()
    try:
        json_format.Parse(json.dumps(_with_booleans(given)), params)
    except json_format.ParseError as error:
        raise InvalidArgumentError(f"{path}: trial_params: {' '.join(str(error).split())}") from error
    if "max_inactivity" not in given and "maxInactivity" not in given:
        params.max_inactivity = DEFAULT_MAX_INACTIVITY_SECONDS
    return params


class _Texts(yaml.SafeLoader):
    """Every scalar as the text it was written as: `no`, `1e3` or `0x10` mean nothing special, until a field says so."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  PyYAML's own form

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is given twice: YAML would silently take the last one."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for key in keys if key != "<<" and keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _without_blanks(value: Any) -> Any:
    if value in ("", "~", "null", None):
        return None
    if isinstance(value, dict):
        kept = {name: _without_blanks(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item is not None}
    if isinstance(value, list):
        return [item for item in map(_without_blanks, value) if item is not None]
    return value


def _with_booleans(params: dict[str, Any]) -> dict[str, Any]:
    # `optional` is the only boolean in the tree; JSON knows only one spelling of it.
    actors = params.get("actors")
    for actor in actors if isinstance(actors, list) else ():
        if isinstance(actor, dict) and isinstance(actor.get("optional"), str):
            text = actor["optional"].lower()
            if text in _TRUE | _FALSE:
                actor["optional"] = text in _TRUE
    return params
