"""The table of `docs/sdk.md` lists every public item of the installed published SDK, and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.sdk.test_published_surface import surface

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


def test_the_table_lists_every_public_item(foreign_python: str, project: Path) -> None:
    done = subprocess.run(
        [foreign_python, str(project / "surface.py")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    installed = set(json.loads(done.stdout))
    listed = {item for items, _, _ in surface() for item in items}
    assert len(installed) > 350
    assert not installed - listed, "missing in the table"
    assert not listed - installed, "not in the published SDK"
