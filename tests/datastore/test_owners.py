"""Whose trials a call may reach."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from trio_cogment.access import Grant, Identity, Role
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.datastore._owners import check_reached
from trio_cogment.datastore.storage import StoredTrial, TrialEnd
from trio_cogment.errors import PermissionDeniedError
from trio_cogment.rpc import ServerCall
from trio_cogment.services import SERVICES, ServiceKind

DELETE = f"/{SERVICES[ServiceKind.DATASTORE].descriptor().full_name}/DeleteTrials"


def trial_of(name: str, owner: str) -> StoredTrial:
    return StoredTrial(1, name, "u", TrialParams(), 0, TrialState.UNKNOWN, TrialEnd.OPEN, logged=False, owner=owner)


@pytest.mark.parametrize("owners", [("you",), ("me", "you"), ("you", "me"), ("me", "me", "you"), ("me", "")])
def test_one_trial_of_somebody_else_is_enough(owners: tuple[str, ...]) -> None:
    identity = Identity(account="token:me", local=False, grant=Grant(name="me", roles=frozenset([Role.OPERATOR])))
    call = cast(ServerCall, SimpleNamespace(identity=identity, method=SimpleNamespace(path=DELETE)))
    trials = [trial_of(f"t{number}", owner and f"token:{owner}") for number, owner in enumerate(owners)]
    foreign = next(number for number, owner in enumerate(owners) if owner != "me")
    with pytest.raises(PermissionDeniedError, match=f"'t{foreign}'"):
        check_reached(call, trials)
    check_reached(call, [trial for trial in trials if trial.owner == "token:me"])
