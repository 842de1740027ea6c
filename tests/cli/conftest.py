from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.process import run_main


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """The file with the secret that tokens are signed with."""
    path = tmp_path / "secret"
    assert run_main("token", "init", f"--auth_secret_file={path}").code == 0
    return path
