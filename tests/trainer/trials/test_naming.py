"""The names of a run's trials."""

from __future__ import annotations

import pytest

from trio_cogment.api.orchestrator_pb2 import TrialInfo
from trio_cogment.trainer.trials.naming import Place, is_of, place_of, starts_of, trial_id_of


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


@pytest.mark.parametrize(
    ("trial", "owners", "expected"),
    [
        ({"owner": "token:ann"}, ["token:ann"], True),
        ({"owner": "token:bob"}, ["token:ann"], False),
        ({"owner": "token:bob"}, ["token:ann", "token:bob"], True),
        # Its worker, and that of another run.
        ({"owner": "token:runs", "run_id": "r"}, ["token:ann"], True),
        ({"owner": "token:runs", "run_id": "s"}, ["token:ann"], False),
        ({"owner": "token:runs", "run_id": "s"}, ["token:runs"], False),
        # A run that was stored before its owner was.
        ({"owner": "token:ann"}, [""], False),
        ({"owner": "token:runs", "run_id": "r"}, [""], True),
        # Nobody is asked who he is: by the orchestrator, by the trainer.
        ({}, ["token:ann"], True),
        ({}, [""], True),
        ({"owner": "token:bob"}, ["ipv4:10.0.0.1"], True),
        ({"owner": "token:bob"}, ["inprocess"], True),
    ],
)
def test_which_trials_are_of_a_run(trial: dict[str, str], owners: list[str], expected: bool) -> None:
    info = TrialInfo(trial_id="r-ep000001", owner=trial.get("owner", ""), run_id=trial.get("run_id", ""))
    assert is_of(info, "r", owners) is expected
    info.trial_id = "other"
    assert not is_of(info, "r", owners)
    info.properties["run_id"] = "r"
    assert is_of(info, "r", owners) is expected


def test_how_often_episodes_were_started() -> None:
    known = ["r-ep000000", "r-ep000001-3", "r-ep000001", "r-wk1-ep000002", "r-other", "s-ep000003"]
    assert starts_of("r", known) == {0: 1, 1: 3}
