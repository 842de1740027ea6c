"""YAML files with error positions: a tree of nodes, each of which knows its line.

Scalars stay text: what `no`, `1e3` or `0x10` mean is decided by the code that reads the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.suggestions import suggestion

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_MERGE = "tag:yaml.org,2002:merge"
#: A limit, since aliases can make a small file expand to a huge document.
MAX_NODES = 100_000
#: A limit for the file itself: far more than anybody writes by hand.
MAX_BYTES = 4 * 2**20
#: What to do about what PyYAML complains of in words for its own authors.
_HINTS = {
    "mapping values are not allowed here": " (a text with a colon and a space in it needs quotes)",
    "'\\t' that cannot start": " (lines are indented by spaces)",
    "expected ',' or": " (a text with such a sign within { } or [ ] needs quotes)",
    "expected <block end>": " (the lines of a list, or of a mapping, are indented alike)",
}


def file_in(path: Path, names: Sequence[str]) -> Path:
    """Return a file, or the first one of some names in a folder.

    Raises:
        InvalidArgumentError: there is none in that folder.
    """
    if not path.is_dir():
        return path
    for name in names:
        if (path / name).is_file():
            return path / name
    raise InvalidArgumentError(f"{path}: there is no {' or '.join(names)} in this folder")


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {"<": yaml.SafeLoader.yaml_implicit_resolvers["<"]}  # noqa: RUF012  PyYAML's own form


class YamlFile:
    """A YAML file, read and parsed.

    Args:
        path: the file; named in every error.

    Attributes:
        root: the root node of its only document; None if the file is empty.

    Raises:
        InvalidArgumentError: the file cannot be read, or is not YAML.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._nodes = 0
        try:
            with Path(path).open("rb") as opened:
                content = opened.read(MAX_BYTES + 1)
            text = content.decode("utf-8")
        except OSError as error:
            raise InvalidArgumentError(f"{path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(f"{path}: not YAML: {error}") from error
        if len(content) > MAX_BYTES:
            raise InvalidArgumentError(f"{path}: larger than {MAX_BYTES // 2**20} MiB")
        try:
            self.root: yaml.Node | None = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            what = ", ".join(part for part in (error.context, error.problem) if part)
            mark = error.problem_mark or error.context_mark
            line = "" if mark is None else f"line {mark.line + 1}: "
            hint = next((hint for part, hint in _HINTS.items() if part in what), "")
            raise InvalidArgumentError(f"{path}: {line}not YAML: {' '.join(what.split())}{hint}") from error
        except yaml.YAMLError as error:
            raise InvalidArgumentError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
        except RecursionError:
            raise InvalidArgumentError(f"{path}: nested too deeply") from None

    def fault(self, node: yaml.Node | None, text: str) -> InvalidArgumentError:
        """Return an error with the position in the file."""
        return InvalidArgumentError(f"{self.place(node)}{text}")

    def place(self, node: yaml.Node | None) -> str:
        """Return the position in the file, as errors begin with it."""
        where = "" if node is None else f"line {line_of(node)}: "
        return f"{self.path}: {where}"

    def entries(
        self, node: yaml.Node, name: str, _within: tuple[yaml.Node, ...] = ()
    ) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """Return (key, the key's node, value) of a mapping, those of its `<<` last.

        Args:
            node: the mapping.
            name: its name in errors.

        Raises:
            InvalidArgumentError: the node is not a mapping, or has a key twice.
        """
        self._count(node)
        if not isinstance(node, yaml.MappingNode):
            raise self.fault(node, f"{name}: expected a mapping, got {described(node)}")
        own: dict[str, tuple[str, yaml.Node, yaml.Node]] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
            elif not isinstance(key, yaml.ScalarNode):
                raise self.fault(key, f"{name}: expected a name as the key, got {described(key)}")
            elif key.value in own:
                raise self.fault(key, f"{name}: the key {key.value!r} is given twice")
            else:
                own[key.value] = (key.value, key, value)
        within = (*_within, node)
        for other in merged:
            if other in within:
                raise self.fault(node, f"{name}: it is merged into itself")
            for entry in self.entries(other, name, within):
                own.setdefault(entry[0], entry)
        return list(own.values())

    def values(self, node: yaml.Node | None, name: str, known: tuple[str, ...]) -> dict[str, yaml.Node]:
        """Return the values of a mapping that are not blank, by key; of none for no node.

        Raises:
            InvalidArgumentError: the node is not a mapping, or has a key that is not among the known ones.
        """
        found = {}
        for key, place, value in [] if node is None or is_blank(node) else self.entries(node, name):
            if key not in known:
                raise self.unknown_key(place, name, key, known)
            if not is_blank(value):
                found[key] = value
        return found

    def items(self, node: yaml.Node, name: str) -> Iterator[tuple[str, yaml.Node]]:
        """Yield the name for errors and the node of each item of a list.

        Raises:
            InvalidArgumentError: the node is not a list.
        """
        self._count(node)
        if not isinstance(node, yaml.SequenceNode):
            raise self.fault(node, f"{name}: expected a list, got {described(node)}")
        yield from ((f"{name}[{number}]", item) for number, item in enumerate(node.value))

    def text(self, node: yaml.Node, name: str) -> str:
        """Return the text of a scalar, as it was written.

        Raises:
            InvalidArgumentError: it is none.
        """
        self._count(node)
        if not isinstance(node, yaml.ScalarNode):
            raise self.fault(node, f"{name}: expected one value, got {described(node)}")
        return str(node.value)

    def unknown_key(self, node: yaml.Node, name: str, key: str, known: Iterable[str]) -> InvalidArgumentError:
        """Return the error for a key that means nothing here, with what may have been meant."""
        names = sorted(set(known))
        return self.fault(node, f"{name}: unknown key {key!r}; {suggestion(key, names)}")

    def _count(self, node: yaml.Node) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self.fault(node, f"more than {MAX_NODES} values, aliases followed")


def line_of(node: yaml.Node) -> int:
    """Return the line on which a node begins, from 1."""
    return int(node.start_mark.line) + 1


def is_blank(node: yaml.Node) -> bool:
    """Return whether a value is empty or null, which counts as absent."""
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _NULLS


def described(node: yaml.Node) -> str:
    """Return the description of a node for errors."""
    if is_blank(node):
        return "nothing"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else repr(node.value)
