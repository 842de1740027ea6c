"""A datastore for tests, and calls to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from tests.helpers import wire_channel
from trio_cogment.api import datalog_pb2, trial_datastore_pb2
from trio_cogment.api.common_pb2 import Action, ActorParams, EnvironmentParams, TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput, SampleInfo
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.trial_datastore_pb2 import (
    AddSampleRequest,
    AddTrialRequest,
    DeleteTrialsRequest,
    RetrieveSamplesRequest,
    RetrieveTrialsReply,
    RetrieveTrialsRequest,
    StoredTrialSample,
)
from trio_cogment.base.config import DatastoreConfig
from trio_cogment.rpc import CallOpener, ClientCall, InProcessChannel, methods_of
from trio_cogment.servers.datastore import Datastore, TrialStore, datastore_services, open_store
from trio_cogment.servers.datastore._chunk_layouts import Parts, SampleData
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore.storage import Write

DATA_LOG = methods_of(datalog_pb2.DESCRIPTOR.services_by_name["DatalogSP"])["RunTrialDatalog"]
LOG_EXPORTER = methods_of(datalog_pb2.DESCRIPTOR.services_by_name["LogExporterSP"])["RunTrialDatalog"]
TRIALS = methods_of(trial_datastore_pb2.DESCRIPTOR.services_by_name["TrialDatastoreSP"])

RUNNING, ENDED = TrialState.RUNNING, TrialState.ENDED


def params_with(*actors: str, **options: Any) -> TrialParams:
    """Return parameters with actors, each given as `name` or `class.name` or `class.name.implementation`."""
    made = []
    for actor in actors:
        actor_class, _, rest = actor.rpartition(".") if actor.count(".") == 1 else ("", "", actor)
        implementation = ""
        if actor.count(".") == 2:
            actor_class, rest, implementation = actor.split(".")
        made.append(ActorParams(name=rest, actor_class=actor_class or "player", implementation=implementation))
    return TrialParams(actors=made, environment=EnvironmentParams(name="env"), **options)


def sample_of(
    tick_id: int, state: Any = RUNNING, *, actors: int = 2, timestamp: int | None = None, **options: Any
) -> DatalogSample:
    """Return a sample in which each actor has an observation and an action."""
    stamp = 1000 + tick_id if timestamp is None else timestamp
    given: dict[str, Any] = {
        "info": SampleInfo(tick_id=tick_id, timestamp=stamp, state=state),
        "observations": ObservationSet(tick_id=-1, observations=[b"o%d" % tick_id], actors_map=[0] * actors),
        "actions": [Action(tick_id=tick_id, content=b"a%d" % index) for index in range(actors)],
        **options,
    }
    return DatalogSample(**given)


def late_sample(tick_id: int, *, timestamp: int = 5000, **options: Any) -> DatalogSample:
    """Return an out-of-sync sample."""
    return DatalogSample(info=SampleInfo(tick_id=tick_id, timestamp=timestamp, out_of_sync=True), **options)


def whole(ticks: int) -> list[DatalogSample]:
    """Return the samples of a trial that ends."""
    return [sample_of(tick, ENDED if tick == ticks - 1 else RUNNING) for tick in range(ticks)]


class Harness:
    """Calls to a datastore."""

    def __init__(self, channel: CallOpener, datastore: Datastore) -> None:
        self.channel = channel
        self.datastore = datastore

    def data_log(self, trial_id: str, user_id: str = "somebody") -> ClientCall:
        """Open a data log's call."""
        return self.channel.call(DATA_LOG, metadata=(("trial-id", trial_id), ("user-id", user_id)))

    async def log(self, trial_id: str, samples: Iterable[DatalogSample], params: TrialParams | None = None) -> None:
        """Log samples and end the stream in good order."""
        async with self.data_log(trial_id) as call:
            await send_log(call, samples, params)
            await call.done_sending()
            async for _ in call:
                pass

    async def trials(self, **options: Any) -> RetrieveTrialsReply:
        """Retrieve trials."""
        reply: RetrieveTrialsReply = await self.channel.unary(
            TRIALS["RetrieveTrials"], RetrieveTrialsRequest(**options)
        )
        return reply

    async def samples(self, *trial_ids: str, **options: Any) -> list[StoredTrialSample]:
        """Retrieve the samples of trials until they have ended."""
        return [sample async for sample in self.follow(*trial_ids, **options)]

    async def follow(self, *trial_ids: str, **options: Any) -> AsyncIterator[StoredTrialSample]:
        """Retrieve samples one by one."""
        async with self.channel.call(TRIALS["RetrieveSamples"]) as call:
            await call.send(RetrieveSamplesRequest(trial_ids=trial_ids, **options))
            await call.done_sending()
            async for reply in call:
                yield reply.trial_sample

    async def add_trial(self, trial_id: str, params: TrialParams | None = None, user_id: str = "") -> None:
        """Add a trial by hand."""
        request = AddTrialRequest(user_id=user_id, trial_params=params or params_with("ann", "bob"))
        await self.channel.unary(TRIALS["AddTrial"], request, metadata=(("trial-id", trial_id),))

    async def add_samples(self, trial_id: str, samples: Sequence[StoredTrialSample]) -> None:
        """Add samples by hand."""
        async with self.channel.call(TRIALS["AddSample"], metadata=(("trial-id", trial_id),)) as call:
            for sample in samples:
                await call.send(AddSampleRequest(trial_sample=sample))
            await call.done_sending()
            async for _ in call:
                pass

    async def delete(self, *trial_ids: str) -> None:
        """Delete trials."""
        await self.channel.unary(TRIALS["DeleteTrials"], DeleteTrialsRequest(trial_ids=trial_ids))


async def send_log(call: ClientCall, samples: Iterable[DatalogSample], params: TrialParams | None = None) -> None:
    """Send what a data log gets."""
    await call.send(RunTrialDatalogInput(trial_params=params or params_with("ann", "bob")))
    for sample in samples:
        await call.send(RunTrialDatalogInput(sample=sample))


@asynccontextmanager
async def open_harness(
    store: TrialStore | str = "memory:", *, wire: bool = False, memory_bytes: int = 1 << 30, **config: Any
) -> AsyncIterator[Harness]:
    """Run a datastore, called in process or over HTTP/2."""
    open_channel = wire_channel if wire else InProcessChannel
    if isinstance(store, str):
        async with (
            open_store(store, memory_bytes=memory_bytes) as opened,
            open_harness(opened, wire=wire, **config) as harness,
        ):
            yield harness
        return
    async with (
        Datastore(store, config=DatastoreConfig(**config)) as datastore,
        open_channel(datastore_services(datastore)) as channel,
    ):
        yield Harness(channel, datastore)


def values_of(data: SampleData) -> tuple[bytes, ...]:
    """Return the numbers and payloads of a sample as the conversion hands them over."""
    assert isinstance(data, Parts)
    assert data.size == len(data.joined())
    return tuple(column if isinstance(column, bytes) else column[0] for column in data.form.columns([data]))


class GateStore(MemoryStore):
    """A storage whose writes can be made to wait or fail.

    Attributes:
        gate: writes wait until it is set.
        seconds: so long they take then.
        failure: what the next writes raise.
        batches: what was written, and tried to be.
    """

    def __init__(self, max_bytes: int = 1 << 30) -> None:
        super().__init__(max_bytes)
        self.gate = trio.Event()
        self.gate.set()
        self.seconds = 0.0
        self.failure: Exception | None = None
        self.batches: list[Sequence[Write]] = []

    async def apply(self, writes: Sequence[Write]) -> Mapping[int, str]:
        """See `TrialStore.apply`."""
        self.batches.append(writes)
        await self.gate.wait()
        await trio.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        return await super().apply(writes)
