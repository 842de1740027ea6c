"""Storages and the datastore: what each says to the other."""

from __future__ import annotations

from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.servers.datastore._trial_service import _info
from trio_cogment.servers.datastore.storage import StoredTrial, TrialEnd, TrialWrite


def test_a_storage_need_not_speak_of_what_it_does_not_keep() -> None:
    """Those that were written before there were outcomes and owners say nothing of them."""
    trial = StoredTrial(1, "t", "me", TrialParams(), 0, TrialState.ENDED, TrialEnd.ENDED, logged=True)
    assert (trial.evicted, trial.outcome, trial.owner) == (False, b"", "")
    assert not _info(trial).HasField("end")  # what readers get
    assert TrialWrite("t", "me", TrialParams(), logged=True).owner == ""
