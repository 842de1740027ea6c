"""Results as arrays, the counting of observations, and the function for scripts."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from tests.rl.runner.worlds import REWARD, answering, countdown, participants
from trio_cogment import sync
from trio_cogment.api.spaces_pb2 import Observation
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, MissingExtraError
from trio_cogment.base.outcome import EndCause
from trio_cogment.rl import run_trials
from trio_cogment.rl.runner import Results, TrialResult
from trio_cogment.rl.runner._score import Score


def two() -> Results:
    trials = [
        TrialResult(4, "b", None, "here", error="it broke"),
        TrialResult(
            1,
            "a",
            7,
            "there",
            EndCause.STEP_LIMIT,
            5,
            0.5,
            {"x": 2.5},
            truncated=frozenset("x"),
            terminated=frozenset("y"),
        ),
    ]
    return Results.of(trials, ["x", "y"], requested=9)


def test_arrays() -> None:
    results = two()
    assert results.index.tolist() == [1, 4], "in the order of the run"
    assert results.seeds.tolist() == [7, -1]
    assert results.returns.shape == (2, 2)
    assert results.returns[0, 0] == 2.5
    assert np.isnan(results.returns).tolist() == [[False, True], [True, True]]
    assert results.truncated.tolist() == [[True, False], [False, False]]
    assert results.terminated.tolist() == [[False, True], [False, False]]
    assert results.causes.tolist() == ["step_limit", "unknown"]
    assert [failure.trial_id for failure in results.failures] == ["b"]
    with pytest.raises(KeyError, match="expected one of x, y, got 'z'"):
        results.returns_of("z")


def test_columns() -> None:
    columns = two().columns()
    assert {len(column) for column in columns.values()} == {2}
    assert columns["returns.x"][0] == 2.5
    assert {"truncated.y", "trial_ids", "causes"} < columns.keys()


def test_no_results() -> None:
    results = Results.of([], ["x"], requested=3)
    assert results.returns.shape == (0, 1)
    assert len(results) == 0


def test_results_need_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'trio-cogment\[arrays\]'"):
        Results.of([], [], requested=0)


def test_scores() -> None:
    score = Score(["x", "y"])
    assert not score.complete, "nothing is known"
    score.add("x", Observation())
    score.add("x", Observation(reward=0.1))
    score.add("x", Observation(reward=0.2, terminated=True))
    score.add("stranger", Observation(reward=9))
    assert score.returns == {"x": 0.1 + 0.2}
    score.add("y", Observation(truncated=True))
    assert Score(()).complete
    assert (score.terminated, score.truncated) == ({"x"}, {"y"})


SEATS: dict[str, Any] = {"player_0": answering}


def test_in_a_script() -> None:
    results = run_trials(3, environment=countdown(), seats=SEATS, seeds=0, parallel=2)
    assert results.returns_of("player_0")[0] == REWARD + REWARD + REWARD


def test_errors_in_a_script() -> None:
    with pytest.raises(InvalidArgumentError, match="parallel"):
        run_trials(3, environment=countdown(), seats=SEATS, parallel=0)


def test_over_a_platform_of_a_script() -> None:
    with sync.open_platform(participants(), store="memory:") as platform:
        results = run_trials(2, on=platform, environment=countdown(), seats=SEATS)
        assert {trial.trial_id for trial in platform.datastore.trials()} == set(results.trial_ids)


async def test_within_a_trio_program() -> None:
    with pytest.raises(FailedPreconditionError, match="in a Trio program await"):
        run_trials(1, environment=countdown(), seats=SEATS)
