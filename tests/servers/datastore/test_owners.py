"""Owners of trials, and the calls that may reach these."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from trio_cogment.access import Grant, Identity, Role
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.trial_datastore_pb2 import DeleteTrialsRequest, RetrieveTrialsRequest
from trio_cogment.base.config import DatastoreConfig
from trio_cogment.base.errors import PermissionDeniedError
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.rpc import ServerCall
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore._owners import check_reached
from trio_cogment.servers.datastore._trial_service import TrialService
from trio_cogment.servers.datastore.storage import StoredTrial, TrialEnd, TrialStore, TrialWrite

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


def service_of(store: TrialStore) -> TrialService:
    nobody: Any = SimpleNamespace(forget=lambda _: None)
    return TrialService(store, nobody, nobody, nobody, DatastoreConfig(), lambda _: "")


def call_of(name: str, role: Role, method: str) -> ServerCall:
    identity = Identity(account=f"token:{name}", local=False, grant=Grant(name=name, roles=frozenset([role])))
    path = DELETE.replace("DeleteTrials", method)
    return cast(ServerCall, SimpleNamespace(identity=identity, method=SimpleNamespace(path=path)))


async def two_trials() -> MemoryStore:
    store = MemoryStore(1 << 20)
    for name in ("ann", "bob"):
        await store.apply([TrialWrite(f"of-{name}", name, TrialParams(), logged=True, owner=f"token:{name}")])
    return store


async def ids_of(store: TrialStore) -> list[str]:
    return [trial.trial_id for trial in await store.trials(after=0, limit=9)]


async def test_only_its_owner_and_the_operators_of_all_delete_a_trial() -> None:
    store = await two_trials()
    service = service_of(store)
    ann, admin = (call_of("ann", role, "DeleteTrials") for role in (Role.OPERATOR, Role.ADMIN))
    for ids in (["of-bob"], ["of-ann", "of-bob"]):
        with pytest.raises(PermissionDeniedError, match="'of-bob'"):
            await service.DeleteTrials(DeleteTrialsRequest(trial_ids=ids), ann)
    assert await ids_of(store) == ["of-ann", "of-bob"]
    await service.DeleteTrials(DeleteTrialsRequest(trial_ids=["of-ann", "nobody"]), ann)
    assert await ids_of(store) == ["of-bob"]
    await service.DeleteTrials(DeleteTrialsRequest(trial_ids=["of-bob"]), admin)
    assert await ids_of(store) == []


async def test_one_that_somebody_creates_meanwhile_is_not_deleted() -> None:
    class Changing(MemoryStore):
        async def trials(self, **options: Any) -> list[StoredTrial]:
            found = await super().trials(**options)
            if not found:
                await self.apply([TrialWrite("new", "bob", TrialParams(), logged=True, owner="token:bob")])
            return found

    store = Changing(1 << 20)
    await service_of(store).DeleteTrials(
        DeleteTrialsRequest(trial_ids=["new"]), call_of("ann", Role.OPERATOR, "DeleteTrials")
    )
    assert await ids_of(store) == ["new"]


@pytest.mark.parametrize(
    ("role", "seen"), [(Role.OPERATOR, ["of-ann"]), (Role.ADMIN, ["of-ann", "of-bob"]), (Role.PARTICIPANT, [])]
)
async def test_of_trials_those_are_told_that_are_reached(role: Role, seen: list[str]) -> None:
    service = service_of(await two_trials())
    reply = await service.RetrieveTrials(RetrieveTrialsRequest(), call_of("ann", role, "RetrieveTrials"))
    assert [info.trial_id for info in reply.trial_infos] == seen
