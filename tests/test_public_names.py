"""The public names of the package: lists that agree, subpackages that are there, pages that describe them."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import trio_cogment

PACKAGE = Path(trio_cogment.__file__)
PAGES = PACKAGE.parents[2] / "docs" / "_extensions" / "public_api.py"
#: Commands, a demonstration, and leaves of which nothing is for users.
NOT_OFFERED = {"cli", "demo", "launch"}
LISTING = "import trio_cogment; print(*dir(trio_cogment))"


def for_type_checkers() -> dict[str, str]:
    """Return what type checkers are told: the module that each name is imported from."""
    [block] = [node for node in ast.parse(PACKAGE.read_text(encoding="utf-8")).body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom) and node.module != "typing"]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def documented() -> set[str]:
    """Return the packages that have a page in the API reference."""
    for node in ast.parse(PAGES.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PACKAGES":
            return set(ast.literal_eval(node.value))
    raise AssertionError("the list of the pages is gone")


@cache
def subpackages() -> frozenset[str]:
    """Return the subpackages that `dir()` names, where nothing else has imported any."""
    done = subprocess.run([sys.executable, "-c", LISTING], check=True, capture_output=True, text=True)
    public = {name for name in done.stdout.split() if not name.startswith("_")} - set(trio_cogment.__all__)
    return frozenset(name for name in public if importlib.util.find_spec(f"trio_cogment.{name}"))


def test_type_checkers_are_told_of_the_names_that_there_are() -> None:
    told = for_type_checkers()
    offered = set(trio_cogment.__all__) - {"__version__"}
    assert {name for name, home in told.items() if home != "trio_cogment"} == offered
    assert {name for name, home in told.items() if home == "trio_cogment"} == subpackages()
    for name in offered:
        assert getattr(trio_cogment, name) is getattr(sys.modules[told[name]], name)


@pytest.mark.parametrize("name", ["rl", "rpc", "sdk", "testing", "sync", "aio", "play", "spec", "config", "errors"])
def test_a_subpackage_needs_no_import_of_its_own(name: str) -> None:
    code = f"import trio_cogment; assert {name!r} in dir(trio_cogment); print(trio_cogment.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == f"trio_cogment.{name}"


def test_every_package_is_offered_unless_it_is_not_for_programs() -> None:
    packages = {path.parent.name for path in PACKAGE.parent.glob("[a-z]*/__init__.py")}
    assert packages - NOT_OFFERED <= subpackages()
    assert not NOT_OFFERED & subpackages()


def test_what_is_offered_is_in_the_docstring() -> None:
    for name in subpackages():
        assert f"`{name}`" in str(trio_cogment.__doc__)


def test_every_subpackage_has_a_page_in_the_reference() -> None:
    """The messages of `api` have a page of another form; what `gateways` offers is in its subpackages."""
    described = {name.split(".")[0] for name in documented()}
    assert described == subpackages() - {"api"}


def test_the_names_that_programs_with_people_need_come_from_the_package() -> None:
    for name in ("Game", "LobbyRules", "Outcome", "SeatRules", "Shortage", "lobby_link", "open_house", "play_routes"):
        assert hasattr(trio_cogment.play, name)
