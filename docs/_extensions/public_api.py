"""Writes a page for each public package: its classes, functions and errors, from their docstrings.

The pages are made again with each build, so they cannot be out of date. A name that several packages offer is described
on one page, that of the first in `PACKAGES`. `references` resolves what the pages refer to.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import messages
from names import OWN as _ROOT
from names import MissingNameError, classes_of

from trio_cogment.base.errors import MissingExtraError

if TYPE_CHECKING:
    from sphinx.application import Sphinx

#: In the order in which a reader meets them.
PACKAGES = (
    "sdk",
    "platform",
    "sdk.spec",
    "base.config",
    "base.errors",
    "base.outcome",
    "base.endpoints",
    "base.host",
    "sync",
    "aio",
    "rl",
    "ray",
    "spaces",
    "gateways.dm_env_rpc",
    "gateways.legacy",
    "trainer.client",
    "testing",
    "trial.recording",
    "rpc",
    "rpc.health",
    "rpc.tls",
    "web",
    "access",
    "play",
    "experiment",
    "conformance",
    "dashboard",
    "servers.orchestrator",
    "servers.datastore",
    "servers.model_registry",
    "servers.directory",
    "servers.discovery",
    "base.metrics",
    "base.metrics.prometheus",
    "base.metrics.participants",
    "web.metrics_endpoint",
    "base.plugins",
    "trial",
)
#: What only the platform itself stands on.
_INNER = ("budget", "sdk.bridges")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before the documents are read."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "api"))
    app.connect("autodoc-process-docstring", _turn_fences_into_directives, priority=100)
    app.connect("autodoc-process-docstring", _separate_names, priority=100)
    app.connect("autodoc-process-docstring", _hide_colon, priority=100)
    app.connect("autodoc-process-docstring", _show_colon, priority=900)
    return {"parallel_read_safe": True}


def write_pages(folder: Path) -> None:
    """Write an index and a page for each package."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = [f"{_ROOT}.{name}" for name in PACKAGES]
    for full in names:
        text = "\n".join(_page(full))
        (folder / f"{full}.md").write_text(text, encoding="utf-8")
    (folder / f"{messages.PAGE}.md").write_text("\n".join([*messages.page(), ""]), encoding="utf-8")
    listed = "\n".join([*names, messages.PAGE])
    root = "\n".join(_root_page())
    (folder / "index.md").write_text(f"{root}\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n", encoding="utf-8")


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield what a package offers and this project has defined: classes, functions and documented values."""
    for name in sorted(vars(module).keys() | set(dir(module))):
        try:
            value = getattr(module, name)
        except MissingExtraError:
            continue  # the package around which it is built is too large for the site; another page is about it
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if getattr(value, "__module__", "").startswith(_ROOT) and (inspect.isclass(value) or inspect.isfunction(value)):
            yield name, value


@cache
def _pages() -> Mapping[str, list[tuple[str, Any]]]:
    """Return for each package what its page describes: names, in full, and values.

    That is what the package offers and no page before it has, and then the classes of public modules that occur in the
    signatures of these.
    """
    pages: dict[str, list[tuple[str, Any]]] = {}
    known = set[tuple[str, str]]()
    for package in PACKAGES:
        full = f"{_ROOT}.{package}"
        pages[full] = []
        for name, value in public_names(importlib.import_module(full)):
            if _defined(value) not in known:
                known.add(_defined(value))
                pages[full].append((f"{full}.{name}", value))
    for described in pages.values():
        for _, value in described:  # it grows meanwhile
            for needed in classes_of(value):
                if is_public(needed) and _defined(needed) not in known:
                    known.add(_defined(needed))
                    described.append((".".join(_defined(needed)), needed))
    return pages


@cache
def _names() -> Mapping[tuple[str, str], str]:
    return {_defined(value): name for described in _pages().values() for name, value in described}


def described(value: Any) -> str | None:
    """Return the name under which a page describes a class or function, if one does."""
    return _names().get(_defined(value))


def named(name: str) -> Any:
    """Return the only described value with a short name.

    Raises:
        MissingNameError: there is none, or there are several.
    """
    found = [value for values in _pages().values() for full, value in values if full.endswith(f".{name}")]
    if len(found) != 1:
        raise MissingNameError(name)
    return found[0]


def _defined(value: Any) -> tuple[str, str]:
    # Some functions are made again for each package that offers them, so their identity says nothing.
    return getattr(value, "__module__", ""), getattr(value, "__qualname__", "")


def is_public(value: Any) -> bool:
    """Tell whether a value is of a public module of this project, and no generated message."""
    module, name = _defined(value)
    return (
        module.split(".")[0] == _ROOT
        and not f"{module}.".startswith(tuple(f"{_ROOT}.{room}." for room in _INNER))
        and not module.startswith(f"{_ROOT}.api.")
        and not any(part.startswith("_") for part in [*module.split("."), *name.split(".")])
    )


def _page(full: str) -> Iterator[str]:
    yield f"# {full}"
    yield ""
    yield "```{eval-rst}"
    yield f".. automodule:: {full}"
    yield "   :no-members:"
    yield ""
    yield f".. currentmodule:: {full}"
    for name, value in _pages()[full]:
        yield ""
        if inspect.isclass(value):
            yield f".. autoclass:: {name}"
            yield "   :members:"
            yield "   :show-inheritance:"
        else:
            yield f".. autofunction:: {name}"
    yield "```"
    yield ""


def _root_page() -> Iterator[str]:
    module = importlib.import_module(_ROOT)
    yield "# API"
    yield ""
    yield "What most programs need is in `trio_cogment` itself:"
    yield ""
    yield "| name | meaning |"
    yield "|---|---|"
    for name, value in public_names(module):
        where = described(value)
        summary = (inspect.getdoc(value) or "").split("\n")[0].replace("|", "\\|")
        shown = f"{{py:obj}}`{name} <{where}>`" if where else f"`{name}`"
        yield f"| {shown} | {summary} |"
    yield ""
    yield "Everything else is in its packages; a name with a leading underscore is not for use elsewhere."


def _turn_fences_into_directives(
    _app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]
) -> None:
    """Docstrings mark code as the documents do, with fences; what reads them here knows directives."""
    fenced = False
    found = []
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
            indent = " " * (len(line) - len(line.lstrip()))
            found += [f"{indent}.. code-block:: {line.strip().removeprefix('```') or 'text'}", ""] if fenced else [""]
        else:
            found.append(f"   {line}" if fenced and line else line)
    lines[:] = found


_SEVERAL = re.compile(r"( +)(\w+(?:, \w+)+): (.+)")


def _separate_names(_app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]) -> None:
    """Make an entry of its own for each name of `a, b: what both are`."""
    found = []
    for line in lines:
        if several := _SEVERAL.fullmatch(line):
            indent, names, text = several.groups()
            found += [f"{indent}{name}: {text}" for name in names.split(", ")]
        else:
            found.append(line)
    lines[:] = found


#: Stands for a colon where napoleon would take what is before it for a type.
_COLON = "\ue03a"


def _hide_colon(_app: Sphinx, what: str, _name: str, _value: object, _options: object, lines: list[str]) -> None:
    if lines and what in ("attribute", "property", "data"):
        lines[0] = lines[0].replace(":", _COLON)


def _show_colon(_app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]) -> None:
    lines[:] = [line.replace(_COLON, ":") for line in lines]
