"""Arguments of a run of trials: seeds, numbers, names of trials."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import pytest

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.rl.runner._opening import _names, _require_numbers, _seeds


@pytest.mark.parametrize(
    ("n", "seeds", "expected"),
    [
        (2, None, [None, None]),
        (3, 7, [7, 8, 9]),
        (1, np.int64(0), [0]),
        (2, [5, None], [5, None]),
        (2, iter([np.int8(5), 1]), [5, 1]),
        (2, range(4, 6), [4, 5]),
    ],
)
def test_seeds(n: int, seeds: Any, expected: list[int | None]) -> None:
    assert _seeds(n, seeds) == expected


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ([1], "seeds: expected 2, one for each trial, got 1$"),
        ([1, 2, 3], "seeds: expected 2, one for each trial, got 3$"),
        (["a", "b"], "seeds: expected an integer, or 2 of them, got"),
        (1.5, "seeds: expected an integer, or 2 of them, got 1.5$"),
        ([1, 1.5], "seeds: expected an integer, or 2 of them"),
    ],
)
def test_seeds_that_are_none(seeds: Any, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{expected}"):
        _seeds(2, seeds)


def test_numbers() -> None:
    number: Any = np.int64(3)
    _require_numbers(Integral, 1, n=1, parallel=number)
    _require_numbers(Real, 0, timeout_seconds=0, unreachable_seconds=math.inf)
    for number in (0, -1, 1.5, "1", None):
        with pytest.raises(InvalidArgumentError, match=f"^n: expected an integer, 1 or more, got {number!r}$"):
            _require_numbers(Integral, 1, n=number)
    for number in (-0.5, math.nan, "1"):
        with pytest.raises(InvalidArgumentError, match=f"^seconds: expected a number, 0 or more, got {number!r}$"):
            _require_numbers(Real, 0, seconds=number)


def test_a_trial_that_is_started_again_has_another_name() -> None:
    name = _names("run")
    assert [name(index, count) for index, count in ((0, 1), (3, 1), (3, 2), (3, 3))] == [
        "run-0",
        "run-3",
        "run-3-2",
        "run-3-3",
    ]
