"""A launch file as it is written: what is there is checked, its templates are parsed, but nothing is filled in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.suggestions import similar, suggestion
from trio_cogment.cli.launching.template import Template, TemplateError, plain
from trio_cogment.sdk.spec.yaml_file import YamlFile, described, file_in, is_blank, line_of

# Values of environment variables, as the reference writes them.
#
# It reads them as YAML 1.1 with types (Go's package `yaml.v2`) and writes them as Go does: `yes` is `true`, `0x10` is
# `16`, `1e3` is `1000`, and nothing is the empty text. What is in quotes stays as it is.

_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_SPECIAL = {
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), "+Inf"),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), "-Inf"),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), "NaN"),
}
_INTEGER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT = re.compile(r"[+-]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?")
#: Larger numbers are floats.
_INTEGERS = range(-(2**63), 2**64)


def environment_text(node: yaml.ScalarNode) -> str:
    """Return the text of a scalar that is the value of an environment variable."""
    text = str(node.value)
    if node.style is not None:
        return text
    if is_blank(node):
        return ""
    if text in _TRUE or text in _FALSE:
        return "true" if text in _TRUE else "false"
    return _SPECIAL.get(text) or _number(text) or text


def quiet_value(node: yaml.ScalarNode) -> bool | None:
    """Return the boolean of a scalar, None if it is none."""
    text = str(node.value)
    return True if text in _TRUE else False if text in _FALSE else None


def _number(text: str) -> str | None:
    if text.startswith("_"):
        return None
    digits = text.replace("_", "")
    match = _INTEGER.fullmatch(digits)
    if match is not None:
        sign, *groups = match.groups()
        base, found = next((base, group) for base, group in zip((16, 2, 8, 10), groups, strict=True) if group)
        if (value := int(f"{sign}{found}", base)) in _INTEGERS:
            return str(value)
    return plain(float(digits)) if _FLOAT.fullmatch(digits) else None


#: The launch file of a folder.
DEFAULT_NAMES = ("launch.yaml", "launch.yml")

_TOP_KEYS = ("global", "scripts")
_GLOBAL_KEYS = ("environment", "folder")
_SCRIPT_KEYS = ("environment", "folder", "dir", "quiet", "ready_output", "depends_on", "commands")


@dataclass(frozen=True, slots=True)
class Value:
    """A value with a template in it.

    Attributes:
        template: what it is made of.
        name: of the value, for errors.
        where: the file and the line, for errors.
    """

    template: Template
    name: str
    where: str

    def fault(self, text: str) -> InvalidArgumentError:
        """Return an error about this value."""
        return InvalidArgumentError(f"{self.where}: {self.name}: {text}")


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """A script as it is written."""

    name: str
    environment: dict[str, Value]
    folder: str
    quiet: bool
    ready_output: Value | None
    depends_on: tuple[str, ...]
    commands: tuple[tuple[Value, ...], ...]


@dataclass(slots=True)
class LaunchFile:
    """A launch file.

    Attributes:
        environment: of all scripts.
        folder: of all scripts, relative to the file's.
        scripts: in the order of the file; one at least.
        warnings: what has no effect, or is written in an old way.
    """

    path: Path
    environment: dict[str, Value] = field(default_factory=dict)
    folder: str = ""
    scripts: list[ScriptSource] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_launch_file(path: Path) -> LaunchFile:
    """Read a launch file.

    Args:
        path: the file, or the folder that has it; the file is named in every error.

    Raises:
        InvalidArgumentError: it cannot be read, or something in it is wrong; or there is none in that folder.
    """
    return _Reader(file_in(path, DEFAULT_NAMES)).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self._yaml = YamlFile(path)
        self._file = LaunchFile(path)

    def read(self) -> LaunchFile:
        root = self._yaml.root
        if root is None or is_blank(root):
            raise self._yaml.fault(root, "expected `scripts`, got an empty file")
        found = self._section(root, "the file", _TOP_KEYS, others_are_fine=True)
        if "global" in found:
            section = self._section(found["global"], "global", _GLOBAL_KEYS)
            self._file.environment = self._environment(section.get("environment"), "global.environment")
            self._file.folder = self._folder(section, "global")
        scripts = found.get("scripts")
        if scripts is None or not (entries := self._yaml.entries(scripts, "scripts")):
            raise self._yaml.fault(scripts or root, "scripts: expected one script at least")
        names = {name for name, _, _ in entries}
        for name, key, node in entries:
            if not name or not name.isprintable():
                raise self._yaml.fault(key, f"scripts: expected a printable name, got {name!r}")
            self._file.scripts.append(self._script(name, node, names))
        return self._file

    def _script(self, name: str, node: yaml.Node, names: Iterable[str]) -> ScriptSource:
        place = f"scripts.{name}"
        section = self._section(node, place, _SCRIPT_KEYS)
        if "commands" not in section:
            raise self._yaml.fault(node, f"{place}.commands: expected a list of commands, got nothing")
        commands = tuple(
            self._command(command, at) for at, command in self._yaml.items(section["commands"], f"{place}.commands")
        )
        if not commands:
            raise self._yaml.fault(section["commands"], f"{place}.commands: expected one command at least")
        ready = section.get("ready_output")
        return ScriptSource(
            name,
            self._environment(section.get("environment"), f"{place}.environment"),
            self._folder(section, place),
            self._quiet(section.get("quiet"), f"{place}.quiet"),
            None if ready is None else self._value(ready, f"{place}.ready_output"),
            self._depends_on(section.get("depends_on"), f"{place}.depends_on", names),
            commands,
        )

    def _section(
        self, node: yaml.Node, name: str, known: Sequence[str], *, others_are_fine: bool = False
    ) -> dict[str, yaml.Node]:
        """Return the values of a mapping that are there and not null; unknown keys are warned of, and ignored."""
        found = {}
        for key, key_node, value in self._yaml.entries(node, name):
            if key in known:
                if not is_blank(value):
                    found[key] = value
                continue
            # Files have parts there that other places refer to (`common: &common`).
            if not others_are_fine or similar(key, known):
                self._file.warnings.append(str(self._yaml.unknown_key(key_node, name, key, known)))
        return found

    def _environment(self, node: yaml.Node | None, name: str) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for key, key_node, value in [] if node is None else self._yaml.entries(node, name):
            if not key or "=" in key or "\0" in key:
                raise self._yaml.fault(key_node, f"{name}: expected the name of a variable, got {key!r}")
            self._text(value, f"{name}.{key}")
            assert isinstance(value, yaml.ScalarNode)
            found[key] = self._template(environment_text(value), value, f"{name}.{key}")
        return found

    def _folder(self, section: dict[str, yaml.Node], name: str) -> str:
        if "dir" in section:
            self._file.warnings.append(str(self._yaml.fault(section["dir"], f"{name}.dir: is called `folder` now")))
        key = "folder" if "folder" in section else "dir"
        return self._yaml.text(section[key], f"{name}.{key}") if key in section else ""

    def _quiet(self, node: yaml.Node | None, name: str) -> bool:
        if node is None:
            return False
        found = quiet_value(node) if isinstance(node, yaml.ScalarNode) else None
        if found is None:
            raise self._yaml.fault(node, f"{name}: expected true or false, got {described(node)}")
        return found

    def _depends_on(self, node: yaml.Node | None, name: str, scripts: Iterable[str]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for at, item in [] if node is None else self._yaml.items(node, name):
            other = self._yaml.text(item, at)
            if other not in scripts:
                advice = suggestion(other, sorted(scripts))
                raise self._yaml.fault(item, f"{at}: there is no script {other!r}; {advice}")
            found[other] = None
        return tuple(found)

    def _command(self, node: yaml.Node, name: str) -> tuple[Value, ...]:
        if is_blank(node):
            return ()
        if isinstance(node, yaml.ScalarNode):
            words = ", ".join(node.value.split())
            raise self._yaml.fault(node, f"{name}: expected a list of arguments such as [{words}], got one text")
        return tuple(self._value(item, at) for at, item in self._yaml.items(node, name))

    def _value(self, node: yaml.Node, name: str) -> Value:
        return self._template("" if is_blank(node) else self._text(node, name), node, name)

    def _text(self, node: yaml.Node, name: str) -> str:
        if isinstance(node, yaml.MappingNode):
            raise self._yaml.fault(
                node, f"{name}: expected one value, got a mapping; what begins with {{{{ needs quotes"
            )
        return self._yaml.text(node, name)

    def _template(self, source: str, node: yaml.Node, name: str) -> Value:
        try:
            template = Template(source)
        except TemplateError as error:
            raise self._yaml.fault(node, f"{name}: {error}") from error
        return Value(template, name, f"{self._file.path}: line {line_of(node)}")
