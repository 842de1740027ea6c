"""The programs of docs/rl.md run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "rl.md").read_text(encoding="utf-8")


def output_of(heading: str) -> str:
    section = GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (program,) = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_agent() -> None:
    assert re.fullmatch(r"[0-9a-f-]{36}\n", output_of("One agent"))


def test_several_trials_at_once() -> None:
    assert output_of("Several trials at once") == "(4, 4)\n"


def test_other_seats() -> None:
    assert output_of("Other seats").endswith("1.0\n")
