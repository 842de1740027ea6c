"""The example of Stable-Baselines3 runs as its README says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.example_folders import example

pytestmark = pytest.mark.rl_peers


@pytest.mark.timeout(300)
def test_stable_baselines(tmp_path: Path) -> None:
    found = example("stable_baselines", tmp_path)
    assert found.run() == found.printed
