"""Resolves references of the API pages that Sphinx does not resolve alone; what is left then is a mistake.

Annotations name things as their module does: by an alias, by what is imported for type checkers only, by where a class is
defined and not by where it is described. So a name is looked up as the module would look it up:

- something that a page describes becomes a link;
- something of another library, or a generated message, stays text, as long as it exists. The site is built and
  read without a network, so it does not link to other sites;
- everything else is reported, and `nox -s docs` fails.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import public_api
from docutils import nodes
from sphinx import addnodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

_OWN = "trio_cogment"
#: What protoc has made is described by its .proto file.
_GENERATED = f"{_OWN}.api."


class _Missing(Exception):
    pass


def setup(app: Sphinx) -> dict[str, Any]:
    """Resolve what Sphinx does not find."""
    app.connect("missing-reference", _resolved)
    return {"parallel_read_safe": True}


def _resolved(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, shown: nodes.TextElement
) -> nodes.Node | None:
    if node.get("refdomain") != "py":
        return None
    try:
        value, module = _found(node["reftarget"], _place(node))
    except _Missing:
        return None
    if not _is_own(value, module):
        return shown
    page = public_api.described().get(id(value))
    if page is None:
        return None
    domain = env.domains["py"]
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", page, node, shown)


def _is_own(value: object, module: str) -> bool:
    """Tell whether a value is this project's, and described as that.

    A type variable or an alias says nothing that its annotation does not.
    """
    if not (inspect.isclass(value) or inspect.isroutine(value)) or isinstance(value, TypeVar):
        return False
    return module.split(".")[0] == _OWN and not module.startswith(_GENERATED)


def _place(node: nodes.Node) -> str:
    """Return the name of the module whose code has the reference."""
    while node is not None and not isinstance(node, addnodes.desc):
        node = node.parent
    if node is None:
        return _OWN
    signature = node[0]
    package = signature.get("module") or _OWN
    value: Any = importlib.import_module(package)
    found = package
    for part in signature.get("fullname", "").split("."):
        value = inspect.getattr_static(value, part, None)
        value = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
        found = getattr(value, "__module__", None) or found
    return found if found.split(".")[0] == _OWN else package


def _found(name: str, place: str) -> tuple[object, str]:
    """Return what a name means in a module, and the module that has defined it."""
    first, *rest = name.split(".")
    for value in _meanings(first, place):
        try:
            for part in rest:
                value = _member(value, part)
        except _Missing:
            continue
        return value, getattr(value, "__module__", None) or getattr(type(value), "__module__", "")
    raise _Missing(name)


def _meanings(name: str, place: str) -> list[Any]:
    module = importlib.import_module(place)
    values = []
    if hasattr(module, name):
        values.append(getattr(module, name))
    if (imported := _imports(place).get(name)) is not None:
        values.append(_imported(imported))
    values += [getattr(scope, name) for scope in (sys.modules["builtins"], sys.modules["typing"]) if hasattr(scope, name)]
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
    raise _Missing(name)


def _imported(name: str) -> Any:
    """Return what a dotted name leads to."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            value = _member(value, part)
        return value
    raise _Missing(name)


@cache
def _imports(place: str) -> dict[str, str]:
    """Return what a module imports, for type checkers and within functions too: local name -> dotted name."""
    file = getattr(sys.modules[place], "__file__", None)
    if file is None:
        return {}
    found = {}
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found
