"""The type checker, run as users do: strict, over a folder of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Has what `nox -s types` has found out about the project and the packages that it uses.
CACHE = ROOT / ".mypy_cache"


def type_checked(folder: Path, **variables: str) -> str:
    """Check the modules of a folder with mypy; return what it prints.

    Args:
        folder: has the modules.
        **variables: of the environment.
    """
    cache = folder / ".mypy_cache"
    if CACHE.is_dir():  # else it takes some seconds more
        shutil.copytree(CACHE, cache)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "."]
    env = {**os.environ, "MYPY_CACHE_DIR": str(cache), **variables}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False)
    shutil.rmtree(cache, ignore_errors=True)
    return done.stdout + done.stderr
