"""Data sets of Parquet files as recordings: trials that go together, and those that do not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trio_cogment.base.errors import InvalidArgumentError, NotFoundError
from trio_cogment.rl.datasets.recordings import ParquetRecordings


def groups_of(*trials: dict[str, int | None]) -> dict[str, int]:
    """Return the common groups of trials of which each has these actors, each with the group of its steps."""
    found = object.__new__(ParquetRecordings)
    made: Any = found
    made._folder = Path("set")
    made._trials = [
        {"trial_id": f"t{number}", "actors": [{"name": name, "group": group} for name, group in actors.items()]}
        for number, actors in enumerate(trials)
    ]
    groups: dict[str, int] = made._common_groups()
    return groups


def test_the_order_is_that_of_the_first_trial() -> None:
    assert list(groups_of({"b": 0, "a": 1}, {"a": 1, "b": 0}).items()) == [("b", 0), ("a", 1)]


def test_who_never_came_in_one_trial_has_the_group_of_another() -> None:
    assert groups_of({"a": None, "b": 1}, {"a": None, "b": None}, {"a": 0, "b": 1}) == {"a": 0, "b": 1}
    with pytest.raises(InvalidArgumentError, match=r"^set: nothing was observed by a, c$"):
        groups_of({"a": None, "b": 1, "c": None}, {"a": None, "b": 1, "c": None})


@pytest.mark.parametrize(
    ("later", "text"),
    [
        ({"a": 0}, "set: trial 't1': expected the actors a, b, got a: name the trials of one kind"),
        ({"a": 0, "b": 1, "c": 1}, "set: trial 't1': expected the actors a, b, got a, b, c: name the trials"),
        ({"a": 1, "b": 1}, "set: trial 't1', actor 'a': expected the spaces of the trials before: name the trials"),
        ({"a": 0, "b": 0}, "set: trial 't1', actor 'b': expected the spaces of the trials before: name the trials"),
    ],
)
def test_trials_that_do_not_go_together(later: dict[str, int | None], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{re.escape(text)}"):
        groups_of({"a": 0, "b": 1}, later)


def test_an_error_says_which_trials_go_together() -> None:
    with pytest.raises(InvalidArgumentError, match=r"2 of a, b \('t0', 't3'\); 1 of a \('t1'\); 1 of a, b \('t2'\)$"):
        groups_of({"a": 0, "b": 1}, {"a": 0}, {"a": 1, "b": 1}, {"b": 1, "a": 0})


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="expected a data set that export has written"):
        ParquetRecordings(tmp_path)
