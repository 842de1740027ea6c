"""The names of a run's trials."""

from __future__ import annotations

import pytest

from trio_cogment.trainer.trials.naming import Place, place_of, starts_of, trial_id_of


def test_ids() -> None:
    assert trial_id_of("r", 123) == "r-ep000123"
    assert trial_id_of("r", 0, 2) == "r-ep000000-2"


@pytest.mark.parametrize(
    ("trial_id", "place"),
    [
        ("r-ep000123", Place(123)),
        ("r-ep7-2", Place(7)),
        ("r-wk1-ep000003", Place(3, "k1")),
        ("r-ep", None),
        ("r-other", None),
        ("s-ep000001", None),
        ("r", None),
        ("r2-ep000001", None),
    ],
)
def test_places(trial_id: str, place: Place | None) -> None:
    assert place_of("r", trial_id) == place


def test_how_often_episodes_were_started() -> None:
    known = ["r-ep000000", "r-ep000001-3", "r-ep000001", "r-wk1-ep000002", "r-other", "s-ep000003"]
    assert starts_of("r", known) == {0: 1, 1: 3}
