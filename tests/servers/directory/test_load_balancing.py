"""Load balancing: the services with the lowest load."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.directory.test_entries import entry, ids
from trio_cogment.servers.directory._server import least_loaded


def choose(loads: list[int], seed: int = 0) -> list[int]:
    """Return the ids of the services chosen; they are numbered from 1."""
    entries = [entry(number) for number, _ in enumerate(loads, 1)]
    chosen = ids(least_loaded(entries, lambda one: loads[one.service_id - 1], random.Random(seed)))
    assert ids(entries) == list(range(1, len(loads) + 1))
    return chosen


@pytest.mark.parametrize(
    ("loads", "chosen"),
    [
        ([], []),
        ([255], []),
        ([255, 255], []),
        ([255, 50], [2]),
        ([255, 50, 60], [2, 3]),
        ([50, 60, 61], [1, 2]),
        ([254], [1]),
        ([250, 254, 255], [1, 2]),  # the spread does not reach full load
        ([0, 10, 11], [1, 2]),
    ],
)
def test_the_least_loaded(loads: list[int], chosen: list[int]) -> None:
    assert sorted(choose(loads)) == chosen


def test_the_order_of_the_least_loaded_is_random() -> None:
    assert len({tuple(choose([0, 0, 0], seed)) for seed in range(100)}) == 6


@given(st.lists(st.integers(0, 255)))
def test_all_within_the_spread_are_chosen(loads: list[int]) -> None:
    chosen = {loads[number - 1] for number in choose(loads)}
    assert chosen == {load for load in loads if load <= min(loads) + 10 and load != 255}
