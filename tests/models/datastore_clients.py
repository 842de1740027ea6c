"""A datastore and clients that use it at once: some write by hand, some read, one is a data log that comes and goes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import trio

from tests.models import trial_store as model
from tests.models.clients import NO_ANSWER, NOT_FOUND, PATIENCE_SECONDS, ask
from tests.models.trial_store import ENDED, NOTHING, OK, RUNNING, TERMINATING
from tests.servers.datastore.harness import DATA_LOG, TRIALS, params_with, sample_of
from tests.servers.datastore.test_simulated import FAULTS, SOUND, Cluster, faulty_store
from trio_cogment.api.datalog_pb2 import RunTrialDatalogInput
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.trial_datastore_pb2 import (
    AddSampleRequest,
    AddTrialRequest,
    DeleteTrialsRequest,
    RetrieveSamplesRequest,
    RetrieveTrialsRequest,
    StoredTrialSample,
)
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import CallOpener
from trio_cogment.servers.datastore import Datastore, TrialStore, datastore_services
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.testing import CallLog, World

IDS = ("a", "b", "c")
CLIENTS = ("ann", "bob", "cat")
TURNS = 14
PARAMS = params_with("x")


class Step(NamedTuple):
    """What a client does next. What is not needed for it has no meaning.

    Attributes:
        what: a name of `STEPS`.
        trial_id: which trial.
        tick: of a sample.
        state: of a sample.
        most: of a page.
        pause: before it, in seconds.
    """

    what: str
    trial_id: str = "a"
    tick: int = 0
    state: int = RUNNING
    most: int = 0
    pause: float = 0.0


STEPS = (
    *("add trial", "add sample", "add sample", "add sample", "add sample", "add sample", "delete", "delete both"),
    *("page", "page", "next page", "named page", "follow", "follow"),
)


def draw(rng: random.Random) -> Step:
    """Draw a step."""
    return Step(
        rng.choice(STEPS),
        rng.choice((*IDS, "a")),
        rng.randrange(4),
        rng.choice([RUNNING, RUNNING, TERMINATING, ENDED]),
        rng.choice([0, 1, 2]),
        rng.choice([0.0, 0.0, rng.uniform(0, 2)]),
    )


class Client:
    """One that writes by hand and reads."""

    def __init__(self, log: CallLog, name: str, channel: CallOpener, following: trio.Nursery) -> None:
        self._log = log
        self.name = name
        self._channel = channel
        self._following = following
        self._count = 0
        #: What the last request was about was not there.
        self.missing = False
        self._last: model.Entry | None = None
        self._handle = ""

    async def do(self, step: Step) -> None:
        """Do a step."""
        await trio.sleep(step.pause)
        self._count += 1
        unique = f"{self.name}{self._count}"
        if step.what == "add trial":
            await self._ask(model.AddTrial(step.trial_id, unique), self._add_trial)
        elif step.what == "add sample":
            sample = model.Sample(step.tick, self._count, step.state, unique)
            await self._ask(model.AddSample(step.trial_id, sample), self._add_sample)
            if self.missing:
                await self._ask(model.AddTrial(step.trial_id, unique), self._add_trial)
        elif step.what == "follow":
            self._following.start_soon(follow, self._log, self.name, self._channel, step.trial_id)
        elif step.what.startswith("delete"):
            ids = (step.trial_id,) if step.what == "delete" else IDS[:2]
            await self._ask(model.Delete(ids), self._delete)
        else:
            await self._look(step)

    async def _ask(self, request: Any, call: Any) -> None:
        self.missing = await ask(self._log, self.name, request, lambda: call(request)) == NOT_FOUND

    async def _look(self, step: Step) -> None:
        if step.what != "next page":
            self._last, self._handle = None, ""
        ids = (step.trial_id, "a") if step.what == "named page" else ()
        await self._ask(model.Page(ids, self._last, step.most), self._page)

    async def _add_trial(self, request: model.AddTrial) -> str:
        sent = AddTrialRequest(user_id=request.user, trial_params=PARAMS)
        await self._channel.unary(TRIALS["AddTrial"], sent, metadata={"trial-id": request.trial_id})
        return OK

    async def _add_sample(self, request: model.AddSample) -> str:
        tick, stamp, state, text = request.sample
        sample = StoredTrialSample(tick_id=tick, timestamp=stamp, state=state, payloads=[text.encode()])  # type: ignore[arg-type]  # an int is an enum value
        async with self._channel.call(TRIALS["AddSample"], metadata={"trial-id": request.trial_id}) as call:
            await call.send(AddSampleRequest(trial_sample=sample))
            await call.done_sending()
            await call.receive()
        return OK

    async def _delete(self, request: model.Delete) -> str:
        await self._channel.unary(TRIALS["DeleteTrials"], DeleteTrialsRequest(trial_ids=request.trial_ids))
        return OK

    async def _page(self, request: model.Page) -> tuple[model.Entry, ...]:
        found, handle = await page_after(self._channel, request, self._handle)
        self._last, self._handle = (found[-1] if found else request.after), handle
        return found


async def page_after(channel: CallOpener, request: model.Page, handle: str) -> tuple[tuple[model.Entry, ...], str]:
    """Get a page, and the handle of the next."""
    sent = RetrieveTrialsRequest(trial_ids=request.trial_ids, trials_count=request.most, trial_handle=handle)
    reply = await channel.unary(TRIALS["RetrieveTrials"], sent)
    found = tuple(
        model.Entry(info.trial_id, info.user_id, info.samples_count, info.last_state, info.ended_abnormally)
        for info in reply.trial_infos
    )
    return found, reply.next_trial_handle


async def page(channel: CallOpener, request: model.Page) -> tuple[model.Entry, ...]:
    """Get a first page."""
    return (await page_after(channel, request, ""))[0]


async def follow(log: CallLog, name: str, channel: CallOpener, trial_id: str) -> None:
    """Read the samples of a trial, until it has ended or for some time."""
    since, last = log.now(), ""

    def seen(answer: str) -> None:
        log.seen(f"{name}, reading", model.Next(trial_id, last), answer, since=since)

    try:
        with trio.move_on_after(PATIENCE_SECONDS) as patience:
            async with channel.call(TRIALS["RetrieveSamples"]) as call:
                await call.send(RetrieveSamplesRequest(trial_ids=[trial_id]))
                await call.done_sending()
                async for reply in call:
                    text = reply.trial_sample.payloads[0].decode()
                    seen(text)
                    last = text
        if not patience.cancelled_caught:
            seen(NOTHING)
            log.seen(f"{name}, reading", model.Ended(trial_id), OK, since=since)
    except RpcError as error:
        if error.code is StatusCode.NOT_FOUND:
            seen(NOT_FOUND)
        elif error.code not in NO_ANSWER:
            raise


class DataLog:
    """One that logs a trial: it comes back when its call breaks, sometimes says a sample twice, and runs it again."""

    def __init__(self, log: CallLog, trial_id: str, channel: CallOpener, rng: random.Random) -> None:
        self._log = log
        self._trial_id = trial_id
        self._channel = channel
        self._rng = rng
        self._count = 0

    async def run(self, calls: int) -> None:
        """Log, in this many calls."""
        for _ in range(calls):
            try:
                with trio.move_on_after(PATIENCE_SECONDS):
                    await self._log_some()
            except RpcError as error:
                if error.code not in (*NO_ANSWER, StatusCode.NOT_FOUND):
                    raise
            # From now on the datastore may give it up.
            self._log.begin("the datastore", model.GiveUp(self._trial_id))
            await trio.sleep(self._rng.choice([0.1, 3.0, 30.0]))
            await self._look("logger")

    async def _log_some(self) -> None:
        self._count += 1
        user = f"log{self._count}"
        metadata = {"trial-id": self._trial_id, "user-id": user}
        rng = self._rng
        async with self._channel.call(DATA_LOG, metadata=metadata) as call:
            began = self._log.begin(user, model.BeginLog(self._trial_id, user))
            await call.send(RunTrialDatalogInput(trial_params=PARAMS))
            await call.receive()
            self._log.end(began, OK)
            await self._look(user)
            run, tick = rng.randrange(2), rng.randrange(2)
            for number in range(rng.randint(1, 4)):
                state = rng.choice([RUNNING, RUNNING, RUNNING, ENDED])
                # The same tick of the same run is the same sample, though its text tells the two apart.
                sample = model.Sample(tick, 100 * run + tick, state, f"{user}.{number}")
                await self._say(call, user, sample)
                tick += rng.choice([0, 0, 1])
                await self._look(user)

    async def _look(self, user: str) -> None:
        request = model.Page((self._trial_id,))
        await ask(self._log, user, request, lambda: page(self._channel, request))

    async def _say(self, call: Any, user: str, sample: model.Sample) -> None:
        number = self._log.begin(user, model.LogSample(self._trial_id, sample))
        observations = ObservationSet(tick_id=-1, observations=[sample.text.encode()], actors_map=[0])
        made = sample_of(sample.tick, sample.state, actors=1, timestamp=sample.stamp, observations=observations)
        await call.send(RunTrialDatalogInput(sample=made))
        try:
            await call.receive()
        except RpcError as error:
            if error.code is StatusCode.NOT_FOUND:
                self._log.end(number, NOT_FOUND)
            raise
        self._log.end(number, OK)


async def over_a_network(world: World) -> CallLog:
    """Clients, a data log and a datastore on hosts of their own; connections, network, datastore and storage fail."""
    cluster = Cluster(world)
    log = CallLog()
    network = world.network
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.run_datastore)
        nursery.start_soon(cluster.harm)
        async with trio.open_nursery() as clients:
            for name in CLIENTS:
                clients.start_soon(_a_client, world, log, name, name=f"client {name}")
            clients.start_soon(_a_data_log, world, log, name="data log")
        nursery.cancel_scope.cancel()
    network.heal()
    for event in world.history:
        world.sometimes(event.what)
    return log


async def _a_client(world: World, log: CallLog, name: str) -> None:
    rng = world.stream(f"client {name}")
    async with (
        world.network.host(name).channel("datastore", 9003) as channel,
        trio.open_nursery() as following,
    ):
        client = Client(log, name, channel, following)
        for _ in range(TURNS):
            await client.do(draw(rng))


async def _a_data_log(world: World, log: CallLog) -> None:
    async with world.network.host("logger").channel("datastore", 9003) as channel:
        await DataLog(log, "a", channel, world.stream("data log")).run(4)


async def in_one_process(
    world: World, scripts: Sequence[Sequence[Step]], *, faults: bool, inner: TrialStore | None = None
) -> CallLog:
    """Clients that do what they are told, in one process, with a storage that is slow or fails.

    It is in memory; with another one there is a data log, too.
    """
    log = CallLog()
    store = faulty_store(world, inner or MemoryStore(1 << 30))
    async with Datastore(store.store) as datastore:
        store.faults = FAULTS if faults else SOUND
        async with world.in_process(datastore_services(datastore)) as channel, trio.open_nursery() as nursery:
            if inner is not None:
                nursery.start_soon(DataLog(log, "a", channel, world.stream("data log")).run, 3)
            for number, script in enumerate(scripts):
                nursery.start_soon(
                    _script, Client(log, f"{number}-", channel, nursery), script, name=f"client {number}"
                )
    return log


async def _script(client: Client, script: Sequence[Step]) -> None:
    for step in script:
        await client.do(step)
