"""The rules of the architecture, held against the sources; and tests that mirror them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools.rooms import (
    HOUSES,
    LEAVES,
    SOURCE,
    TABLE,
    allowed,
    circles,
    imports_of,
    module_imports,
    modules,
    pages,
    room_of,
)

ROOT = Path(__file__).resolve().parent.parent


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


@pytest.mark.parametrize("module", [name for name in modules() if room_of(name)])
def test_module_imports_only_what_its_room_may(module: str) -> None:
    room = room_of(module)
    assert room.startswith("_") or room in LEAVES or room in TABLE, f"a new room: {room} needs its row in the table"
    if room.startswith("_"):
        return  # the version, and `python -m trio_cogment`
    for target in module_imports()[module]:
        assert room_of(target) in allowed(room) | {room, "_version", "_old_places"}, f"{room} must not import {target}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(module_imports()) == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "c"}}) == [["b", "c"]]
    assert circles({"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()}) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) == []


def test_nobody_imports_a_private_module_of_another_folder() -> None:
    found = [
        f"{module} imports {target}"
        for module, targets in module_imports().items()
        for target in targets
        if not is_open_to(target, module)
    ]
    assert not found


def is_open_to(target: str, module: str) -> bool:
    """Whether each part with an underscore lies in a folder that the module is in, too."""
    parts = target.split(".")
    homes = [".".join(parts[:number]) for number, part in enumerate(parts) if part.startswith("_")]
    return all(f"{module}.".startswith(f"{home}.") for home in homes)


def test_private_modules_are_told_from_public_ones() -> None:
    assert is_open_to("trio_cogment.rpc._engine", "trio_cogment.rpc")
    assert is_open_to("trio_cogment.rpc._engine", "trio_cogment.rpc._connection")
    assert is_open_to("trio_cogment.rpc.calls", "trio_cogment.sdk.actor")
    assert not is_open_to("trio_cogment.rpc._engine", "trio_cogment.rpcs.calls")
    assert not is_open_to("trio_cogment.testing.sim._waiting", "trio_cogment.testing.fakes")


#: The pure packages, and what they import besides the standard library.
PURE = {
    "trial": {"google", "trio_cogment"},
    "access": {"trio_cogment"},
    "spaces": {"google", "trio_cogment", "numpy", "gymnasium"},
}


@pytest.mark.parametrize(
    "path", [path for path in modules().values() if package_of(path) in PURE], ids=lambda path: path.name
)
def test_the_pure_packages_are_pure(path: Path) -> None:
    allowed = {*sys.stdlib_module_names, *PURE[package_of(path)]}
    banned = {"time", "random", "uuid", "datetime", "logging", "os", "socket", "threading", "asyncio", "secrets"}
    for name in imports_of(path):
        top = name.split(".")[0]
        assert top in allowed, f"{path.name} imports {name}"
        assert top not in banned, f"{path.name} imports {name}"


@pytest.mark.parametrize("package", PURE)
def test_the_pure_packages_need_no_trio(package: str) -> None:
    """And nothing that comes with it, nor any extra but NumPy."""
    block = "import sys; sys.modules.update(dict.fromkeys(['trio', 'purerpc', 'anyio', 'gymnasium', 'minari']))"
    code = f"{block}; import trio_cogment.{package}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nothing_imports_testing() -> None:
    for module, targets in module_imports().items():
        if room_of(module) not in ("testing", ""):  # the package itself names all that it offers
            assert "testing" not in {room_of(target) for target in targets}, module


def test_the_pages_are_fresh() -> None:
    for path, text in pages().items():
        assert path.read_text() == text, f"{path.name} is stale: run tools/rooms.py"


#: What only the extras of this package need.
OF_EXTRAS = {
    *("numpy", "gymnasium", "pettingzoo", "dm_env", "pyarrow", "minari", "h5py", "PIL"),
    *("grpc_tools", "pyspiel", "obstore", "psycopg", "opentelemetry"),
}


def imported_with(module: str, of: set[str]) -> set[str]:
    """Return which of some packages are imported with a module."""
    code = f"import sys; import {module}; print(*({of} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_no_trio() -> None:
    assert imported_with("trio_cogment", {"trio", "purerpc", *OF_EXTRAS}) == set()


@pytest.mark.parametrize(
    "module", ["trio_cogment.rl", "trio_cogment.platform", "trio_cogment.sync", "trio_cogment.cli"]
)
def test_nothing_of_an_extra_is_imported_before_it_is_used(module: str) -> None:
    assert imported_with(module, OF_EXTRAS) == set()


def test_imports_are_seen() -> None:
    assert imported_with("trio_cogment.spaces", OF_EXTRAS) == {"numpy"}


def test_every_public_name_resolves() -> None:
    import trio_cogment

    for name in trio_cogment.__all__:
        assert getattr(trio_cogment, name) is not None
    assert set(trio_cogment.__all__) <= set(dir(trio_cogment))
    with pytest.raises(AttributeError):
        _ = trio_cogment.nothing_of_the_kind


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


#: What only the host, the command line and the simulation may take from the system; all others have a `Host`.
OUTSIDE = {
    *("time.time", "time.time_ns", "time.monotonic", "uuid.uuid4", "os.urandom", "socket.gethostname"),
    *("trio.open_tcp_stream", "trio.to_thread.run_sync"),
}
#: Where it is allowed nevertheless: module, name, reason.
OUTSIDE_ALLOWED = {
    ("trio_cogment.servers.datastore._sqlite", "time.monotonic"): "the real disk, looked at from worker threads",
    ("trio_cogment.servers.datastore.compacting", "time.monotonic"): "the real disk, looked at by a program alone",
    ("trio_cogment.base.object_store", "secrets.token_hex"): "names in a bucket, which nobody else may guess or repeat",
    ("trio_cogment.base.object_store", "time.monotonic"): "the grace of a thread that waits for a real server",
    ("trio_cogment.base.postgresql", "time.time"): "of the doctor, which compares real clocks",
    ("trio_cogment.servers.model_registry._object_blobs", "time.time"): "the age of an upload to a real server",
    ("trio_cogment.servers.model_registry._object_blobs", "socket.gethostname"): "is told to people who look for it",
    ("trio_cogment.base.about", "time.monotonic"): "measures the load of the real machine",
    ("trio_cogment.ray._worker", "time.monotonic"): "a thread that waits for others in a process of Ray, without Trio",
    ("trio_cogment.sdk._model_registry", "trio.to_thread.run_sync"): "writes a file that the user's program names",
    ("trio_cogment.sdk.access_token", "trio.to_thread.run_sync"): "reads a file that the user names",
    ("trio_cogment.base.tracing", "trio.to_thread.run_sync"): "waits for what a real receiver takes",
    ("trio_cogment.web.side", "trio.to_thread.run_sync"): "imports modules, which no simulation has another way for",
}


def taken_from_outside(tree: ast.AST) -> set[str]:
    """Return which of the system's functions some code names, by whichever way of importing them."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom):
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})

    def resolved(node: ast.AST) -> str:
        top, dot, rest = ast.unparse(node).partition(".")
        return names.get(top, top) + dot + rest

    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not node.args and resolved(node.func) == "random.Random":
            found.add("random.Random()")
        elif isinstance(node, ast.Attribute | ast.Name):
            name = resolved(node)
            if name in OUTSIDE or name.startswith("secrets."):
                found.add(name)
    return found


def test_what_comes_from_outside_comes_from_the_host() -> None:
    found = {
        (module, name)
        for module, path in modules().items()
        if room_of(module) not in {"base.host", "cli", "testing"}
        for name in taken_from_outside(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == OUTSIDE_ALLOWED.keys()


def test_what_comes_from_outside_is_found() -> None:
    def found(code: str) -> set[str]:
        return taken_from_outside(ast.parse(code))

    assert found("import time as t\nnow = t.monotonic") == {"time.monotonic"}
    assert found("from uuid import uuid4\nuuid4()") == {"uuid.uuid4"}
    assert found("import random, trio\nrandom.Random()\ntrio.to_thread.run_sync(f)") == {
        *("random.Random()", "trio.to_thread.run_sync")
    }
    assert found("from secrets import token_hex\ntoken_hex()") == {"secrets.token_hex"}
    assert found("import random\nrandom.Random(1)\nself.secrets.get()\ntime.process_time()") == set()


def walk(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.py")) if "_pb2" not in path.name]


def test_tests_mirror_the_sources() -> None:
    """Each folder of tests is named after a package, so that a reader finds the tests of a thing by its name."""
    others = {"account", "docs", "interop", "fuzz", "models", "mutants", "sim", "rl_peers", "stores"}
    assert folders(ROOT / "tests") - others <= folders(SOURCE)
    assert {"base", "trial", "rpc", "servers", "sdk", "seats", "cli", "api"} <= folders(ROOT / "tests")
    for house in HOUSES:
        assert folders(ROOT / "tests" / house) <= folders(SOURCE / house)


def folders(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir() if entry.is_dir()} - {"__pycache__"}


def test_no_error_filter_of_trio_util_is_used() -> None:
    """On today's Trio they replace whatever leaves their block by an AttributeError."""
    filters = {"defer_to_cancelled", "multi_error_defer_to"}
    found = [
        f"{path.relative_to(SOURCE)}: {alias.name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "trio_util"
        for alias in node.names
        if alias.name in filters
    ]
    assert not found
