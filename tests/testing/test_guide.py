"""The guide's code runs as it is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import trio_cogment.testing

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "simulation.md"


def test_every_block(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    tests = sum(block.count("def test_") for block in blocks)
    assert len(blocks) >= tests == 11
    code = "import pytest\nimport trio\n" + "\n\n".join(blocks)
    (tmp_path / "test_guide.py").write_text(code, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntrio_mode = true\nfilterwarnings = error\naddopts = --strict-markers\n"
    )
    plugin = "trio_cogment.testing.pytest_plugin"
    installed = any(entry.value == plugin for entry in entry_points(group="pytest11"))
    loading = [] if installed else ["-p", plugin]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *loading, "test_guide.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert f"{tests - 1 + 25} passed" in done.stdout, done.stdout


def test_guide_names_what_there_is() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    unnamed = {"DEFAULT_BUDGET", "LEAST_ACK_SECONDS", "FakeDatalog", "FakeHook", "History", "HistoryEvent"}
    unnamed |= {"InvariantError", "SimulationError", "SimDisk", "Doomed"}
    unnamed |= {"SimConnection", "SimHost", "SimListener", "SimNetwork", "SimStream"}
    for name in set(trio_cogment.testing.__all__) - unnamed:
        assert name in text, name


def test_every_public_name_resolves_and_is_documented() -> None:
    for name in trio_cogment.testing.__all__:
        value = getattr(trio_cogment.testing, name)
        if isinstance(value, type) or callable(value):
            assert value.__doc__, name
    assert set(trio_cogment.testing.__all__) <= set(dir(trio_cogment.testing))
