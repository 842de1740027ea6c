"""The trial knows no I/O: it can be imported where there is none to be had."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trio_cogment.trial

BLOCKED = """
import sys
for name in ("trio", "purerpc", "anyio", "h2", "socket", "asyncio"):
    sys.modules[name] = None
import trio_cogment.trial
machine = trio_cogment.trial.TrialMachine("t")
print(machine.handle(trio_cogment.trial.Begin(), 0.0, 0))
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"numpy", "grpc", "click", "random", "uuid", "logging"}, loaded
"""

MODULES = sorted(Path(trio_cogment.trial.__file__).parent.glob("*.py"))
FOREIGN = (
    "trio_cogment.base.addressing",
    "trio_cogment.api",
    "trio_cogment.base.compiling",
    "trio_cogment.base.endpoints",
    "trio_cogment.base.errors",
    "trio_cogment.base.outcome",
    "trio_cogment.base.recount",
    "trio_cogment.base.rewards",
    "trio_cogment.base.shared_message",
    "trio_cogment.trial",
    "google.protobuf",
)
FORBIDDEN = {"time", "random", "uuid", "logging", "socket", "os", "io", "threading", "asyncio", "datetime", "trio"}


def test_it_imports_without_trio() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Announce(state=1)" in done.stdout


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_imports(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            top = name.partition(".")[0]
            assert name.startswith(FOREIGN) or (top in sys.stdlib_module_names and top not in FORBIDDEN), name
