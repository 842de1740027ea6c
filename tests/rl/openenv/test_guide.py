"""The guide's code runs as it is printed, in one go."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "rl-openenv.md").read_text(encoding="utf-8")


def test_every_block() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == GUIDE.count("```") // 2 == 4
    # What PettingZoo's games bring with them warns of what is old in Python's own packages.
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", "\n".join(blocks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
