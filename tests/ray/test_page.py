"""The programs of docs/many-trials.md run, with fewer trials; that of RLlib where RLlib is, in `test_rllib`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.ray.cluster import Grid

PAGE = Path(__file__).resolve().parents[2] / "docs" / "many-trials.md"


def program(word: str, **changes: str) -> dict[str, Any]:
    """Run the program of the page that has a word; return its names. Each change is of a text that it has."""
    (text,) = (block for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M) if word in block)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    names: dict[str, Any] = {"__name__": "__main__"}  # functions go to other processes by value, as those of a program
    exec(text, names)
    return names


def test_the_program_of_a_run(grid: Grid) -> None:
    grid.have(2)
    results = program("run_trials", **{"1000": "20", "workers(8)": "workers(2)"})["results"]
    assert len(results) == 20
    assert not results.failures
