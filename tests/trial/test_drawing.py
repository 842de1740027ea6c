"""The drawing in the docs is the table's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trio_cogment.trial._stream_table import StreamState
from trio_cogment.trial._trial_table import Phase

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "trial-states.md"


def test_it_is_fresh() -> None:
    command = [sys.executable, str(ROOT / "tools" / "draw_states.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_state_is_drawn() -> None:
    text = PAGE.read_text()
    for state in (*Phase, *StreamState):
        assert state.name in text
