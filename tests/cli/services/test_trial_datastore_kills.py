"""A datastore's process: killed while data logs write, and started with a large file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio

from tests.cli.process import Server, server
from trio_cogment.api import datalog_pb2
from trio_cogment.api.common_pb2 import ActorParams, TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput, SampleInfo
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.errors import RpcError
from trio_cogment.rpc import Channel, methods_of
from trio_cogment.sdk import DatastoreClient
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.testing.conformance.trial_store import new_trial, sample

RUN = methods_of(datalog_pb2.DESCRIPTOR.services_by_name["DatalogSP"])["RunTrialDatalog"]
PARAMS = TrialParams(actors=[ActorParams(name="ann")])
LOGS = 4
SERVE = ("services", "trial_datastore", "--host=127.0.0.1", "--port=0")


def payload(trial_id: str, tick_id: int) -> bytes:
    """Return what is in a sample: enough for a torn one to be seen."""
    return f"{trial_id}:{tick_id},".encode() * (20 + tick_id % 100)


class Logs:
    """The data logs of one life of the server.

    Attributes:
        confirmed: how many samples were, by the trial's id.
    """

    def __init__(self, found: Server, name: str, kill_after: int) -> None:
        self._found = found
        self._left = kill_after
        self.confirmed: dict[str, int] = {f"{name}/{number}": 0 for number in range(LOGS)}

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for trial_id in self.confirmed:
                nursery.start_soon(self._log, trial_id)
        await self._found.process.wait()

    async def _log(self, trial_id: str) -> None:
        try:
            async with (
                Channel("127.0.0.1", self._found.port) as channel,
                channel.call(RUN, metadata={"trial-id": trial_id}) as call,
                trio.open_nursery() as nursery,
            ):
                await call.send(RunTrialDatalogInput(trial_params=PARAMS))
                await call.receive()

                async def send() -> None:
                    for tick_id in range(1_000_000):
                        seen = ObservationSet(observations=[payload(trial_id, tick_id)], actors_map=[0])
                        info = SampleInfo(tick_id=tick_id, timestamp=tick_id + 1, state=TrialState.RUNNING)
                        await call.send(RunTrialDatalogInput(sample=DatalogSample(info=info, observations=seen)))

                nursery.start_soon(send)
                while await call.receive() is not None:
                    self.confirmed[trial_id] += 1
                    self._left -= 1
                    if not self._left:
                        self._found.process.kill()
        except* RpcError:
            pass  # it was killed


async def check(found: Server, confirmed: dict[str, int]) -> None:
    async with Channel("127.0.0.1", found.port) as channel:
        store = DatastoreClient(channel)
        trials = {trial.trial_id: trial for trial in await store.trials()}
        for trial_id, count in confirmed.items():
            if not count and trial_id not in trials:
                continue  # not even its parameters
            ticks = []
            async for sample in store.samples(trial_id, partial=True):
                assert sample.actors["ann"].observation == payload(trial_id, sample.tick_id)
                ticks.append(sample.tick_id)
            assert ticks == list(range(len(ticks)))
            assert len(ticks) == trials[trial_id].samples_count >= count, f"{trial_id}: confirmed and lost"


async def kill_often(database: Path, times: int, seed: int) -> None:
    rng = random.Random(seed)
    confirmed: dict[str, int] = {}
    serve = (*SERVE, f"--file_storage={database}")
    for number in range(times):
        async with server(*serve) as found:
            await check(found, confirmed)
            logs = Logs(found, f"{number}", rng.randint(1, 600))
            await logs.run()
            confirmed = logs.confirmed
            assert sum(confirmed.values())
    async with server(*serve) as found:
        await check(found, confirmed)


async def test_killed_while_data_logs_write(tmp_path: Path) -> None:
    await kill_often(tmp_path / "a.db", 10, 1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_killed_while_data_logs_write_often(tmp_path: Path) -> None:
    await kill_often(tmp_path / "a.db", 200, 2)


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_million_samples_are_served_at_once(tmp_path: Path) -> None:
    """From the start of the process to the first answers within 4 s."""
    database = tmp_path / "a.db"
    async with open_store(f"sqlite:{database}", durability="batch") as store:
        for trial in range(100):
            await store.apply([new_trial(f"{trial}")])
            for first in range(0, 10_000, 1000):
                await store.apply([sample(f"{trial}", first + tick, payload=bytes(100)) for tick in range(1000)])
    with trio.fail_after(4):
        async with server(*SERVE, f"--file_storage={database}") as found, Channel("127.0.0.1", found.port) as channel:
            client = DatastoreClient(channel)
            assert sum(trial.samples_count for trial in await client.trials()) == 1_000_000
            async with client.samples("99", partial=True) as samples:
                assert (await anext(samples)).tick_id == 0
