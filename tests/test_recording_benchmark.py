"""The benchmark of recording measures what it says, at a size that shows nothing of speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).resolve().parents[1] / "benchmarks" / "recording.py"


def measured(*options: str) -> Any:
    command = [sys.executable, str(BENCHMARK), "--json", "--rounds=1", *options]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=110).stdout
    return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize(("game", "steps"), [("sprites", 300), ("duel", 30)])
def test_every_step_is_recorded_exported_and_read(game: str, steps: int) -> None:
    rows = ("view", "sqlite", "to_parquet", "read_parquet")
    values = measured(f"--games={game}", f"--steps={steps}", f"--rows={','.join(rows)}")
    for row in rows:
        assert values[f"{game}_{row}_cpu_us"] > 0
        assert values[f"{game}_{row}_wall_us"] > 0
    assert values[f"{game}_sqlite_disk"] > 0
    assert values[f"{game}_recorded"] > 1


def test_an_unknown_row_is_refused() -> None:
    command = [sys.executable, str(BENCHMARK), "--rows=everything"]
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "got everything" in done.stderr
