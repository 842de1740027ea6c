"""Quotas under races: several holders of each account start, store and delete at once, and leave in the middle.

After every step of anybody, and all the time in between, no account has more than its quotas. At the end, when all is
ended and deleted, the books are empty.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest
import trio

from tests.access.keys import KEYS
from trio_cogment.access import AccessControl, Grant, Quotas, Role, Rules, Token
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.trial_datastore_pb2 import (
    AddSampleRequest,
    AddTrialRequest,
    DeleteTrialsRequest,
    StoredTrialSample,
)
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import Channel, methods_of, serve
from trio_cogment.sdk import (
    ActorSession,
    Controller,
    EnvironmentSession,
    ModelRegistryClient,
    Participants,
    actor_params,
    trial_params,
)
from trio_cogment.servers.model_registry import LocalBlobs, ModelRegistry
from trio_cogment.testing import World, check_determinism
from trio_cogment.testing.pytest_plugin import Sim

PORT = 9000
STEPS = 25
ACCOUNTS = {
    "alice": Quotas(trials=2, stored_bytes=2500, models=2),
    "bob": Quotas(trials=1, stored_bytes=4000, models=3),
}
HOLDERS = 3
STORE = methods_of(SERVICES[ServiceKind.DATASTORE].descriptor())
#: Its data log is the datastore of the process, so that samples of trials count, too.
PARAMS = trial_params([actor_params("a", "player", implementation="player")], datalog_endpoint="cogment://discover")
#: How a step may end, besides well, and besides being refused by a quota: another holder has just taken it away.
EXPECTED = {
    StatusCode.NOT_FOUND,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.CANCELLED,
}


def is_expected(error: RpcError) -> bool:
    if error.code is StatusCode.RESOURCE_EXHAUSTED:
        return "the quota of" in error.message
    return error.code in EXPECTED


async def environment(session: EnvironmentSession) -> None:
    await session.start([("*", b"")])
    async for event in session.all_events():
        if event.actions is not None:
            await session.produce_observations([("*", b"")])


async def player(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await trio.sleep(0.05)
            await session.do_action(b"")


class Books:
    """What the accounts have, as the servers see it."""

    def __init__(self, world: World, platform: Platform, registry: ModelRegistry) -> None:
        assert platform.datastore is not None
        self._world = world
        self.platform = platform
        self.datastore = platform.datastore
        self.registry = registry

    async def check(self) -> None:
        """No account has more than it may."""
        for name, quotas in ACCOUNTS.items():
            account = f"token:{name}"
            running = [
                trial
                for trial in self.platform.orchestrator.trials
                if trial.owner == account and trial.state != TrialState.ENDED
            ]
            assert len(running) <= (quotas.trials or 0), f"{name} has {len(running)} trials"
            stored = await self.datastore.store.stored_bytes(account)
            assert stored <= (quotas.stored_bytes or 0), f"{name} has stored {stored} bytes"
            models = [model for model in self.registry.models.values() if model.owner == account]
            assert len(models) <= (quotas.models or 0), f"{name} has {len(models)} models"
            assert self.registry.holdings.counts.used(account) >= len(models)
            used = self.registry.holdings.used(account)
            assert used <= (quotas.stored_bytes or 0), f"{name} has models of {used} bytes"
            if len(running) == quotas.trials:
                self._world.sometimes("all trials")
            if len(models) == quotas.models:
                self._world.sometimes("all models")

    async def check_for_ever(self) -> None:
        while True:
            await self.check()
            await trio.sleep(0.005)

    async def check_empty(self) -> None:
        """Nothing is counted for anybody."""
        with trio.fail_after(60):
            while self.platform.orchestrator.room.used != (0, 0, 0) or self.datastore.writer.accounts.reserved:  # noqa: ASYNC110  virtual time is free
                await trio.sleep(0.1)
        for name in ACCOUNTS:
            assert await self.datastore.store.stored_bytes(f"token:{name}") == 0
            assert self.registry.holdings.used(f"token:{name}") == 0
        assert self.registry.holdings.counts.accounts == {}
        assert self.registry.holdings.reserved.accounts == {}


class Holder:
    """One of several programs with the same token."""

    def __init__(self, world: World, channel: Channel, rng: random.Random, books: Books) -> None:
        self._world = world
        self._channel = channel
        self._rng = rng
        self._books = books
        self._controller = Controller(channel)
        self._models = ModelRegistryClient(channel)

    async def run(self, name: str) -> None:
        steps: list[Callable[[str], Awaitable[None]]] = [
            self._start,
            self._end,
            self._add_trial,
            self._add_samples,
            self._delete_trial,
            self._create_model,
            self._upload,
            self._delete_model,
        ]
        for _ in range(STEPS):
            step = self._rng.choice(steps)
            with trio.move_on_after(self._rng.choice([60, 60, self._rng.uniform(0, 0.05)])) as scope:
                try:
                    await step(name)
                except RpcError as error:
                    if not is_expected(error):
                        raise
                    if error.code is StatusCode.RESOURCE_EXHAUSTED:
                        self._world.sometimes(f"refused: {step.__name__}")
            if scope.cancelled_caught:
                self._world.sometimes("left")
            await self._books.check()
            await trio.sleep(self._rng.choice([0.0, 0.01]))

    def _some(self, name: str) -> str:
        return f"{name}-{self._rng.randrange(4)}"

    async def _start(self, name: str) -> None:
        await self._controller.start_trial(PARAMS)

    async def _end(self, name: str) -> None:
        infos = await self._controller.trial_infos()
        if infos:
            await self._controller.terminate_trial([info.trial_id for info in infos], hard=True)

    async def _add_trial(self, name: str) -> None:
        params = TrialParams(properties={"x": "y" * self._rng.choice([0, 100, 1000])})
        metadata = ((TRIAL_ID, self._some(name)),)
        await self._channel.unary(STORE["AddTrial"], AddTrialRequest(trial_params=params), metadata=metadata)

    async def _add_samples(self, name: str) -> None:
        async with self._channel.call(STORE["AddSample"], metadata=((TRIAL_ID, self._some(name)),)) as call:
            try:
                for _ in range(self._rng.randrange(6)):
                    sample = StoredTrialSample(
                        tick_id=self._rng.randrange(4),
                        state=TrialState.RUNNING,
                        payloads=[bytes(self._rng.choice([1, 100, 800]))],
                    )
                    await call.send(AddSampleRequest(trial_sample=sample))
                await call.done_sending()
            except RpcError:
                pass  # what it was refused with comes below
            await call.receive()

    async def _delete_trial(self, name: str) -> None:
        stored = await self._books.datastore.store.trials(after=0, limit=100)
        own = [trial.trial_id for trial in stored if trial.owner == f"token:{name}"]
        if own:
            request = DeleteTrialsRequest(trial_ids=[self._rng.choice(own)])
            await self._channel.unary(STORE["DeleteTrials"], request)

    async def _create_model(self, name: str) -> None:
        await self._models.create_model(self._some(name), {"x": "y" * self._rng.choice([0, 500])})

    async def _upload(self, name: str) -> None:
        size = self._rng.choice([0, 300, 1500])
        add = self._models.store if self._rng.random() < 0.7 else self._models.publish
        model = self._some(name)
        async with trio.open_nursery() as nursery:  # they race each other, too
            for _ in range(self._rng.randrange(1, 3)):
                nursery.start_soon(self._add_version, add, model, size)

    async def _add_version(self, add: Callable[..., Awaitable[object]], model: str, size: int) -> None:
        try:
            await add(model, bytes(size))
        except RpcError as error:
            if not is_expected(error):
                raise
            if error.code is StatusCode.RESOURCE_EXHAUSTED:
                self._world.sometimes("refused: _upload")

    async def _delete_model(self, name: str) -> None:
        await self._models.delete_model(self._some(name))

    async def clear(self, name: str) -> None:
        """End and delete everything."""
        await self._end(name)
        with trio.fail_after(60):
            while any(info.state != TrialState.ENDED for info in await self._controller.trial_infos()):  # noqa: ASYNC110  virtual time is free
                await trio.sleep(0.1)
        await trio.sleep(60)  # what data logs had still to write is written
        stored = await self._books.datastore.store.trials(after=0, limit=1000)
        own = [trial.trial_id for trial in stored if trial.owner == f"token:{name}"]
        await self._channel.unary(STORE["DeleteTrials"], DeleteTrialsRequest(trial_ids=own))
        for model in list(self._books.registry.models.values()):
            if model.owner == f"token:{name}":
                await self._models.delete_model(model.model_id)


def channel_of(world: World, host: str, name: str) -> AbstractAsyncContextManager[Channel]:
    held = Grant(name=name, roles=frozenset([Role.OPERATOR]), quotas=ACCOUNTS[name])
    token = KEYS.sign(Token(token_id=host.replace("-", ""), grant=held, expires_at=0))
    return world.network.host(host).channel("server", PORT, token=token)


async def races(world: World) -> None:
    host = world.host("server")
    access = AccessControl(Rules(keys=KEYS), wall_clock=host.wall_clock, new_id=host.new_id)
    participants = Participants(host=host)
    participants.register_environment(environment)
    participants.register_actor(player, "player")
    blobs = LocalBlobs("/archive", files=world.disk("server"))
    async with (
        ModelRegistry(blobs, host=host) as registry,
        open_platform(participants, store="memory:", model_registry=registry, host=host) as platform,
        trio.open_nursery() as nursery,
    ):
        listener = world.network.host("server").listen(PORT)
        await nursery.start(partial(serve, platform.services, [listener], access=access))
        books = Books(world, platform, registry)

        async def hold(host: str, name: str) -> None:
            async with channel_of(world, host, name) as channel:
                await Holder(world, channel, world.stream(host), books).run(name)

        async with trio.open_nursery() as watching:
            watching.start_soon(books.check_for_ever)
            async with trio.open_nursery() as holders:
                for name in ACCOUNTS:
                    for number in range(HOLDERS):
                        holders.start_soon(hold, f"{name}-{number}", name)
            watching.cancel_scope.cancel()
        for name in ACCOUNTS:
            async with channel_of(world, f"{name}-last", name) as channel:
                await Holder(world, channel, world.rng, books).clear(name)
        await books.check_empty()
        nursery.cancel_scope.cancel()


@pytest.mark.sim(seeds=4)
def test_quotas_hold_under_races(sim: Sim) -> None:
    reached = set(sim(races).counters)
    assert "left" in reached or "all trials" in reached


def test_what_is_to_happen_does_happen() -> None:
    from trio_cogment.testing import simulate

    reached: set[str] = set()
    for seed in range(1000, 1003):
        reached |= set(simulate(seed, races).counters)
    refusals = {f"refused: {step}" for step in ("_start", "_add_trial", "_add_samples", "_create_model", "_upload")}
    assert reached >= {"left", "all trials", "all models", *refusals}


def test_a_seed_runs_the_same_twice() -> None:
    check_determinism(7, races)
