"""The public names of the package: lists that agree, subpackages that are there, pages that describe them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

import trio_cogment
from trio_cogment.base.errors import MissingExtraError

PACKAGE = Path(trio_cogment.__file__)
PAGES = PACKAGE.parents[2] / "docs" / "_extensions" / "public_api.py"
#: Commands, and what only the platform itself stands on.
NOT_OFFERED = {"cli", "budget"}
#: These offer subpackages and modules, and no names of their own.
HOUSES = {"base", "servers", "seats", "environments", "gateways"}
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


@pytest.mark.parametrize("name", ["rl", "rpc", "sdk", "testing", "sync", "aio", "play", "base", "servers"])
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
    """The messages of `api` have a page of another form; `rl` offers what is in `environments` and in `seats`."""
    described = {name.split(".")[0] for name in documented()}
    assert described == subpackages() - {"api", "environments", "seats"}


def test_the_names_that_programs_with_people_need_come_from_the_package() -> None:
    for name in ("Game", "LobbyRules", "Outcome", "SeatRules", "Shortage", "lobby_link", "open_play", "play_routes"):
        assert hasattr(trio_cogment.play, name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("play.open_house", "play.open_play"),
        ("play.PlayHouse", "play.PlayServer"),
        ("access.BytePool", "budget.byte_pool.BytePool"),
        ("access.Ledger", "budget.quotas.Ledger"),
        ("access.Loan", "budget.byte_pool.Loan"),
        ("access.PeerConnection", "budget.peer_limits.PeerConnection"),
        ("access.PeerLimits", "budget.peer_limits.PeerLimits"),
        ("rpc.measure_turns_by", "budget.turns.measure_turns_by"),
    ],
)
def test_names_of_0_2_0_work_and_name_the_new_ones(old: str, new: str) -> None:
    package, name = old.split(".")
    module, _, attribute = new.rpartition(".")
    with pytest.warns(DeprecationWarning, match=re.escape(f"trio_cogment.{old} is trio_cogment.{new} now")) as caught:
        value = getattr(importlib.import_module(f"trio_cogment.{package}"), name)
    assert [warning.filename for warning in caught] == [__file__]
    assert value is getattr(importlib.import_module(f"trio_cogment.{module}"), attribute)


@pytest.mark.parametrize("package", ["access", "play", "rpc"])
def test_packages_with_old_names_have_no_others(package: str) -> None:
    with pytest.raises(AttributeError, match=rf"module 'trio_cogment.{package}' has no attribute 'open_stage'"):
        importlib.import_module(f"trio_cogment.{package}").open_stage  # noqa: B018  it is the access that fails


#: The packages whose names are imported when they are first used.
LAZY = ("rl", "spaces", "sdk.spec", "base.host", "trainer", "testing", "gateways.dm_env_rpc")


def told_to_type_checkers(package: Path) -> dict[str, str]:
    """Return the module of each name that a package imports for type checkers only, without the package's own name."""
    tree = ast.parse(package.read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    inside = "trio_cogment." + ".".join(package.parent.relative_to(PACKAGE.parent).parts) + "."
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    own = [node for node in imports if str(node.module).startswith("trio_cogment.")]
    return {alias.name: str(node.module).removeprefix(inside) for node in own for alias in node.names}


@pytest.mark.parametrize("name", LAZY)
def test_lazy_names_are_those_that_type_checkers_see(name: str) -> None:
    package = importlib.import_module(f"trio_cogment.{name}")
    assert package.__file__
    homes: dict[str, str] = package._HOMES  # the table for Python, which nobody else may see
    assert told_to_type_checkers(Path(package.__file__)) == homes
    assert set(homes) <= set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match=f"module 'trio_cogment.{name}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018  it is the access that fails


@pytest.mark.parametrize("name", sorted({*subpackages(), *LAZY} - {"api"}))
def test_a_package_says_what_it_offers(name: str) -> None:
    module = importlib.import_module(f"trio_cogment.{name}")
    if not hasattr(module, "__path__"):
        return  # a module: its public names are those without an underscore
    if name in HOUSES:
        return
    assert module.__all__, f"{name} has no __all__"
    for each in module.__all__:
        with suppress(MissingExtraError):
            assert hasattr(module, each)


#: Packages within others.
INSIDE = (
    *(
        "base.config",
        "base.host",
        "base.metrics",
        "sdk.spec",
        "gateways.dm_env_rpc",
        "gateways.legacy",
        "gateways.rest",
    ),
    *("servers.orchestrator", "servers.datastore", "servers.model_registry", "servers.directory", "servers.discovery"),
    "trial.recording",
)


def test_no_public_name_is_anything_to_type_checkers(tmp_path: Path) -> None:
    """Strict type checkers see a type behind every public name: an `Any` is what a name that is not found becomes."""
    lines, asked = ["import trio_cogment"], []
    for package in ("", *sorted(subpackages() - {"api", *HOUSES}), *INSIDE):
        place = f"trio_cogment.{package}".rstrip(".")
        module = importlib.import_module(place)
        lines.append(f"import {place}")
        for name in getattr(module, "__all__", ()):
            if name != "__version__":
                asked.append(f"{place}.{name}")
    program = tmp_path / "names.py"
    program.write_text("\n".join([*lines, *(f"reveal_type({name})" for name in asked)]) + "\n")
    command = [sys.executable, "-m", "mypy", str(program)]  # strict by the project's settings, with its cache
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=PACKAGE.parents[2])
    revealed = [line for line in done.stdout.splitlines() if "Revealed type is" in line]
    assert len(revealed) == len(asked), done.stdout
    assert [line for line in revealed if line.endswith('is "Any"')] == []
    assert done.returncode == 0, done.stdout


#: Modules that documents name, since each needs a package of its own: a server measures without them.
NAMED_MODULES = {"web.metrics_endpoint", "base.metrics.prometheus"}


def documents() -> list[Path]:
    root = PACKAGE.parents[2]
    return [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / "examples").rglob("*.py"))]


def test_documents_import_from_packages() -> None:
    """A reader copies an import from a page: it has to be one that stays."""
    imported = re.compile(r"^\s*(?:from|import) trio_cogment\.([a-z_0-9.]+)", re.MULTILINE)
    deep = set()
    for document in documents():
        for name in imported.findall(document.read_text(encoding="utf-8")):
            place = PACKAGE.parent.joinpath(*name.split("."))
            is_package = (place / "__init__.py").is_file() or place.parent in (PACKAGE.parent, PACKAGE.parent / "base")
            if not is_package and not name.startswith("api.") and name not in NAMED_MODULES:
                deep.add(f"{document.name}: {name}")
    assert deep == set()
