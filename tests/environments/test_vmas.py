"""VMAS by name where it is not installed, and what is refused; tests/rl_peers/test_vmas.py plays its scenarios."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError, NotFoundError
from trio_cogment.environments.making import make_environment


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A VMAS in which there is nothing to play."""
    names = ["vmas", "vmas.simulator", "vmas.simulator.environment", "vmas.simulator.environment.environment", "torch"]
    modules = {name: ModuleType(name) for name in names}
    for name, module in modules.items():
        module.__spec__ = ModuleSpec(name, None)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    vmas: Any = modules["vmas"]
    vmas.scenarios, vmas.mpe_scenarios, vmas.debug_scenarios = ["balance", "flocking"], ["simple_tag"], []
    return modules["vmas"]


def test_a_scenario_that_there_is_not(package: ModuleType) -> None:
    with pytest.raises(NotFoundError, match=r"vmas/balanse.*balance"):
        make_environment("vmas/balanse")


@pytest.mark.parametrize("name", ["num_envs", "seed", "wrapper", "dict_spaces", "terminated_truncated", "device"])
def test_what_a_batch_of_one_has_for_itself(package: ModuleType, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name}: expected none: each trial has a batch of one"):
        make_environment("vmas/balance", **{name: 2})


def test_without_vmas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="vmas is not installed: pip install vmas"):
        make_environment("vmas/balance")
