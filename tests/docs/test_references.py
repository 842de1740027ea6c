"""What a page of the API refers to is found, and what is not there is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONF = f"""\
import sys

sys.path.insert(0, {str(ROOT / "docs" / "_extensions")!r})
extensions = ["references"]
nitpicky = True
"""


def built(folder: Path, reference: str) -> tuple[str, str]:
    """Build a page with a reference in the module of the platform; return it and the warnings."""
    (folder / "conf.py").write_text(CONF)
    (folder / "index.rst").write_text(
        "Page\n====\n\n.. py:class:: trio_cogment.platform.Platform\n\n"
        f"   A :py:class:`{reference}` here.\n\n.. py:class:: trio_cogment.sdk.Controller\n"
    )
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(folder), str(folder / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "out" / "index.html").read_text(), done.stderr


def test_what_is_described_becomes_a_link(tmp_path: Path) -> None:
    """The module names it without its package."""
    page, warnings = built(tmp_path, "Controller")
    assert 'href="#trio_cogment.sdk.Controller"' in page
    assert warnings == ""


def test_what_another_library_has_is_text(tmp_path: Path) -> None:
    page, warnings = built(tmp_path, "trio.abc.Stream")
    assert "trio.abc.Stream" in page
    assert warnings == ""


@pytest.mark.parametrize("reference", ["Nothing", "trio.abc.Nothing", "trio_cogment.sdk.Nothing"])
def test_what_is_not_there_is_reported(reference: str, tmp_path: Path) -> None:
    _, warnings = built(tmp_path, reference)
    assert f"reference target not found: {reference}" in warnings
