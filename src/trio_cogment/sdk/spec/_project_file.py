"""Project files: what `cogment.yaml` declares, each declaration with its line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import yaml

from trio_cogment.base.suggestions import similar
from trio_cogment.sdk.spec._messages import well_known_protos
from trio_cogment.sdk.spec.yaml_file import YamlFile, described, file_in, is_blank

#: The names that are looked for when no file is named, in this order.
DEFAULT_NAMES = ("cogment.yaml", "cogment.yml")

#: The keys of each section: those with a meaning here, and those that other tools and earlier versions use.
_KEYS: Mapping[str, frozenset[str]] = {
    "": frozenset({"import", "trial", "environment", "actor_classes"})
    | {"commands", "components", "trial_params", "datalog", "dm_env_rpc", "legacy"},
    "import": frozenset({"proto", "python", "javascript"}),
    "trial": frozenset({"config_type", "pre_hooks"}),
    "environment": frozenset({"config_type"}),
    "actor_classes": frozenset({"name", "action", "observation", "config_type", "id"}),
    "action": frozenset({"space"}),
    "observation": frozenset({"space", "delta", "delta_apply_fn"}),
}
#: Keys of Cogment 1 that change what the others mean; a value that is not empty is refused.
_LEGACY = {
    "import.python": "is not supported since Cogment 2; remove it, and import the modules in your program",
    "import.javascript": "is not supported since Cogment 2; remove it, and import the modules in your program",
    "observation.delta": "is not supported since Cogment 2; remove it: each observation is sent whole",
    "observation.delta_apply_fn": "is not supported since Cogment 2; remove it: each observation is sent whole",
}


@dataclass(frozen=True)
class Declared:
    """A text of the file, and its place there: the name of a message type, or the path of a proto."""

    text: str
    what: str
    node: yaml.Node


@dataclass(frozen=True)
class DeclaredClass:
    """An actor class, with its types by name.

    Attributes:
        delta, delta_function: the type of changes of observations, and what applies them; of legacy files only.
    """

    name: str
    observation: Declared
    action: Declared
    config: Declared | None
    delta: Declared | None = None
    delta_function: Declared | None = None


class ProjectFile:
    """A `cogment.yaml`, checked except for the types that it names.

    Other top-level keys are ignored, as by the tools of the reference, unless they look like a misspelt one.

    Args:
        path: the file, or its folder.
        legacy: read a file of the legacy API, too: a class may have an `id` instead of a name, and deltas.

    Attributes:
        file: the YAML file, for errors.
        folder: the folder of the file, to which the paths of the protos are relative.
        protos: the protos, each once.
        actor_classes: the actor classes, in the order of the file.
        environment_config, trial_config: the types of these configurations, if there are any.
        is_legacy: it is a file of the legacy API: a class has an `id` instead of a name.

    Raises:
        InvalidArgumentError: the file cannot be read, is not YAML, or has an invalid value; the text names the file,
            the line and the key.
    """

    def __init__(self, path: str | Path, *, legacy: bool = False) -> None:
        self._reads_legacy = legacy
        self.is_legacy = False
        self.file = YamlFile(find_file(path))
        self.folder = Path(self.file.path).parent
        sections = self._sections(self.file.root, "", "the file")
        self.protos = list(self._protos(self._within(sections, "import")))
        self.environment_config = self._config(self._within(sections, "environment"), "environment")
        self.trial_config = self._config(self._within(sections, "trial"), "trial")
        self.actor_classes = list(self._actor_classes(sections.get("actor_classes")))

    def _sections(self, node: yaml.Node | None, section: str, name: str) -> dict[str, yaml.Node]:
        """Return the values of a mapping that are not blank, by their keys."""
        if node is None or is_blank(node):
            return {}
        values = {}
        known = _KEYS[section]
        for key, place, value in self.file.entries(node, name):
            if key not in known and similar(key, known, cutoff=0.75):
                raise self.file.unknown_key(place, name, key, known)
            empty = is_blank(value) or (isinstance(value, yaml.SequenceNode) and not value.value)
            if not (empty or self._reads_legacy) and (gone := _LEGACY.get(f"{section}.{key}")):
                raise self.file.fault(place, f"{name}.{key}: {gone}")
            if not is_blank(value):
                values[key] = value
        return values

    def _within(self, sections: Mapping[str, yaml.Node], section: str) -> dict[str, yaml.Node]:
        return self._sections(sections.get(section), section, section)

    def _protos(self, values: Mapping[str, yaml.Node]) -> Iterable[Declared]:
        seen = set()
        for name, item in self.file.items(values["proto"], "import.proto") if "proto" in values else ():
            text = self._text(item, name, "the path of a .proto file")
            path = PurePosixPath(text)
            if path.is_absolute() or ".." in path.parts:
                raise self.file.fault(
                    item, f"{name}: expected a path below the folder of this file, got {text!r}; move the file there"
                )
            if path.suffix != ".proto":
                raise self.file.fault(item, f"{name}: expected the path of a .proto file, got {text!r}")
            if not (self.folder.joinpath(path).is_file() or str(path) in well_known_protos()):
                raise self.file.fault(item, f"{name}: there is no file {text!r}{self._similar(path)}")
            if path not in seen:
                seen.add(path)
                yield Declared(str(path), name, item)

    def _similar(self, path: PurePosixPath) -> str:
        """Return what to try instead of a file that does not exist."""
        found = similar_protos(self.folder, path.name)
        if not found:
            of_protobuf = {PurePosixPath(known).stem: known for known in well_known_protos()}
            close = similar(path.stem, of_protobuf, cutoff=0.8)
            found = [] if close is None else [of_protobuf[close]]
        return f"; did you mean {found[0]!r}?" if found else "; paths are relative to the folder of this file"

    def _config(self, values: Mapping[str, yaml.Node], name: str) -> Declared | None:
        node = values.get("config_type")
        return None if node is None else self._type(node, f"{name}.config_type")

    def _actor_classes(self, node: yaml.Node | None) -> Iterable[DeclaredClass]:
        names: set[str] = set()
        for name, item in self.file.items(node, "actor_classes") if node is not None else ():
            values = self._sections(item, "actor_classes", name)
            if self._reads_legacy and "name" not in values and "id" in values:
                values["name"] = values["id"]
                self.is_legacy = True
            if "name" not in values:
                advice = "add 'name: ...'"
                if "id" in values:
                    advice = "'id' is its name in files of the legacy API; call the key 'name'"
                raise self.file.fault(item, f"{name}: it has no name; {advice}")
            class_name = self._text(values["name"], f"{name}.name", "a name")
            if class_name in names:
                raise self.file.fault(values["name"], f"{name}.name: there are two actor classes {class_name!r}")
            names.add(class_name)
            observation, action = (self._space(item, values, name, key) for key in ("observation", "action"))
            delta = self._delta(values["observation"], f"{name}.observation")
            yield DeclaredClass(class_name, observation, action, self._config(values, name), *delta)

    def _delta(self, node: yaml.Node, name: str) -> tuple[Declared | None, Declared | None]:
        if not self._reads_legacy:
            return None, None
        values = self._sections(node, "observation", name)
        kind = self._type(values["delta"], f"{name}.delta") if "delta" in values else None
        function = None
        if "delta_apply_fn" in values:
            place = f"{name}.delta_apply_fn"
            for key, _, value in self.file.entries(values["delta_apply_fn"], place):
                if key == "python" and not is_blank(value):
                    text = self._text(value, f"{place}.python", "module.function")
                    function = Declared(text, f"{place}.python", value)
        return kind, function

    def _space(self, item: yaml.Node, values: Mapping[str, yaml.Node], name: str, key: str) -> Declared:
        inner = self._sections(values.get(key), key, f"{name}.{key}")
        if "space" not in inner:
            place = values.get(key, item)
            raise self.file.fault(place, f"{name}: it has no {key} type; add '{key}: {{space: package.Message}}'")
        return self._type(inner["space"], f"{name}.{key}.space")

    def _type(self, node: yaml.Node, name: str) -> Declared:
        return Declared(self._text(node, name, "the full name of a message"), name, node)

    def _text(self, node: yaml.Node, name: str, wanted: str) -> str:
        text = self.file.text(node, name).strip()
        if not text:
            raise self.file.fault(node, f"{name}: expected {wanted}, got {described(node)}")
        return text


def find_file(path: str | Path) -> Path:
    """Return the project file that a path means: itself, or the one in that folder.

    Raises:
        InvalidArgumentError: there is none in that folder.
    """
    return file_in(Path(path), DEFAULT_NAMES)


def read_commands(path: str | Path) -> dict[str, str]:
    """Return the section `commands` of a project file: shell scripts by name.

    Raises:
        InvalidArgumentError: the file cannot be read, is not YAML, or a command is not text.
    """
    file = YamlFile(find_file(path))
    if file.root is None or is_blank(file.root):
        return {}
    for key, _, node in file.entries(file.root, "the file"):
        if key == "commands" and not is_blank(node):
            entries = file.entries(node, "commands")
            return {name: "" if is_blank(value) else file.text(value, f"commands.{name}") for name, _, value in entries}
    return {}


def similar_protos(folder: Path, name: str) -> list[str]:
    """Return the protos below a folder that have this name, or else a similar one; the best first."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.proto"))
    same = [path for path in paths if PurePosixPath(path).name == name]
    close = similar(name, paths, cutoff=0.8)
    return same or ([] if close is None else [close])
