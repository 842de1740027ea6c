"""Stored trials are whose they are: who reads, adds to, writes over and deletes them, over the wire."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import trio

from tests.access.keys import grant
from tests.access.test_ownership import PARAMS, refused, world
from trio_cogment.access import Grant, Role
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput
from trio_cogment.api.trial_datastore_pb2 import (
    AddSampleRequest,
    AddTrialRequest,
    DeleteTrialsRequest,
    RetrieveSamplesRequest,
    RetrieveTrialsRequest,
    StoredTrialSample,
)
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import SERVICES, TRIAL_ID, TRIAL_OWNER, ServiceKind
from trio_cogment.rpc import CallOpener, Channel, methods_of
from trio_cogment.sdk import Controller
from trio_cogment.servers.datastore import open_store

STORE = methods_of(SERVICES[ServiceKind.DATASTORE].descriptor())
DATALOG = methods_of(SERVICES[ServiceKind.DATALOG].descriptor())["RunTrialDatalog"]


async def add_trial(channel: CallOpener, trial_id: str) -> None:
    request = AddTrialRequest(user_id="u", trial_params=TrialParams())
    await channel.unary(STORE["AddTrial"], request, metadata=((TRIAL_ID, trial_id),))


async def add_sample(channel: CallOpener, trial_id: str) -> None:
    async with channel.call(STORE["AddSample"], metadata=((TRIAL_ID, trial_id),)) as call:
        try:
            await call.send(AddSampleRequest(trial_sample=StoredTrialSample(state=TrialState.RUNNING)))
            await call.done_sending()
        except RpcError:
            pass  # what it was refused with comes below
        await call.receive()


async def delete(channel: CallOpener, *trial_ids: str) -> None:
    await channel.unary(STORE["DeleteTrials"], DeleteTrialsRequest(trial_ids=trial_ids))


async def trials(channel: CallOpener, *trial_ids: str) -> list[str]:
    reply = await channel.unary(STORE["RetrieveTrials"], RetrieveTrialsRequest(trial_ids=trial_ids))
    return [info.trial_id for info in reply.trial_infos]


async def samples(channel: CallOpener, trial_id: str) -> int:
    async with channel.call(STORE["RetrieveSamples"]) as call:
        await call.send(RetrieveSamplesRequest(trial_ids=[trial_id]))
        await call.done_sending()
        return len([reply async for reply in call])


async def log(channel: Channel, trial_id: str, owner: str = "", timestamp: int = 1) -> None:
    """Write a trial of one sample as a data log does."""
    metadata = [(TRIAL_ID, trial_id)] + ([(TRIAL_OWNER, owner)] if owner else [])
    async with channel.call(DATALOG, metadata=metadata) as call:
        try:
            await call.send(RunTrialDatalogInput(trial_params=TrialParams()))
            sample = DatalogSample()
            sample.info.tick_id, sample.info.timestamp, sample.info.state = 0, timestamp, TrialState.ENDED
            await call.send(RunTrialDatalogInput(sample=sample))
            await call.done_sending()
        except RpcError:
            pass
        while await call.receive() is not None:
            pass


async def test_what_operators_store_is_theirs() -> None:
    async with (
        world() as here,
        here.channel(here.named("alice")) as alice,
        here.channel(here.named("bob")) as bob,
        here.channel(here.named("eve")) as eve,
        here.channel(here.named("root")) as root,
    ):
        await add_trial(alice, "hers")
        await add_sample(alice, "hers")
        await add_trial(bob, "his")
        assert await trials(alice) == ["hers"]
        assert await trials(bob, "hers", "his") == ["his"]
        for reader in (eve, root):
            assert await trials(reader) == ["hers", "his"]
        for doing in (add_trial, add_sample, delete, samples):
            assert await refused(doing(bob, "hers")) is StatusCode.PERMISSION_DENIED, doing
        for changing in (add_trial, add_sample, delete):
            assert await refused(changing(eve, "hers")) is StatusCode.PERMISSION_DENIED, changing
        # A deletion that is refused deletes nothing.
        assert await refused(delete(bob, "his", "hers")) is StatusCode.PERMISSION_DENIED
        assert await trials(root) == ["hers", "his"]
        # The administrator may change it, and it stays hers.
        await add_trial(root, "hers")
        assert await trials(alice) == ["hers"]
        await delete(alice, "hers", "never was")
        await delete(root, "his")
        assert await trials(root) == []


async def test_the_samples_of_a_trial_belong_to_who_started_it() -> None:
    async with world() as here, here.channel(here.named("alice")) as alice, here.channel(here.named("bob")) as bob:
        controller = Controller(alice)
        trial_id = await controller.start_trial(PARAMS)
        assert await refused(log_of(bob, trial_id)) is StatusCode.PERMISSION_DENIED
        await controller.terminate_trial(trial_id, hard=True)
        await controller.wait_trial(trial_id, check=False)
        assert await trials(alice) == [trial_id]
        assert await trials(bob) == []
        assert await samples(alice, trial_id) >= 0
        assert await refused(samples(bob, trial_id)) is StatusCode.PERMISSION_DENIED


async def log_of(channel: Channel, trial_id: str) -> None:
    await log(channel, trial_id)


async def test_a_data_log_writes_the_trials_of_its_orchestrator_only() -> None:
    def runs(trial_id: str, owner: str) -> Grant:
        return Grant(
            name="server:orchestrator", roles=frozenset([Role.ORCHESTRATOR]), trials=(f"={trial_id}",), owner=owner
        )

    one = runs("t1", "token:alice")
    async with (
        world() as here,
        here.channel(here.named("alice")) as alice,
        here.channel(here.named("root")) as root,
        here.channel(one) as first,
    ):
        await log(first, "t1")
        assert await trials(alice) == ["t1"]
        assert await samples(alice, "t1") == 1
        assert await refused(log(first, "t2")) is StatusCode.PERMISSION_DENIED
        # Nor may a trial that takes the id of a stored one write over it, whoever starts it.
        await add_trial(alice, "stored")
        async with here.channel(runs("stored", "token:bob")) as second:
            for said in ("", "token:bob", "token:alice"):  # the token says it
                assert await refused(log(second, "stored", said)) is StatusCode.PERMISSION_DENIED
        async with here.channel(runs("stored", "token:alice")) as third:
            await log(third, "stored", "token:bob")
            assert await samples(alice, "stored") == 1  # its log says that it has ended
        for forger in (alice, first):
            assert await refused(log(forger, "new", "token:alice")) is StatusCode.PERMISSION_DENIED
        # An orchestrator whose own token is for all trials says for whom it runs them.
        async with here.channel(grant(Role.ORCHESTRATOR, name="orchestrator")) as trusted:
            await log(trusted, "t3", "token:alice")
            assert await refused(log(trusted, "stored", "token:bob")) is StatusCode.PERMISSION_DENIED
        assert await trials(root) == ["t1", "stored", "t3"]
        assert await trials(alice) == ["t1", "stored", "t3"]


async def test_two_who_create_the_same_trial_at_once() -> None:
    for _ in range(5):
        refusals: list[StatusCode] = []

        async def create(channel: Channel, refusals: list[StatusCode] = refusals) -> None:
            try:
                await add_trial(channel, "same")
            except RpcError as error:
                refusals.append(error.code)

        async with (
            world() as here,
            here.channel(here.named("alice")) as alice,
            here.channel(here.named("bob")) as bob,
        ):
            async with trio.open_nursery() as nursery:
                for channel in (alice, bob):
                    nursery.start_soon(create, channel)
            assert refusals == [StatusCode.PERMISSION_DENIED]
            assert len(await trials(alice)) + len(await trials(bob)) == 1


async def test_a_file_remembers_whose_trials_are(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    async with world(store=f"sqlite:{path}") as here, here.channel(here.named("alice")) as alice:
        await add_trial(alice, "hers")
    async with (
        world(store=f"sqlite:{path}") as here,
        here.channel(here.named("alice")) as alice,
        here.channel(here.named("bob")) as bob,
    ):
        assert await trials(alice) == ["hers"]
        assert await trials(bob) == []


async def test_what_was_stored_before_there_were_owners_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    async with open_store(f"sqlite:{path}"):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO trials (trial_id, user_id, params, logged) VALUES ('old', '', x'', 0)")
        connection.execute("DROP TABLE chunks")
        connection.execute("DROP INDEX trials_owner")
        for column in ("owner", "bytes", "endpoint", "raw_bytes", "attempt"):
            connection.execute(f"ALTER TABLE trials DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    async with (
        world(store=f"sqlite:{path}") as here,
        here.channel(here.named("alice")) as alice,
        here.channel(here.named("eve")) as eve,
        here.channel(here.named("root")) as root,
    ):
        assert (await trials(alice), await trials(eve)) == ([], ["old"])
        for doing in (add_trial, add_sample, delete, samples):
            assert await refused(doing(alice, "old")) is StatusCode.PERMISSION_DENIED, doing
        await delete(root, "old")


@pytest.mark.parametrize("role", [Role.PARTICIPANT, Role.DIRECTORY, Role.WORKER])
async def test_others_reach_no_stored_trial(role: Role) -> None:
    async with (
        world() as here,
        here.channel(here.named("alice")) as alice,
        here.channel(grant(role, name="alice")) as same_name,
    ):
        await add_trial(alice, "hers")
        for doing in (add_trial, add_sample, delete, samples, trials):
            assert await refused(doing(same_name, "hers")) is StatusCode.PERMISSION_DENIED, doing
