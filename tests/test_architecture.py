"""The import table of the architecture, read from the sources; and tests that mirror them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "trio_cogment"
DOCUMENT = ROOT / "docs" / "architecture.md"

#: What every package but `trial` may import; `rpc` gets of the API only what its row says.
COMMON = {
    "errors",
    "config",
    "backoff",
    "rewards",
    "services",
    "endpoints",
    "about",
    "host",
    "logs",
    "metrics",
    "_version",
    "api",
}

#: package -> what it may import of ours besides `COMMON`.
TABLE: dict[str, set[str]] = {
    "_version": set(),
    "errors": set(),
    "config": set(),
    "backoff": set(),
    "rewards": set(),
    "services": set(),
    "endpoints": set(),
    "about": set(),
    "host": set(),
    "logs": set(),
    "metrics": set(),
    "api": set(),
    "trial": set(),
    "recording": {"trial"},
    "rpc": set(),
    "discovery": {"rpc"},
    "directory": {"rpc"},
    "orchestrator": {"trial", "rpc", "discovery"},
    "model_registry": {"rpc"},
    "spec": set(),
    "sdk": {"spec", "rpc", "discovery"},
    "datastore": {"rpc"},
    "platform": {
        "orchestrator",
        "datastore",
        "discovery",
        "directory",
        "model_registry",
        "trial",
        "rpc",
        "spec",
        "sdk",
    },
    "demo": {"platform", "sdk", "spec", "rpc"},
    "testing": {
        "orchestrator",
        "datastore",
        "discovery",
        "directory",
        "model_registry",
        "trial",
        "rpc",
        "spec",
        "sdk",
        "platform",
    },
    "cli": {
        "platform",
        "sdk",
        "spec",
        "trial",
        "recording",
        "demo",
        "rpc",
        "discovery",
        "directory",
        "datastore",
        "model_registry",
    },
    "__init__": {"platform", "sdk", "spec", "orchestrator"},
    "__main__": {"cli"},
}
#: Only these of the common modules, for the packages named.
NARROWED = {
    "trial": {"api", "errors", "endpoints", "rewards"},
    "host": {"errors", "config"},
    "rpc": {"errors", "config", "backoff", "host", "_version"},
    "_version": set(),
    "errors": set(),
    "backoff": set(),
    "rewards": set(),
    "services": {"api"},
    "endpoints": {"errors", "services"},
}
#: Whose inside (a name with an underscore) nobody else may touch.
PUBLIC_ONLY = {
    "host",
    "rpc",
    "orchestrator",
    "datastore",
    "discovery",
    "directory",
    "model_registry",
    "trial",
    "recording",
    "sdk",
    "spec",
}


def modules() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if not path.name.endswith("_pb2.py")]


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports_of(path: Path) -> Iterator[str]:
    """Yield the dotted names a module imports, `from x import y` as `x.y`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_module_imports_only_what_its_package_may(path: Path) -> None:
    package = package_of(path)
    assert package in TABLE, f"a new package: {package} needs its row in the table"
    allowed = TABLE[package] | NARROWED.get(package, COMMON) | {package}
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] != "trio_cogment":
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        assert target in allowed, f"{package} must not import {name}"
        if target in PUBLIC_ONLY and target != package:
            # The last part may be a name that the package exports; a module below with an underscore is its inside.
            assert not any(part.startswith("_") for part in parts[2:]), f"{package} reaches into {name}"


@pytest.mark.parametrize(
    "path", [path for path in modules() if package_of(path) == "trial"], ids=lambda path: path.name
)
def test_trial_is_pure(path: Path) -> None:
    allowed = {*sys.stdlib_module_names, "google", "trio_cogment"}
    banned = {"time", "random", "uuid", "datetime", "logging", "os", "socket", "threading", "asyncio", "secrets"}
    for name in imports_of(path):
        top = name.split(".")[0]
        assert top in allowed, f"trial imports {name}"
        assert top not in banned, f"trial imports {name}"


def test_nothing_imports_testing() -> None:
    for path in modules():
        if package_of(path) != "testing":
            assert not any(name.startswith("trio_cogment.testing") for name in imports_of(path)), path


def test_table_in_the_document_is_this_table() -> None:
    rows = {}
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 2:
            rows[cells[0].strip("`")] = {name.strip(" `") for name in cells[1].split(",") if name.strip(" `-")}
    assert rows == {name: allowed for name, allowed in TABLE.items() if not name.startswith("_")}


def test_importing_the_package_imports_no_trio() -> None:
    code = "import sys; import trio_cogment; sys.exit('trio' in sys.modules or 'purerpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_resolves() -> None:
    import trio_cogment

    for name in trio_cogment.__all__:
        assert getattr(trio_cogment, name) is not None
    assert set(trio_cogment.__all__) <= set(dir(trio_cogment))
    with pytest.raises(AttributeError):
        _ = trio_cogment.nothing_of_the_kind


def test_a_long_module_says_why() -> None:
    """A module of more than 400 lines has "long because" and the reason in its docstring."""
    long = {path: text for path in modules() if len((text := path.read_text(encoding="utf-8")).splitlines()) > 400}
    assert not [path for path, text in long.items() if "long because" not in (ast.get_docstring(ast.parse(text)) or "")]


def test_nothing_is_silenced_without_a_reason() -> None:
    """What a tool says is either mended, or a reason not to stands behind the comment that silences it."""
    mark = re.compile(r"# (?:noqa: [A-Z0-9]+(?:, [A-Z0-9]+)*|type: ignore\[[a-z, -]+\]|pragma: no \w+)")
    bare = re.compile(rf"{mark.pattern}(?: *{mark.pattern})* *$")
    files = [path for folder in ("src", "tests", "tools", "benchmarks", "examples") for path in walk(ROOT / folder)]
    assert len(files) > 300
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if bare.search(line)
    ]
    assert not found


def walk(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.py")) if "_pb2" not in path.name]


def test_tests_mirror_the_sources() -> None:
    """Each folder of tests is named after a package, so that a reader finds the tests of a thing by its name."""
    others = {"interop", "fuzz", "sim", "__pycache__"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - others
    assert folders <= set(TABLE)
    assert {
        "trial",
        "rpc",
        "orchestrator",
        "discovery",
        "model_registry",
        "spec",
        "sdk",
        "cli",
        "api",
        "demo",
    } <= folders
