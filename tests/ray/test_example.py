"""The example `ray_cluster` runs as its README says, in the cluster of the tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import trio

from tests.example_folders import EXAMPLES, example
from tests.ray.cluster import Grid


def program(name: str) -> ModuleType:
    path = EXAMPLES / "ray_cluster" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # The cluster's processes have no such module: what is in it goes to them by value.
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    return module


def test_the_example(grid: Grid, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid.have(2)
    import sys

    for name, arguments in (("self_play", ("", 200)), ("orchestrators", ())):
        module = program(name)
        sys.modules[name] = module
        trio.run(module.main, *arguments)
    assert capsys.readouterr().out.splitlines() == example("ray_cluster", tmp_path).printed
