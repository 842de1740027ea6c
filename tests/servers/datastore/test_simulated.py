"""Orchestrator and datastore together, on a virtual clock, with storages, connections and hosts that fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest
import trio

from tests.servers.datastore.harness import ENDED, TRIALS
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.trial_datastore_pb2 import (
    RetrieveSamplesRequest,
    RetrieveTrialsRequest,
    StoredTrialInfo,
    StoredTrialSample,
)
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import CallOpener, serve
from trio_cogment.sdk import Controller, Participants, actor_params, trial_params
from trio_cogment.servers.datastore import Datastore, TrialStore, datastore_services
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.testing import FaultyStore, Outcome, StoreFaults, World

Sim: TypeAlias = Callable[[Callable[[World], Awaitable[None]]], Outcome[None]]

TICKS = 12
TRIAL_IDS = [f"trial-{number}" for number in range(3)]
#: A reward for tick 2 comes in tick 8, when the sample of tick 2 has long gone.
LATE_TICK, LATE_AT = 2, 8
REWARDS_OF = dict.fromkeys(range(TICKS), 1) | {LATE_TICK: 2}

#: Faults are many here: who gives up within its ten seconds may have met with nothing else.
PATIENT = OrchestratorConfig(datalog_flush_seconds=300)
PATIENT_PLATFORM = PlatformConfig(orchestrator=PATIENT)
FAULTS = StoreFaults(before=0.15, after=0.1, delay=0.2, max_delay_seconds=2.0, operations={"apply", "trial", "samples"})
DEAD = StoreFaults(before=1.0)
SOUND = StoreFaults()


async def world_that_rewards(session: Any) -> None:
    await session.start([("*", b"0")])
    tick = 0
    async for event in session.all_events():
        if event.actions is None:
            continue
        await trio.sleep(1.5)
        await session.add_reward(1.0, 1.0, "*", tick_id=tick)
        if tick == LATE_AT:
            await session.add_reward(5.0, 1.0, "*", tick_id=LATE_TICK)
        tick += 1
        observations = [("*", b"%d" % tick)]
        await (session.end(observations) if tick == TICKS else session.produce_observations(observations))


async def actor(session: Any) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"a")


def register(participants: Participants) -> None:
    participants.register_environment(world_that_rewards)
    participants.register_actor(actor, "patient")


def params_at(endpoint: str, datalog_endpoint: str) -> TrialParams:
    return trial_params(
        [actor_params(name, "player", endpoint=endpoint) for name in ("ann", "bob")],
        environment_endpoint=endpoint,
        datalog_endpoint=datalog_endpoint,
        nb_buffered_ticks=3,
    )


def faulty_store(world: World, inner: TrialStore) -> FaultyStore[TrialStore]:
    return FaultyStore(inner, rng=world.stream("store"), history=world.history)


async def follow(channel: CallOpener, trial_id: str) -> list[StoredTrialSample]:
    """Follow a trial from its beginning to its end, and again from the beginning when that fails meanwhile."""
    while True:
        seen: list[StoredTrialSample] = []
        try:
            async with channel.call(TRIALS["RetrieveSamples"]) as call:
                await call.send(RetrieveSamplesRequest(trial_ids=[trial_id]))
                await call.done_sending()
                async for reply in call:
                    seen.append(reply.trial_sample)
        except RpcError as error:
            if error.code not in (StatusCode.UNAVAILABLE, StatusCode.NOT_FOUND):  # it may not have begun
                raise
            await trio.sleep(0.3)
        else:
            return seen


async def read_back(store: TrialStore, trial_id: str) -> list[StoredTrialSample]:
    trial = await store.trial(trial_id)
    assert trial is not None
    rows = await store.samples(trial.number, after=0, limit=10_000, max_bytes=1 << 30)
    return [StoredTrialSample.FromString(row.data) for row in rows]


def check_whole(samples: list[StoredTrialSample]) -> None:
    """Every tick once and in order; the last one ends the trial; no reward is missing, or there twice."""
    assert [sample.tick_id for sample in samples] == list(range(TICKS + 1))
    assert [sample.state == ENDED for sample in samples] == [False] * TICKS + [True]
    for sample in samples:
        assert len(sample.actor_samples) == 2
        for stored in sample.actor_samples:
            assert sample.payloads[stored.observation] == b"%d" % sample.tick_id
            assert stored.HasField("action") == (sample.tick_id < TICKS)
            assert len(stored.received_rewards) == REWARDS_OF.get(sample.tick_id, 0)


async def in_one_process(world: World) -> None:
    inner = MemoryStore(1 << 30)
    faulty = faulty_store(world, inner)
    seen: dict[str, list[StoredTrialSample]] = {}
    async with (
        world.open_platform(store=faulty.store, config=PATIENT_PLATFORM) as platform,
        trio.open_nursery() as nursery,
    ):
        register(platform.participants)

        async def read(trial_id: str) -> None:
            seen[trial_id] = await follow(platform.channel, trial_id)

        for trial_id in TRIAL_IDS:
            await platform.controller.start_trial(params_at("", "cogment://discover"), trial_id=trial_id)
            nursery.start_soon(read, trial_id)
        faulty.faults = FAULTS
        for trial_id in TRIAL_IDS:
            await platform.controller.wait_trial(trial_id)
        with trio.fail_after(300):
            while platform.orchestrator.running_trials:  # noqa: ASYNC110  there is no event for it
                await trio.sleep(1)
        faulty.faults = SOUND
        assert platform.orchestrator.lost_samples == 0
    await check_everything(world, inner, seen)


async def check_everything(world: World, store: TrialStore, seen: dict[str, list[StoredTrialSample]]) -> None:
    for trial_id in TRIAL_IDS:
        check_whole(await read_back(store, trial_id))
        assert [sample.tick_id for sample in seen[trial_id]] == list(range(TICKS + 1))
    for event in world.history:
        world.sometimes(event.what)


@pytest.mark.sim(seeds=15)
def test_in_one_process_nothing_is_lost_and_nothing_there_twice(sim: Sim) -> None:
    sim(in_one_process)


# Over a network


class Cluster:
    """An orchestrator, its participants, a datastore and a reader, each on a host of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.network = world.network
        self.inner = MemoryStore(1 << 30)
        #: Of the datastore's process that runs now: a dead one writes nothing any more.
        self.store = faulty_store(world, self.inner)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Nursery]:
        participants = Participants()
        register(participants)
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, participants.services(), [self.network.host("participants").listen(9001)])
            nursery.start_soon(self.run_datastore)
            yield nursery
            nursery.cancel_scope.cancel()

    async def run_datastore(self) -> None:
        """Serve; two seconds after a crash, again."""
        host = self.network.host("datastore")
        while True:
            with host.running():
                async with Datastore(self.store.store) as datastore:
                    await serve(datastore_services(datastore), [host.listen(9003)])
            await trio.sleep(2)
            host.restart()
            self.store = faulty_store(self.world, self.inner)

    def crash_datastore(self, *, power: bool) -> None:
        self.store.faults = DEAD
        self.network.host("datastore").crash(power=power)

    async def harm(self) -> None:
        """Break connections, the network and the datastore, for as long as the trials go on."""
        rng = self.world.stream("harm")
        while True:
            await trio.sleep(rng.uniform(0.5, 3))
            what = rng.choice(["reset", "partition", "crash", "store"])
            self.world.history.record("world", what)
            if what == "reset":
                for connection in self.network.connections("datastore"):
                    connection.reset()
            elif what == "partition":
                self.network.partition(["datastore"])
                await trio.sleep(rng.uniform(0.5, 3))
                self.network.heal()
            elif what == "crash":
                self.crash_datastore(power=rng.random() < 0.5)
                await trio.sleep(5)
            elif self.store.faults != DEAD:
                self.store.faults = FAULTS
                await trio.sleep(2)
                self.store.faults = SOUND

    async def info(self, channel: CallOpener, trial_id: str) -> StoredTrialInfo:
        reply = await channel.unary(TRIALS["RetrieveTrials"], RetrieveTrialsRequest(trial_ids=[trial_id]))
        (info,) = reply.trial_infos
        assert isinstance(info, StoredTrialInfo)
        return info


async def over_a_network(world: World) -> None:
    cluster = Cluster(world)
    seen: dict[str, list[StoredTrialSample]] = {}
    async with (
        cluster.running(),
        world.serve_orchestrator(config=PATIENT) as orchestrator,
        world.network.host("desk").channel("orchestrator", 9000) as channel,
        world.network.host("reader").channel("datastore", 9003) as reader,
        trio.open_nursery() as reading,
        trio.open_nursery() as nursery,
    ):
        controller = Controller(channel)

        async def read(trial_id: str) -> None:
            seen[trial_id] = await follow(reader, trial_id)

        for trial_id in TRIAL_IDS:
            params = params_at("grpc://participants:9001", "grpc://datastore:9003")
            await controller.start_trial(params, trial_id=trial_id)
            reading.start_soon(read, trial_id)
        nursery.start_soon(cluster.harm)
        for trial_id in TRIAL_IDS:
            await controller.wait_trial(trial_id)
        nursery.cancel_scope.cancel()
        cluster.network.heal()
        if cluster.store.faults != DEAD:
            cluster.store.faults = SOUND
        with trio.fail_after(300):
            while orchestrator.running_trials:  # noqa: ASYNC110  there is no event for it
                await trio.sleep(1)
        assert orchestrator.lost_samples == 0
    await check_everything(world, cluster.inner, seen)


@pytest.mark.sim(seeds=15)
def test_over_a_network_nothing_is_lost_and_nothing_there_twice(sim: Sim) -> None:
    sim(over_a_network)


async def orchestrators_end(world: World, *, power: bool) -> None:
    cluster = Cluster(world)
    network = world.network
    host = network.host("orchestrator")

    async def orchestrate() -> None:
        with host.running():
            async with world.serve_orchestrator(), network.host("desk").channel("orchestrator", 9000) as channel:
                params = params_at("grpc://participants:9001", "grpc://datastore:9003")
                await Controller(channel).start_trial(params, trial_id="t")
                await trio.sleep_forever()

    async with cluster.running() as nursery, network.host("reader").channel("datastore", 9003) as reader:
        nursery.start_soon(orchestrate)
        await trio.sleep(world.rng.uniform(1, 5))
        host.crash(power=power)
        died = trio.current_time()
        samples = await follow(reader, "t")
        assert trio.current_time() - died <= 60
        info = await cluster.info(reader, "t")
        assert info.ended_abnormally
        assert info.samples_count == len(samples)
        assert [sample.tick_id for sample in samples] == list(range(len(samples)))


@pytest.mark.sim(seeds=5)
@pytest.mark.parametrize("power", [False, True])
def test_a_dead_orchestrators_trial_is_marked_within_a_minute(sim: Any, power: bool) -> None:
    async def scenario(world: World) -> None:
        await orchestrators_end(world, power=power)

    sim(scenario)
