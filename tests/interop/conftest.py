"""The published SDK's environment, and the application made for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.processes import HERE, Process
from tests.interop.scenes import Scene

SPACES = HERE.parents[1] / "protos" / "trio_cogment" / "api" / "spaces.proto"
BUSY_LOOPS = 4
#: How much longer everything may take beside them.
BUSY_SLOWNESS = 4


@pytest.fixture(scope="session")
def foreign_python() -> str:
    python = os.environ.get("TRIO_COGMENT_PUBLISHED_SDK_PYTHON")
    if python is None:
        pytest.fail("TRIO_COGMENT_PUBLISHED_SDK_PYTHON is not set; `nox -s interop` makes the environment and sets it")
    return python


@pytest.fixture(scope="session")
def project(foreign_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the application with its generated settings."""
    folder = tmp_path_factory.mktemp("project") / "app"
    shutil.copytree(HERE / "app", folder, ignore=shutil.ignore_patterns("__pycache__"))
    made = subprocess.run(
        [foreign_python, "-m", "cogment.generate", "--spec", "cogment.yaml", "--output", "cog_settings.py"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


@pytest.fixture(scope="session")
def rl_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of `rl/` with their messages, made as docs/rl-seats.md says."""
    folder = tmp_path_factory.mktemp("rl") / "rl"
    shutil.copytree(HERE / "rl", folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SPACES, folder)
    command = [sys.executable, "-m", "trio_cogment", "generate"]
    subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=True)
    return folder


@pytest.fixture
def scene(foreign_python: str, project: Path, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, foreign_python, project)
    with scene:
        yield scene


@pytest.fixture(scope="class")
def busy_loops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the machine busy; each loop ends by itself after an hour at the latest."""
    loop = "import time\nend = time.monotonic() + 3600\nwhile time.monotonic() < end: pass"
    folder = tmp_path_factory.mktemp("busy")
    with ExitStack() as stack:
        for number in range(BUSY_LOOPS):
            stack.enter_context(Process(f"busy-{number}", [sys.executable, "-c", loop], folder))
        yield
