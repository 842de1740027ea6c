"""Results of trials in a file of TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rl.runner.test_callbacks import RESULT, results
from trio_cogment.rl.runner.callbacks import TensorBoard

pytestmark = pytest.mark.rl_peers


def test_results_are_in_its_file(tmp_path: Path) -> None:
    callback = TensorBoard(str(tmp_path))
    callback.on_trial_end(RESULT)
    callback.on_run_end(results())
    (file,) = tmp_path.iterdir()
    assert b"trial/return/player_0" in file.read_bytes()
