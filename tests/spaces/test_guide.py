"""The guide's code runs as it is printed, in one go."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import trio_cogment.spaces

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "spaces.md").read_text(encoding="utf-8")


def test_every_block() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == GUIDE.count("```") // 2 == 8
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_resolves() -> None:
    assert sorted(trio_cogment.spaces.__all__) == trio_cogment.spaces.__all__
    for name in trio_cogment.spaces.__all__:
        assert getattr(trio_cogment.spaces, name) is not None
