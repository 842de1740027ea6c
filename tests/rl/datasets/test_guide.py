"""The guide's code runs as it is printed, in one go."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import trio

from tests.rl.datasets.recorded import Duel, play, recording

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "rl-datasets.md").read_text(encoding="utf-8")


async def test_every_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    game = Duel(3, out_at=None)
    async with recording(game, store=f"sqlite:{tmp_path / 'trials.db'}") as platform:
        await play(platform, game)
        await play(platform, game)
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == GUIDE.count("```python") == 4
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks)]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"12 steps of 2 trials\n")
