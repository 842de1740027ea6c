"""Finds what a name means in a module of this project, as Python and type checkers would.

Annotations are texts, and many of their names are imported for type checkers only; so the imports are read from the
source.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

OWN = "trio_cogment"


#: An error in a section "Raises" of a docstring.
_RAISED = re.compile(r"^ +(\w+Error): ", re.MULTILINE)


class MissingNameError(Exception):
    """A name means nothing."""


def meaning(name: str, place: str) -> Any:
    """Return what a dotted name stands for in a module.

    Raises:
        MissingNameError: nothing has that name.
    """
    first, *rest = name.split(".")
    for value in _first(first, place):
        try:
            for part in rest:
                value = _member(value, part)
        except MissingNameError:
            continue
        return value
    raise MissingNameError(name)


def classes_of(value: Any) -> Iterator[type]:
    """Yield the classes that annotations and docstrings of a function, or of a class with its members, name."""
    yield from _named_by(value)
    if inspect.isclass(value):
        yield from value.__bases__
        for name, member in vars(value).items():
            if not name.startswith("_") or name == "__init__":
                member = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
                yield from _named_by(member) if inspect.isfunction(member) else ()


def _named_by(value: Any) -> Iterator[type]:
    names = _RAISED.findall(inspect.getdoc(value) or "")
    for annotation in inspect.get_annotations(inspect.unwrap(value)).values():
        annotation = getattr(annotation, "__forward_arg__", annotation)  # those of a NamedTuple
        if isinstance(annotation, str):
            names += _names(annotation)
        else:
            yield from _classes(annotation)
    for name in names:
        try:
            yield from _classes(meaning(name, value.__module__))
        except MissingNameError:
            pass  # it is found otherwise, or reported


def _classes(value: Any) -> Iterator[type]:
    """Yield a class, or those of an alias."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from _classes(part)
    elif inspect.isclass(value):
        yield value
    else:
        yield from _classes(typing.get_args(value))


def _names(annotation: str) -> Iterator[str]:
    waiting: list[ast.AST] = [ast.parse(annotation, mode="eval")]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name | ast.Attribute):
            yield ast.unparse(node)
        elif not isinstance(node, ast.Constant):
            waiting += ast.iter_child_nodes(node)


def _first(name: str, place: str) -> list[Any]:
    module = importlib.import_module(place)
    values = [getattr(module, name)] if hasattr(module, name) else []
    if (imported := _imports(place).get(name)) is not None:
        values.append(_imported(imported))
    values += [getattr(scope, name) for scope in (builtins, typing) if hasattr(scope, name)]
    try:
        values.append(importlib.import_module(name))
    except ImportError:
        pass
    return values


def _member(value: Any, name: str) -> Any:
    if hasattr(value, name):
        return getattr(value, name)
    if isinstance(value, ModuleType):
        try:
            return importlib.import_module(f"{value.__name__}.{name}")
        except ImportError:
            pass
    raise MissingNameError(name)


def _imported(name: str) -> Any:
    first, *rest = name.split(".")
    value = importlib.import_module(first)
    for part in rest:
        value = _member(value, part)
    return value


@cache
def _imports(place: str) -> dict[str, str]:
    """Return what a module imports, for type checkers and within functions too: local name -> dotted name."""
    file = getattr(sys.modules[place], "__file__", None)
    if file is None:
        return {}
    found = {}
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            if isinstance(node, ast.ImportFrom):
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif alias.asname:
                found[alias.asname] = alias.name
            else:
                first = alias.name.split(".")[0]
                found[first] = first
    return found
