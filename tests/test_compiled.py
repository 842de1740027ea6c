"""Compiled modules: those of the build hook, in an installation of a compiled wheel, and none elsewhere.

`nox -s compiled` installs such a wheel, says so in `TRIO_COGMENT_COMPILED`, and runs the suite on it.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path
from types import FunctionType

import pytest

from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._message_path import MessagePath
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.servers.orchestrator._trial import Trial
from trio_cogment.trial import TrialMachine

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOOK = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
MODULES: list[str] = HOOK["modules"]
#: Whether what is tested here is a compiled wheel.
COMPILED = bool(os.environ.get("TRIO_COGMENT_COMPILED"))
FUNCTIONS: list[object] = [
    TrialMachine.handle,
    Trial.feed,
    Engine.receive_data,
    SendQueue.send_at_once,
    MessagePath.send_nowait,
]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_compiled_in_a_compiled_wheel_alone(module: str) -> None:
    file = importlib.import_module(module.replace("/", ".")).__file__
    assert file is not None
    assert file.endswith(tuple(EXTENSION_SUFFIXES if COMPILED else SOURCE_SUFFIXES)), file


@pytest.mark.parametrize("function", FUNCTIONS, ids=["machine", "trial", "engine", "send queue", "path"])
def test_a_function_runs_in_the_interpreter_unless_it_is_compiled(function: object) -> None:
    assert isinstance(function, FunctionType) is not COMPILED


def test_every_compiled_module_has_its_source() -> None:
    assert sorted(set(MODULES)) == MODULES
    assert [module for module in MODULES if not (ROOT / "src" / f"{module}.py").exists()] == []


def test_a_wheel_is_pure_unless_somebody_asks() -> None:
    assert HOOK["enable-by-default"] is False


def test_what_is_interpreted_inherits_only_from_what_allows_it() -> None:
    closed = {
        (module.replace("/", "."), kind.name)
        for module in MODULES
        for kind in classes((ROOT / "src" / f"{module}.py").read_text())
        if not any("allow_interpreted_subclasses=True" in ast.unparse(one) for one in kind.decorator_list)
    }
    assert closed
    heir = re.compile(rf"^ *class \w+\(.*\b({'|'.join(sorted(name for _, name in closed))})\b", re.MULTILINE)
    compiled = {ROOT / "src" / f"{module}.py" for module in MODULES}
    bad = []
    for path in {*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")} - compiled:
        text = path.read_text()
        if heir.search(text):
            origins = imported(text)
            bad += [
                f"{path.relative_to(ROOT)}: {kind.name}"
                for kind in classes(text)
                for base in kind.bases
                if origins.get(ast.unparse(base)) in closed
            ]
    assert bad == []


def classes(text: str) -> list[ast.ClassDef]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]


def imported(text: str) -> dict[str, tuple[str, str]]:
    """Return what classes of the project a file imports, by the names there: the module that defines it, its name."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("trio_cogment"):
            for name in node.names:
                value = getattr(importlib.import_module(str(node.module)), name.name, None)
                found[name.asname or name.name] = (getattr(value, "__module__", ""), name.name)
    return found
