"""References of a page of the API: each is found, and what is not there is reported."""

from __future__ import annotations

import re
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


NOT_THERE = ["Nothing", "trio.abc.Nothing", "trio_cogment.sdk.Nothing"]


@pytest.fixture(name="built", scope="module")
def _built(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Build a page with references in the module of the platform; return it and the warnings."""
    folder = tmp_path_factory.mktemp("site")
    references = " ".join(f":py:class:`{name}`" for name in ["Controller", "trio.abc.Stream", *NOT_THERE])
    (folder / "conf.py").write_text(CONF)
    (folder / "index.rst").write_text(
        "Page\n====\n\n.. py:class:: trio_cogment.platform.Platform\n\n"
        f"   {references}\n\n.. py:class:: trio_cogment.sdk.Controller\n"
    )
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(folder), str(folder / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "out" / "index.html").read_text(), done.stderr


def test_what_is_described_becomes_a_link(built: tuple[str, str]) -> None:
    """The module names it without its package."""
    page, _ = built
    assert 'href="#trio_cogment.sdk.Controller"' in page


def test_what_another_library_has_is_text(built: tuple[str, str]) -> None:
    page, _ = built
    assert "trio.abc.Stream" in page
    assert "trio.abc.Stream</a>" not in page


def test_what_is_not_there_is_reported_and_nothing_else(built: tuple[str, str]) -> None:
    _, warnings = built
    assert re.findall(r"reference target not found: (\S+)", warnings) == NOT_THERE
    assert len(warnings.splitlines()) == len(NOT_THERE)
