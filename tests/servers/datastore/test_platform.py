"""A datastore in the platform: its orchestrator's trials go there without a wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.servers.datastore.harness import ENDED, GateStore, Harness
from trio_cogment import open_platform
from trio_cogment.api.common_pb2 import DatalogParams, TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, SampleInfo
from trio_cogment.base.config import DatastoreConfig, OrchestratorConfig, PlatformConfig
from trio_cogment.base.errors import (
    InvalidArgumentError,
    ResourceExhaustedError,
    StorageFailedError,
    TrialFailedError,
    TrialIncompleteError,
    UnavailableError,
)
from trio_cogment.platform import Platform
from trio_cogment.rpc import InProcessChannel
from trio_cogment.sdk import DatastoreClient, actor_params, trial_params
from trio_cogment.servers.datastore import Datastore, TrialEnd, TrialStore, datastore_services
from trio_cogment.servers.datastore._conversion import TrialConverter
from trio_cogment.servers.datastore.storage import SampleWrite, Write

Clock = trio.testing.MockClock


def register(platform: Platform, ticks: int, seconds_per_tick: float = 0.0, observation: bytes = b"") -> None:
    async def environment(session: Any) -> None:
        await session.start([("*", observation + b"0")])
        tick = 0
        async for event in session.all_events():
            if event.actions is not None:
                await trio.sleep(seconds_per_tick)
                tick += 1
                observations = [("*", observation + b"%d" % tick)]
                await (session.end(observations) if tick == ticks else session.produce_observations(observations))

    async def actor(session: Any) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"a")

    platform.participants.register_environment(environment)
    platform.participants.register_actor(actor, "patient")


def params(endpoint: str = "cogment://discover", **options: Any) -> TrialParams:
    return trial_params([actor_params("ann", "player")], datalog_endpoint=endpoint, **options)


@asynccontextmanager
async def stored(
    store: TrialStore | str, ticks: int = 5, seconds_per_tick: float = 0.0, observation: bytes = b"", **options: Any
) -> AsyncIterator[tuple[Platform, Harness]]:
    async with open_platform(store=store, config=PlatformConfig(**options)) as platform:
        register(platform, ticks, seconds_per_tick, observation)
        assert platform.datastore is not None
        yield platform, Harness(platform.channel, platform.datastore)


@pytest.mark.parametrize(
    ("datalog", "is_stored"),
    [
        (None, True),
        (DatalogParams(exclude_fields=["observations"]), True),
        (DatalogParams(endpoint="cogment://discover"), True),
        (DatalogParams(), False),  # which is not the same as none at all
    ],
)
async def test_trials_are_stored_unless_their_parameters_say_otherwise(
    datalog: DatalogParams | None, is_stored: bool, autojump_clock: Clock
) -> None:
    given = trial_params([actor_params("ann", "player")])
    if datalog is not None:
        given.datalog.CopyFrom(datalog)
    async with stored("memory:") as (platform, harness):
        assert platform.orchestrator.datalog_of(given) == ("cogment://discover" if is_stored else "")
        for trial_id in ("given", "by-default"):
            await platform.controller.start_trial(given if trial_id == "given" else None, trial_id=trial_id)
            platform.orchestrator.default_params.CopyFrom(given)
            await platform.controller.wait_trial(trial_id)
        found = (await harness.trials()).trial_infos
        assert sorted(info.trial_id for info in found) == (["by-default", "given"] if is_stored else [])
        assert all(info.params.datalog.endpoint == "cogment://discover" for info in found)


@pytest.mark.parametrize("kind", ["memory:", "sqlite:"])
async def test_trials_are_stored_and_served(kind: str, tmp_path: Path) -> None:
    address = kind if kind == "memory:" else f"sqlite:{tmp_path / 'trials'}"
    async with stored(address) as (platform, harness):
        assert {service.name.split(".")[1] for service in platform.services} >= {
            "DatalogSP",
            "LogExporterSP",
            "TrialDatastoreSP",
        }
        await platform.orchestrator.start_trial(trial_id="t", user_id="ann", params=params())
        with trio.fail_after(30):
            samples = await harness.samples("t")
        assert [sample.tick_id for sample in samples] == list(range(6))
        (info,) = (await harness.trials()).trial_infos
        assert (info.user_id, info.last_state, info.samples_count) == ("ann", ENDED, 6)
        assert info.params.actors[0].name == "ann"


async def test_without_a_store_nothing_is_different() -> None:
    async with open_platform() as platform:
        assert platform.datastore is None
        assert len(platform.services) == 2


async def test_a_trial_without_data_log_is_not_stored(autojump_clock: Clock) -> None:
    async with stored("memory:") as (platform, harness):
        await platform.controller.start_trial(params(""), trial_id="t")
        await platform.controller.wait_trial("t")
        assert not (await harness.trials()).trial_infos


async def test_a_data_log_of_the_users_comes_first(autojump_clock: Clock) -> None:
    async with stored("memory:") as (platform, harness):
        logged = []

        async def log(session: Any) -> None:
            async for sample in session:
                logged.append(sample.tick_id)

        platform.participants.register_datalog(log)
        await platform.controller.start_trial(params(), trial_id="t")
        await platform.controller.wait_trial("t")
        await trio.testing.wait_all_tasks_blocked()
        assert not (await harness.trials()).trial_infos
    assert logged == list(range(6))


async def test_a_store_of_no_kind_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        async with open_platform(store="nowhere:"):
            pass


async def test_a_slow_disk_makes_the_trial_wait(autojump_clock: Clock) -> None:
    store = GateStore()
    config = OrchestratorConfig(max_queued_samples=10)
    async with stored(store, 500, orchestrator=config) as (platform, harness):
        await platform.controller.start_trial(params(), trial_id="t")
        store.gate = trio.Event()
        await trio.sleep(100)
        (trial,) = platform.orchestrator.trials
        tick = trial.info(latest_observation=False, actors=False).tick_id
        assert tick < 40
        await trio.sleep(1000)
        assert trial.info(latest_observation=False, actors=False).tick_id == tick
        store.gate.set()
        assert len(await harness.samples("t")) == 501
        assert platform.orchestrator.lost_samples == 0


@pytest.mark.parametrize("queued", [1, 3, 1024])
async def test_what_failed_is_written_again(queued: int, autojump_clock: Clock) -> None:
    """The orchestrator keeps this many samples: more must not be under way."""
    store = GateStore()
    config = OrchestratorConfig(max_queued_samples=queued, datalog_grace_seconds=100)
    async with stored(store, 100, 0.1, orchestrator=config) as (platform, harness):
        await platform.controller.start_trial(params(), trial_id="t")
        await trio.sleep(3)
        store.gate = trio.Event()
        await trio.sleep(1)
        store.failure = UnavailableError("away")
        store.gate.set()
        await trio.sleep(7)
        store.failure = None
        assert [sample.tick_id for sample in await harness.samples("t")] == list(range(101))
        assert platform.orchestrator.lost_samples == 0


async def test_a_full_disk_makes_the_trial_wait_until_there_is_room(autojump_clock: Clock) -> None:
    store = GateStore()
    async with stored(store, 2000, 0.1) as (platform, harness):
        await platform.controller.start_trial(params(), trial_id="t")
        await trio.sleep(3)
        store.failure = ResourceExhaustedError("no room left")
        await trio.sleep(300)
        (trial,) = platform.orchestrator.trials
        tick = trial.machine.tick_id
        assert tick < 1100  # `max_queued_samples`, and those before
        await trio.sleep(200)
        assert (trial.state, trial.machine.tick_id, trial.samples_lost) == (TrialState.RUNNING, tick, 0)
        [info] = await platform.controller.trial_infos(["t"], actors=True)
        assert info.datalog_trouble == "no room left"
        assert (info.waits_for_datalog, list(info.awaited)) == (True, [])
        seen = trial.glance(participants=True)
        assert (seen.waits_for_datalog, seen.awaited) == (True, ())
        assert not any(one.awaited for one in seen.participants)
        store.failure = None
        outcome = await platform.controller.wait_trial("t")
        assert (outcome.ticks, outcome.samples_lost) == (2001, 0)
        [info] = await platform.controller.trial_infos(["t"])
        assert (info.datalog_trouble, info.waits_for_datalog) == ("", False)
        assert [sample.tick_id for sample in await harness.samples("t")] == list(range(2001))


async def test_a_full_disk_is_logged_at_its_beginning_at_its_end_and_rarely_between(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    store = GateStore()
    patience = OrchestratorConfig(datalog_full_seconds=5000)
    async with stored(store, 2000, 0.1, orchestrator=patience) as (platform, _):
        await platform.controller.start_trial(params(), trial_id="t")
        await trio.sleep(3)
        store.failure = ResourceExhaustedError("no room left")
        await trio.sleep(1500)
        store.failure = None
        await platform.controller.wait_trial("t")
    told = [record.getMessage() for record in caplog.records if record.name.endswith("_group_commit")]
    assert told[0] == "writes failed: no room left"
    assert [text.partition(",")[0] for text in told[1:-1]] == ["writes failed"] * 2
    assert told[-1].startswith("writes do not fail any more (failed ")
    told = [record.getMessage() for record in caplog.records if record.name.endswith("orchestrator._datalog")]
    assert [text.partition(";")[0] for text in told] == [
        "trial t: the data log cannot store samples",
        "trial t: the data log is back",
    ]


async def test_the_end_of_a_full_disk_is_logged_when_nothing_more_is_written(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    store = GateStore()
    async with stored(store, 20, 0.1) as (platform, _):
        await platform.controller.start_trial(params(), trial_id="t")
        await trio.sleep(1)
        store.failure = ResourceExhaustedError("no room left")
        await trio.sleep(60)
        store.failure = None
        assert (await platform.controller.wait_trial("t")).stored
        await trio.sleep(30)
    told = [record.getMessage() for record in caplog.records if record.name.endswith("_group_commit")]
    assert [text.partition(" (")[0] for text in told] == [
        "writes failed: no room left",
        "writes do not fail any more",
    ]


async def test_a_stored_trial_says_that_its_samples_wait(autojump_clock: Clock) -> None:
    """It has ended at its orchestrator; here there is nothing of it yet, or its beginning."""
    store = GateStore()
    async with stored(store, 20, 0.1) as (platform, _):
        client = DatastoreClient(platform.channel)
        await platform.controller.start_trial(params(), trial_id="t")
        await trio.sleep(1)
        [trial] = await client.trials()
        assert trial.storage_trouble == ""
        store.failure = ResourceExhaustedError("no room left")
        await trio.sleep(100)
        [trial] = await client.trials()
        assert (trial.state, trial.storage_trouble) == (TrialState.RUNNING, "no room left")
        store.failure = None
        await platform.controller.wait_trial("t")
        [trial] = await client.trials()
        assert (trial.state, trial.storage_trouble, trial.is_complete) == (TrialState.ENDED, "", True)


async def test_a_trial_of_which_nothing_is_stored_says_why(autojump_clock: Clock) -> None:
    """And no more once its orchestrator has gone for good."""
    store = GateStore()
    config = DatastoreConfig(abandoned_after_seconds=25)
    async with Datastore(store, config=config) as datastore, InProcessChannel(datastore_services(datastore)) as channel:
        client = DatastoreClient(channel)

        async def fails() -> None:
            async with datastore.sink().open("t", "user", params()) as stream:
                store.failure = ResourceExhaustedError("no room left")
                await stream.write(DatalogSample(info=SampleInfo(tick_id=0, state=TrialState.RUNNING)))
                await trio.sleep_forever()

        with pytest.raises(StorageFailedError, match="no room left"):
            await fails()
        [trial] = await client.trials()
        assert (trial.samples_count, trial.storage_trouble) == (0, "no room left")
        store.failure = None
        await trio.sleep(26)
        [trial] = await client.trials()
        assert (trial.ended_abnormally, trial.storage_trouble) == (True, "")


async def test_an_ended_trial_waits_for_a_full_disk_too(autojump_clock: Clock) -> None:
    store = GateStore()
    async with stored(store, 20, 0.1) as (platform, harness):
        await platform.controller.start_trial(params(), trial_id="t")
        await trio.sleep(1)
        store.failure = ResourceExhaustedError("no room left")
        await trio.sleep(500)
        [info] = await platform.controller.trial_infos(["t"])
        assert (info.state, info.end.samples_pending) == (TrialState.ENDED, True)
        assert not info.waits_for_datalog  # it is the log that waits, for room
        assert info.datalog_trouble == "no room left"
        store.failure = None
        assert (await platform.controller.wait_trial("t")).stored
        assert len(await harness.samples("t")) == 21


class Full(GateStore):
    """A storage with room for small things alone."""

    async def apply(self, writes: Sequence[Write]) -> Mapping[int, str]:
        """See `TrialStore.apply`."""
        if any(type(write) is SampleWrite and len(write.data) > 200 for write in writes):
            raise ResourceExhaustedError("no room left")
        return await super().apply(writes)


async def test_what_a_full_disk_has_cost_is_told_everywhere(autojump_clock: Clock) -> None:
    """The trial's description, its outcome and the stored trial agree."""
    config = OrchestratorConfig(datalog_full_seconds=30, max_queued_samples=5)
    async with stored(Full(), 20, 0.1, orchestrator=config, observation=bytes(200)) as (platform, harness):
        await platform.controller.start_trial(params(), trial_id="t")
        await trio.sleep(31)
        [info] = await platform.controller.trial_infos(["t"])
        assert info.state == TrialState.RUNNING
        assert 0 < info.samples_lost == platform.orchestrator.lost_samples < 21
        with pytest.raises(TrialFailedError, match="21 samples did not reach the data log"):
            await platform.controller.wait_trial("t")
        [info] = await platform.controller.trial_infos(["t"])
        assert (info.samples_lost, info.end.samples_lost, platform.orchestrator.lost_samples) == (21, 21, 21)
        [kept] = (await harness.trials()).trial_infos
        assert (kept.last_state, kept.ended_abnormally, kept.samples_count) == (TrialState.ENDED, False, 1)
        assert (kept.end.ticks, kept.end.samples_lost) == (21, 21)
        [last] = await harness.samples("t")
        assert last.tick_id == 20
        assert last.special_events[-1].startswith("20 samples before this one were lost")
        samples = DatastoreClient(platform.channel).samples("t")
        with pytest.raises(TrialIncompleteError, match="lost 21 samples on the way"):
            await anext(samples)


@pytest.mark.parametrize("ticks", [5, 500])
async def test_a_server_that_stops_while_its_disk_is_full_stores_how_trials_ended(
    ticks: int, autojump_clock: Clock
) -> None:
    """Of a trial that runs, and of one that has ended and waits."""
    async with stored(Full(), ticks, 0.1, observation=bytes(200)) as (platform, harness):
        await platform.controller.start_trial(params(), trial_id="t")
        await trio.sleep(20)
        await platform.stop()
        assert platform.orchestrator.lost_samples > 0
        [kept] = (await harness.trials()).trial_infos
        assert (kept.last_state, kept.ended_abnormally, kept.samples_count) == (TrialState.ENDED, False, 1)
        assert kept.end.samples_lost == platform.orchestrator.lost_samples


async def test_what_the_datastore_cannot_store_is_dropped_and_told_of(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from trio_cogment.servers.datastore import _intake

    class Picky(TrialConverter):
        def write_by_template(self, sample: Any) -> Any:
            if sample.info.tick_id == 7:
                raise InvalidArgumentError("I do not like 7")
            return super().write_by_template(sample)

        def writes_of(self, samples: Any, start: int = 0) -> Any:
            if any(sample.tick_id == 7 for sample in samples):
                raise InvalidArgumentError("I do not like 7")
            return super().writes_of(samples, start)

    monkeypatch.setattr(_intake, "TrialConverter", Picky)
    async with stored("memory:", 20) as (platform, harness):
        await platform.controller.start_trial(params(), trial_id="t")
        samples = await harness.samples("t")
        assert [sample.tick_id for sample in samples] == [tick for tick in range(21) if tick != 7]
        assert samples[7].special_events[0].startswith("1 sample before this one was lost")
        assert platform.orchestrator.lost_samples == 1
    assert "I do not like 7" in caplog.text


async def test_the_samples_of_a_trial_that_is_cancelled_are_kept(autojump_clock: Clock) -> None:
    store = GateStore()
    with trio.CancelScope() as scope:
        async with stored(store, 10_000, 0.01) as (platform, _):
            await platform.controller.start_trial(params(), trial_id="t")
            await trio.sleep(1)
            scope.cancel()
            await trio.sleep(1)
    async with Datastore(store, config=DatastoreConfig()):
        trial = await store.trial("t")
        assert trial is not None
        assert trial.end == TrialEnd.ENDED
        assert trial.samples_count > 50
