"""Exports that are killed (SIGKILL) before each of their steps on the disk, and those that come next."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("kind", ["parquet", "minari"])
def test_an_export_that_is_killed_at_any_step(kind: str, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.rl.datasets.killing", str(tmp_path), kind]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)
    replacing = [step for step in steps if step["replacing"]]
    assert {step["read"] for step in replacing} == {1, 2}, "all of the old one, then all of the new one"
    assert [step["read"] for step in replacing] == sorted(step["read"] for step in replacing)
    assert any("solo-v0" not in step["left"] for step in replacing), "killed between the two names"
    assert {step["read"] for step in steps if not step["replacing"]} == {None, 2}
    assert any(len(step["left"]) > 1 for step in steps)
    for step in steps:
        assert step["there"] == ([] if step["read"] is None else ["solo-v0"]), step
        assert (step["at_last"], step["episodes"]) == (["solo-v0"], 2), step
    assert "an export was killed while it replaced this; what was there is back" in done.stderr
    assert "was left behind by a process that was killed; it is removed" in done.stderr
