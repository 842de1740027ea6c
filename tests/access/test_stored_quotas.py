"""Quotas of stored bytes: how much of a datastore one account may take, over the wire."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio

from tests.access.keys import grant
from tests.access.test_ownership import PARAMS, refused, world
from tests.access.test_stored_ownership import DATALOG, add_sample, add_trial, delete, trials
from trio_cogment.access import Grant, Quotas, Role
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput
from trio_cogment.api.trial_datastore_pb2 import (
    AddSampleRequest,
    AddTrialRequest,
    RetrieveTrialsRequest,
    StoredTrialSample,
)
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import CallOpener, Channel, methods_of
from trio_cogment.sdk import Controller

STORE = methods_of(SERVICES[ServiceKind.DATASTORE].descriptor())
#: This many bytes a small trial with three samples fits in, and not much more.
QUOTA = 1000
#: What does not become smaller in the storage.
NOISE = random.Random(1)
EXHAUSTED = rf"the quota of {QUOTA} stored_bytes of this account is used up"


def limited(name: str, quota: int = QUOTA) -> Grant:
    return grant(Role.OPERATOR, name=name, quotas=Quotas(stored_bytes=quota))


async def count(channel: CallOpener, trial_id: str) -> int:
    reply = await channel.unary(STORE["RetrieveTrials"], RetrieveTrialsRequest(trial_ids=[trial_id]))
    return sum(info.samples_count for info in reply.trial_infos)


async def fill(channel: CallOpener, trial_id: str) -> int:
    """Add samples until one is refused; return how many were stored."""
    async with channel.call(STORE["AddSample"], metadata=((TRIAL_ID, trial_id),)) as call:
        for tick in range(1000):
            sample = StoredTrialSample(tick_id=tick, state=TrialState.RUNNING, payloads=[NOISE.randbytes(50)])
            try:
                await call.send(AddSampleRequest(trial_sample=sample))
            except RpcError:
                break
        with pytest.raises(RpcError, match=EXHAUSTED) as caught:
            await call.receive()
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
    return await count(channel, trial_id)


async def add_large_trial(channel: CallOpener, trial_id: str) -> None:
    """Add one that has no room, however much smaller the storage has made what is there."""
    request = AddTrialRequest(user_id="u" * QUOTA, trial_params=TrialParams())
    await channel.unary(STORE["AddTrial"], request, metadata=((TRIAL_ID, trial_id),))


async def add_large_sample(channel: CallOpener, trial_id: str) -> None:
    """Add one that has no room, as `add_large_trial` does."""
    async with channel.call(STORE["AddSample"], metadata=((TRIAL_ID, trial_id),)) as call:
        sample = StoredTrialSample(tick_id=1000, state=TrialState.RUNNING, payloads=[NOISE.randbytes(QUOTA)])
        await call.send(AddSampleRequest(trial_sample=sample))
        await call.done_sending()
        await call.receive()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_account_stores_no_more_than_its_quota(kind: str, tmp_path: Path) -> None:
    store = "memory:" if kind == "memory" else f"sqlite:{tmp_path / 'a.db'}"
    async with (
        world(store=store) as here,
        here.channel(limited("alice")) as alice,
        here.channel(here.named("alice")) as unlimited,
        here.channel(here.named("bob")) as bob,
        here.channel(here.named("root")) as root,
    ):
        await add_trial(alice, "a")
        first = await fill(alice, "a")
        assert 0 < first < 10
        datastore = here.platform.datastore
        assert datastore is not None
        assert await datastore.store.stored_bytes("token:alice") <= QUOTA
        # Those before the one that is refused are stored, and nothing but the quota refuses others.
        assert await refused(add_large_trial(alice, "b")) is StatusCode.RESOURCE_EXHAUSTED
        await add_trial(bob, "c")
        await add_sample(bob, "c")
        await add_trial(unlimited, "b")
        assert await refused(add_large_sample(alice, "b")) is StatusCode.RESOURCE_EXHAUSTED
        # What is deleted, by whomever, is free again.
        await delete(root, "a", "b")
        await add_trial(alice, "a")
        assert await fill(alice, "a") == first
        await delete(alice, "a")
        assert datastore.writer.accounts.reserved == {}
        assert await trials(root) == ["c"]


async def test_a_quota_survives_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'a.db'}"
    async with world(store=store) as here, here.channel(limited("alice")) as alice:
        await add_trial(alice, "a")
        await fill(alice, "a")
    async with world(store=store) as here, here.channel(limited("alice")) as alice:
        assert await refused(add_large_sample(alice, "a")) is StatusCode.RESOURCE_EXHAUSTED
        await delete(alice, "a")
        await add_trial(alice, "a")


async def test_the_samples_of_a_trial_count_for_who_started_it() -> None:
    """A trial whose owner's quota is used up goes on; its samples are lost, and that is said."""
    async with world() as here, here.channel(limited("alice", 2000)) as alice:
        controller = Controller(alice)
        await add_trial(alice, "a")
        trial_id = await controller.start_trial(PARAMS)
        await controller.terminate_trial(trial_id, hard=True)
        await controller.wait_trial(trial_id, check=False)
        assert await trials(alice) == ["a", trial_id]
        datastore = here.platform.datastore
        assert datastore is not None
        assert 128 < await datastore.store.stored_bytes("token:alice") <= 2000
        await add_sample(alice, "a")
        async with here.channel(limited("alice", 1)) as poor:
            assert await refused(Controller(poor).start_trial(PARAMS)) is StatusCode.RESOURCE_EXHAUSTED


async def test_a_data_log_elsewhere_counts_for_the_owner_that_the_token_names() -> None:
    held = Grant(
        name="server:orchestrator",
        roles=frozenset([Role.ORCHESTRATOR]),
        trials=("=t",),
        owner="token:alice",
        quotas=Quotas(stored_bytes=QUOTA),
    )
    async with world() as here, here.channel(held) as log, here.channel(here.named("alice")) as alice:
        assert await refused(overfill(log)) is StatusCode.RESOURCE_EXHAUSTED
        assert await trials(alice) == ["t"]
        assert 0 < await count(alice, "t") < 20
        datastore = here.platform.datastore
        assert datastore is not None
        assert await datastore.store.stored_bytes("token:alice") <= QUOTA
        while datastore.writer.accounts.reserved:
            await trio.lowlevel.checkpoint()


async def overfill(channel: Channel) -> None:
    async with channel.call(DATALOG, metadata=((TRIAL_ID, "t"),)) as call:
        try:
            await call.send(RunTrialDatalogInput(trial_params=TrialParams()))
            for tick in range(1000):
                sample = DatalogSample()
                sample.info.tick_id, sample.info.timestamp, sample.info.state = tick, tick + 1, TrialState.RUNNING
                await call.send(RunTrialDatalogInput(sample=sample))
            await call.done_sending()
        except RpcError:
            pass
        while await call.receive() is not None:
            pass
