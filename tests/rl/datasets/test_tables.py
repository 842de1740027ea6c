"""Tables of a data set: their columns, and the rows that are made for them."""

from __future__ import annotations

import pyarrow as pa

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.rl.datasets import tables
from trio_cogment.rl.datasets.trials import TrialRecord
from trio_cogment.sdk import StoredTrial, actor_params, trial_params


def test_the_row_of_a_trial_has_all_columns() -> None:
    params = trial_params([actor_params("ann", "player")], properties={"kind": "small"})
    record = TrialRecord.of(StoredTrial("t", "me", TrialState.ENDED, 1, params), 3)
    row = tables.trial_row(record, {}, ticks=2, started_ns=5, ended_ns=None)
    assert list(row) == tables.TRIALS.names
    (read,) = pa.Table.from_pylist([row], schema=tables.TRIALS).to_pylist()
    assert (read["trial_id"], read["episode_index"], read["user_id"]) == ("t", 3, "me")
    assert (read["ticks"], read["started_ns"], read["ended_ns"]) == (2, 5, None)
    assert read["properties"] == '{"kind": "small"}'
    assert [actor["name"] for actor in read["actors"]] == ["ann"]


def test_a_reward_says_of_whom_it_is_and_how_sure() -> None:
    assert {field.name: str(field.type) for field in tables._REWARDS.value_type} == {
        "sender": "string",
        "value": "float",
        "confidence": "float",
    }
