"""Parameter files: the YAML that `--params` names, with a trial's default parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.message import DecodeError, EncodeError, Message

from trio_cogment.api.common_pb2 import ActorParams, SerializedMessage, TrialParams
from trio_cogment.sdk.spec._message_fields import FieldReader
from trio_cogment.sdk.spec._project_file import DEFAULT_NAMES, ProjectFile
from trio_cogment.sdk.spec._types import Spec
from trio_cogment.sdk.spec.yaml_file import YamlFile, is_blank

#: The `max_inactivity` of files that do not give one, in seconds, as with the reference.
DEFAULT_MAX_INACTIVITY_SECONDS = 30

_ROOT = "trial_params"
_SPEC = "spec"
_NONE: Mapping[str, Callable[[], Spec]] = {}
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


def load_params(
    path: str | Path,
    *,
    spec: Spec | None = None,
    named: Mapping[str, Callable[[], Spec]] = _NONE,
    max_inactivity_seconds: int = DEFAULT_MAX_INACTIVITY_SECONDS,
) -> TrialParams:
    """Read the `trial_params` of a file; other top-level keys are ignored, so that a whole cogment.yaml works.

    Keys are the fields of `TrialParams`, in snake_case or lowerCamelCase; a blank value counts as absent.
    Configurations and default actions are `{content: <base64>}`, or the fields of their type.

    Args:
        path: the file.
        spec: the types; by default those that the file's key `spec` names, those of the file itself if it imports
            protos, or else of the `cogment.yaml` beside it. They are looked up only if the file gives fields.
        named: types that have a name, which the key `spec` may have in place of the path of a project file.
        max_inactivity_seconds: the `max_inactivity` of a file that gives none.

    Raises:
        InvalidArgumentError: the file cannot be read, is not YAML, or has an unknown key or an invalid value; the
            text names the file, the line and the key.
        FailedPreconditionError: the file gives fields of the project's types, and `grpcio-tools` is not installed.
    """
    file = YamlFile(path)
    found: yaml.Node | None = None
    if file.root is not None and not is_blank(file.root):
        for key, place, node in file.entries(file.root, "the file"):
            if key == _ROOT and not is_blank(node):
                found = node
            else:
                _refuse_legacy(file, key, place, node)
    return read_params(file, found, _ROOT, spec=spec, named=named, max_inactivity_seconds=max_inactivity_seconds)


def read_params(
    file: YamlFile,
    node: yaml.Node | None,
    name: str,
    *,
    spec: Spec | None = None,
    named: Mapping[str, Callable[[], Spec]] = _NONE,
    max_inactivity_seconds: int = DEFAULT_MAX_INACTIVITY_SECONDS,
) -> TrialParams:
    """Read trial parameters that are a part of a file; see `load_params`, also for what is raised.

    Args:
        file: the file.
        node: the parameters; None: there are none, and all of them have their defaults.
        name: of the part, in errors.
        spec: the types.
        named: see `load_params`.
        max_inactivity_seconds: see `load_params`.
    """
    payloads = _Payloads(file, spec, named)
    reader = FieldReader(file, refused=_LEGACY, special={SerializedMessage.DESCRIPTOR.full_name: payloads.read})
    params = TrialParams()
    given = set() if node is None else reader.fill(node, params, name)
    payloads.finish()
    if "max_inactivity" not in given:
        params.max_inactivity = max_inactivity_seconds
    return params


class _Payloads:
    """The configurations and default actions of a file.

    Those that are given by fields are filled at the end: only then is the class of each actor known.
    """

    def __init__(self, file: YamlFile, spec: Spec | None, named: Mapping[str, Callable[[], Spec]]) -> None:
        self._file = file
        self._spec = spec
        self._named = named
        self._plain = FieldReader(file, refused=_LEGACY)
        self._waiting: list[tuple[yaml.Node, SerializedMessage, Any, str]] = []

    def read(self, node: yaml.Node, target: SerializedMessage, within: Any, name: str) -> None:
        """Read a payload that is a field of `within`, or keep it for the end."""
        if all(key == "content" for key, _, _ in self._file.entries(node, name)):
            self._plain.fill(node, target, name)
        else:
            self._waiting.append((node, target, within, name))

    def finish(self) -> None:
        """Fill the payloads that are given by fields."""
        for node, target, within, name in self._waiting:
            kind = self._kind(node, within, name)
            target.content = self._content(node, kind, name)

    def _content(self, node: yaml.Node, kind: type[Message], name: str) -> bytes:
        message: Any = kind()
        try:
            self._plain.fill(node, message, name)
            if missing := message.FindInitializationErrors():
                raise self._file.fault(node, f"{name}: it has no {missing[0]!r}, which is required")
            content: bytes = message.SerializeToString()
            # Who receives it reads a hundred levels only.
            kind.FromString(content)
        except (RecursionError, DecodeError, EncodeError):
            raise self._file.fault(node, f"{name}: nested too deeply") from None
        return content

    def _kind(self, node: yaml.Node, within: Any, name: str) -> type[Message]:
        if self._spec is None:
            self._spec = self._found_spec(node, name)
        kind: type[Message] | None
        if isinstance(within, ActorParams):
            actor_class = self._spec.actor_class(within.actor_class)
            kind = actor_class.config if name.endswith(".config") else actor_class.action
            of = f"the actor class {within.actor_class!r}"
        elif isinstance(within, TrialParams):
            kind, of = self._spec.trial_config, "trials"
        else:
            kind, of = self._spec.environment_config, "environments"
        if kind is None:
            raise self._file.fault(node, f"{name}: the project declares no such type for {of}; use {{content: BASE64}}")
        return kind

    def _found_spec(self, node: yaml.Node, name: str) -> Spec:
        from trio_cogment.sdk.spec.project import load_spec

        source = _source_of_types(self._file, self._named)
        if isinstance(source, Path):
            return load_spec(source, legacy=True)  # with --legacy, the project file beside it is an old one
        if source is not None:
            return self._named[source]()
        key, place, _ = next(entry for entry in self._file.entries(node, name) if entry[0] != "content")
        text = (
            f"{name}: the type of {key!r} is not known; use {{content: BASE64}}, or have a cogment.yaml in this folder"
        )
        raise self._file.fault(place, text)


def declared_classes(path: str | Path, *, named: Mapping[str, Callable[[], Spec]]) -> tuple[str, list[str]] | None:
    """Return the actor classes that go with a parameter file; protos are not compiled for that.

    Args:
        path: the file.
        named: see `load_params`.

    Returns:
        What declares them, and their names; None if the file says nothing of types, and no project file is beside it.

    Raises:
        InvalidArgumentError: the file, or the project file, cannot be read, or has an invalid value.
    """
    source = _source_of_types(YamlFile(path), named)
    if isinstance(source, Path):
        return str(source), [declared.name for declared in ProjectFile(source, legacy=True).actor_classes]
    return None if source is None else (source, list(named[source]().names()))


def _source_of_types(file: YamlFile, named: Mapping[str, object]) -> Path | str | None:
    """Return where the types of a parameter file are: the path of a project file, or a name; None: nowhere.

    Raises:
        InvalidArgumentError: the file names what is not there.
    """
    own = Path(file.path)
    root: dict[str, yaml.Node] = {}
    if file.root is not None and not is_blank(file.root):
        root = {key: value for key, _, value in file.entries(file.root, "the file")}
    if _SPEC in root and not is_blank(root[_SPEC]):
        text = file.text(root[_SPEC], _SPEC)
        if text in named:
            return text
        if not (own.parent / text).exists():
            known = "".join(f"{each}, " for each in named)
            what = f"{_SPEC}: expected {known}or the path of a project file; there is no file {text!r}"
            raise file.fault(root[_SPEC], what.replace(", or", " or"))
        return own.parent / text
    if "import" in root:
        return own
    return next((own.parent / beside for beside in DEFAULT_NAMES if (own.parent / beside).is_file()), None)


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
