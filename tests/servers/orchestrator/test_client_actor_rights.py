"""Rights of client actors: who may join a trial, or learn that there is one."""

from __future__ import annotations

from typing import cast

import pytest

from trio_cogment.access import Grant, Identity, Role
from trio_cogment.rpc import ServerCall
from trio_cogment.servers.orchestrator._services import _may_know


class Caller:
    """As much of a call as tells who makes it."""

    def __init__(self, *roles: Role, trials: tuple[str, ...] = ()) -> None:
        actors = ("=cat",) if Role.SEAT in roles else ()
        grant = Grant(name="me", roles=frozenset(roles), trials=trials, actors=actors)
        self.identity = Identity(account="token:me", local=False, grant=grant)


@pytest.mark.parametrize(
    ("caller", "owner", "may"),
    [
        (Caller(), "token:me", False),
        (Caller(Role.ADMIN), "token:you", True),
        (Caller(Role.ADMIN), "", True),
        (Caller(Role.OPERATOR), "token:me", True),
        (Caller(Role.OPERATOR), "token:you", False),
        (Caller(Role.OPERATOR), "", False),  # there is no such trial, or it is of this process
        (Caller(Role.OBSERVER), "token:me", False),
        (Caller(Role.WORKER, trials=("=t",)), "token:me", False),
        (Caller(Role.PARTICIPANT), "token:you", True),
        (Caller(Role.PARTICIPANT, trials=("=t",)), "token:you", True),
        (Caller(Role.PARTICIPANT, trials=("=t",)), "", True),
        (Caller(Role.PARTICIPANT, trials=("=other",)), "token:you", False),
        (Caller(Role.PARTICIPANT, trials=("=other",)), "token:me", False),
        (Caller(Role.SEAT, trials=("=t",)), "token:you", True),
        (Caller(Role.SEAT, trials=("=other",)), "token:you", False),
        (Caller(Role.OPERATOR, Role.SEAT, trials=("=other",)), "token:you", False),
        (Caller(Role.OPERATOR, Role.SEAT, trials=("=other",)), "token:me", True),
    ],
)
def test_who_may_know_of_a_trial(caller: Caller, owner: str, may: bool) -> None:
    assert _may_know(cast(ServerCall, caller), "t", owner) is may
