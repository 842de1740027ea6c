"""Which modules run compiled: those of the build hook, in an installation of a compiled wheel, and none elsewhere.

`nox -s compiled` installs such a wheel, says so in `TRIO_COGMENT_COMPILED`, and runs the suite on it.
"""

from __future__ import annotations

import importlib
import os
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path
from types import FunctionType

import pytest

from trio_cogment.orchestrator._trial import Trial
from trio_cogment.rpc._engine import Engine
from trio_cogment.rpc._send_queue import SendQueue
from trio_cogment.trial import TrialMachine

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOOK = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
MODULES: list[str] = HOOK["modules"]
#: Whether what is tested here is a compiled wheel.
COMPILED = bool(os.environ.get("TRIO_COGMENT_COMPILED"))
FUNCTIONS: list[object] = [TrialMachine.handle, Trial.feed, Engine.receive_data, SendQueue.send_at_once]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_compiled_in_a_compiled_wheel_alone(module: str) -> None:
    file = importlib.import_module(module.replace("/", ".")).__file__
    assert file is not None
    assert file.endswith(tuple(EXTENSION_SUFFIXES if COMPILED else SOURCE_SUFFIXES)), file


@pytest.mark.parametrize("function", FUNCTIONS, ids=["machine", "trial", "engine", "send queue"])
def test_a_function_runs_in_the_interpreter_unless_it_is_compiled(function: object) -> None:
    assert isinstance(function, FunctionType) is not COMPILED


def test_every_compiled_module_has_its_source() -> None:
    assert sorted(set(MODULES)) == MODULES
    assert [module for module in MODULES if not (ROOT / "src" / f"{module}.py").exists()] == []


def test_a_wheel_is_pure_unless_somebody_asks() -> None:
    assert HOOK["enable-by-default"] is False
