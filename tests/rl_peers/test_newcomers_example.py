"""The first program that somebody writes, with Stable-Baselines3; see `tests.rl.test_newcomers_example`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.rl_peers


@pytest.mark.timeout(1200)
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.rl.test_newcomers_example import EXPORT, GAME, LEARNER, check, run

    run(LEARNER + GAME + EXPORT, tmp_path)
    assert check(tmp_path, monkeypatch) > 100
