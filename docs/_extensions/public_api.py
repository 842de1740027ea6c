"""Writes a page for each public package: its classes, functions and errors, from their docstrings.

The pages are made anew with each build, so they cannot be out of date. A name that several packages offer is described
on one page, that of the first in `PACKAGES`.
"""

from __future__ import annotations

import importlib
import inspect
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ROOT = "trio_cogment"
#: In the order in which a reader meets them.
PACKAGES = (
    "sdk",
    "platform",
    "spec",
    "config",
    "errors",
    "outcome",
    "endpoints",
    "host",
    "sync",
    "aio",
    "rl",
    "spaces",
    "gateways.dm_env_rpc",
    "gateways.legacy",
    "trainer.client",
    "testing",
    "recording",
    "rpc",
    "rpc.health",
    "rpc.tls",
    "orchestrator",
    "datastore",
    "model_registry",
    "directory",
    "discovery",
    "metrics",
    "metrics.prometheus",
    "metrics.participants",
    "metrics.endpoint",
    "trial",
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before the documents are read."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "api"))
    app.connect("autodoc-process-docstring", _turn_fences_into_directives, priority=100)
    return {"parallel_read_safe": True}


def write_pages(folder: Path) -> None:
    """Write an index and a page for each package."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = [f"{_ROOT}.{name}" for name in PACKAGES]
    for full in names:
        text = "\n".join(_page(full))
        (folder / f"{full}.md").write_text(text, encoding="utf-8")
    listed = "\n".join(names)
    root = "\n".join(_root_page())
    (folder / "index.md").write_text(f"{root}\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n", encoding="utf-8")


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield what a package offers and this project has defined: classes, functions and documented values."""
    for name in sorted(vars(module).keys() | set(dir(module))):
        value = getattr(module, name)
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if getattr(value, "__module__", "").startswith(_ROOT) and (inspect.isclass(value) or inspect.isfunction(value)):
            yield name, value


@cache
def described() -> Mapping[int, str]:
    """Return the identity of each value that a page describes -> the name under which it does."""
    found: dict[int, str] = {}
    for package in PACKAGES:
        full = f"{_ROOT}.{package}"
        for name, value in public_names(importlib.import_module(full)):
            found.setdefault(id(value), f"{full}.{name}")
    return found


def _page(full: str) -> Iterator[str]:
    module = importlib.import_module(full)
    yield f"# {full}"
    yield ""
    yield "```{eval-rst}"
    yield f".. automodule:: {full}"
    yield "   :no-members:"
    yield ""
    yield f".. currentmodule:: {full}"
    for name, value in public_names(module):
        if described()[id(value)] != f"{full}.{name}":
            continue
        yield ""
        if inspect.isclass(value):
            yield f".. autoclass:: {full}.{name}"
            yield "   :members:"
            yield "   :show-inheritance:"
        else:
            yield f".. autofunction:: {full}.{name}"
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
        where = described().get(id(value))
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
