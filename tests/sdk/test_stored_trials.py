"""The promise of `wait_trial`: a trial that has ended can be read at once, whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.cli.process import PATIENCE_SECONDS, listening
from trio_cogment import (
    ActorSession,
    Controller,
    DatastoreClient,
    EnvironmentSession,
    OrchestratorConfig,
    Participants,
    PlatformConfig,
    TrialFailedError,
    actor_params,
    open_platform,
    trial_params,
)
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput, SampleInfo
from trio_cogment.base.errors import TrialIncompleteError
from trio_cogment.base.outcome import EndCause, TrialOutcome
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.rpc import Channel, methods_of
from trio_cogment.servers.orchestrator import SampleStream

STEPS = 20
AT_ONCE = 10


async def player(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"a%d" % event.tick_id)


async def world(session: EnvironmentSession) -> None:
    await session.start([("*", b"o")])
    async for event in session.all_events():
        if event.actions is not None:
            await session.produce_observations([("*", b"o")])


def registered() -> Participants:
    participants = Participants()
    participants.register_environment(world)
    participants.register_actor(player, "player")
    return participants


async def read_back(controller: Controller, store: DatastoreClient, trials: int) -> None:
    """Play trials, and read each as soon as it is over."""
    params = trial_params(
        [actor_params("ann", "player"), actor_params("bob", "player")],
        datalog_endpoint="cogment://discover",
        max_steps=STEPS,
    )
    limit = trio.CapacityLimiter(AT_ONCE)
    whole = 0

    async def play() -> None:
        nonlocal whole
        async with limit:
            outcome = await controller.wait_trial(await controller.start_trial(params))
            assert (outcome.cause, outcome.stored) == (EndCause.STEP_LIMIT, True)
            samples = [sample async for sample in store.samples(outcome.trial_id)]
            assert [sample.tick_id for sample in samples] == list(range(outcome.ticks))
            assert outcome.ticks == STEPS + 2
            assert samples[-1].state == TrialState.ENDED
            whole += 1

    async with trio.open_nursery() as nursery:
        for _ in range(trials):
            nursery.start_soon(play)
    assert whole == trials


@pytest.mark.parametrize("trials", [10, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
@pytest.mark.parametrize("storage", ["memory", "sqlite"])
@pytest.mark.parametrize("transport", ["in process", "over sockets"])
async def test_it_is_read_back_whole(trials: int, storage: str, transport: str, tmp_path: Path) -> None:
    address = "memory:" if storage == "memory" else f"sqlite:{tmp_path / 'trials.db'}"
    async with open_platform(registered(), store=address) as platform:
        if transport == "in process":
            await read_back(platform.controller, DatastoreClient(platform.channel), trials)
            return
        async with (
            listening(*platform.services) as endpoint,
            Channel("127.0.0.1", int(endpoint.rpartition(":")[2])) as channel,
        ):
            await read_back(Controller(channel), DatastoreClient(channel), trials)


async def test_with_a_datastore_elsewhere(tmp_path: Path) -> None:
    params = trial_params([actor_params("ann", "player")], datalog_endpoint="grpc://127.0.0.1:1", max_steps=STEPS)
    async with (
        open_platform(store=f"sqlite:{tmp_path / 'trials.db'}") as keeping,
        listening(*keeping.services) as endpoint,
        open_platform(registered()) as platform,
    ):
        params.datalog.endpoint = endpoint
        store = DatastoreClient(keeping.channel)
        for _ in range(10):
            with trio.fail_after(PATIENCE_SECONDS):
                outcome = await platform.controller.wait_trial(await platform.controller.start_trial(params))
            assert outcome.stored
            assert len([sample async for sample in store.samples(outcome.trial_id)]) == outcome.ticks


async def test_a_trial_that_is_not_complete_is_told_of(autojump_clock: trio.testing.MockClock) -> None:
    going_on = trio.Event()

    async def thinks(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                if event.tick_id == STEPS:
                    await going_on.wait()
                await session.do_action(b"a")

    participants = registered()
    participants.register_actor(thinks, "thinker")
    params = trial_params(
        [actor_params("ann", "c", implementation="thinker")],
        datalog_endpoint="cogment://discover",
        max_steps=STEPS,
    )
    async with open_platform(participants, store="memory:") as platform:
        store = DatastoreClient(platform.channel)
        trial_id = await platform.controller.start_trial(params)
        await trio.sleep(1)  # until samples have been stored: a virtual second
        with pytest.raises(TrialIncompleteError, match=f"trial '{trial_id}' has not ended, .* partial=True"):
            [sample async for sample in store.samples(trial_id)]
        with pytest.raises(TrialIncompleteError):
            async with store.samples(trial_id):
                pass
        part: list[Any] = [sample.tick_id async for sample in store.samples(trial_id, partial=True)]
        assert part == list(range(len(part)))
        assert 0 < len(part) <= STEPS
        going_on.set()
        await platform.controller.wait_trial(trial_id)
        assert len([sample async for sample in store.samples(trial_id)]) == STEPS + 2


@pytest.mark.parametrize("storage", ["memory:", "sqlite"])
async def test_how_it_ended_is_stored(storage: str, tmp_path: Path) -> None:
    address = storage if storage == "memory:" else f"sqlite:{tmp_path / 'trials.db'}"

    async def fails(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.tick_id == 3:
                raise ValueError("no idea")
            await session.do_action(b"a")

    participants = registered()
    participants.register_actor(fails, "failing")
    params = trial_params(
        [actor_params("ann", "c", implementation="player"), actor_params("bob", "c", implementation="failing")],
        datalog_endpoint="cogment://discover",
        max_steps=STEPS,
    )
    async with open_platform(participants, store=address) as platform:
        store = DatastoreClient(platform.channel)
        trial_id = await platform.controller.start_trial(params)
        outcome = await platform.controller.wait_trial(trial_id, check=False)
        trial = await store.trial(trial_id)
        assert trial is not None
        assert trial.outcome is not None
        assert (trial.outcome.cause, trial.outcome.participant) == (EndCause.PARTICIPANT_FAILED, "bob")
        assert (trial.outcome.reason, trial.outcome.ticks) == (outcome.reason, outcome.ticks)
        # Lines of the user's code stay in the process.
        assert outcome.traceback
        assert not trial.outcome.traceback
        assert [sample async for sample in store.samples(trial_id)][-1].message.end == trial.outcome.message()


def incomplete(trial_id: str) -> list[RunTrialDatalogInput]:
    """What a data log is sent of a trial of four ticks, two of which were lost."""
    end = TrialOutcome(trial_id, EndCause.STEP_LIMIT, ticks=4).message()
    infos = [SampleInfo(tick_id=0, state=TrialState.RUNNING), SampleInfo(tick_id=3, state=TrialState.ENDED, end=end)]
    samples = [RunTrialDatalogInput(sample=DatalogSample(info=info)) for info in infos]
    params = trial_params([actor_params("ann", "player")])
    return [RunTrialDatalogInput(trial_params=params), *samples]


async def test_a_trial_that_lost_samples_is_told_of(autojump_clock: trio.testing.MockClock) -> None:
    method = methods_of(SERVICES[ServiceKind.DATALOG].descriptor())["RunTrialDatalog"]
    async with open_platform(store="memory:") as platform:
        for trial_id, sent in (("lossy", incomplete("lossy")), ("abandoned", incomplete("abandoned")[:2])):
            metadata = [("trial-id", trial_id), ("user-id", "u")]
            async with platform.channel.call(method, metadata=metadata) as call:
                for message in sent:
                    await call.send(message)
                    await call.receive()
        store = DatastoreClient(platform.channel)
        await trio.sleep(30)
        for trial_id, text, stored in (
            ("lossy", "lost samples on the way: 2 samples are stored of 4 ticks", [0, 3]),
            ("abandoned", "ended abnormally, its orchestrator went away: 1 sample is stored", [0]),
        ):
            with pytest.raises(TrialIncompleteError, match=f"trial '{trial_id}' {text}, .* partial=True"):
                [sample async for sample in store.samples(trial_id)]
            part = [sample.tick_id async for sample in store.samples(trial_id, partial=True)]
            assert part == stored
            assert len([sample async for sample in store.samples(trial_id, follow=True)]) == len(stored)


class StopsTaking(SampleStream):
    """Takes some samples, and then no more of them."""

    unconfirmed = 0

    def __init__(self, after: int) -> None:
        self._after = after
        self.ticks: list[int] = []

    async def write(self, sample: DatalogSample) -> None:
        if len(self.ticks) == self._after:
            await trio.sleep_forever()
        self.ticks.append(sample.info.tick_id)

    async def complete(self) -> None:
        await trio.lowlevel.checkpoint()


class StoppingSink:
    """A sink of one trial that stops taking samples."""

    def __init__(self, after: int) -> None:
        self.stream = StopsTaking(after)

    @asynccontextmanager
    async def open(self, trial_id: str, user_id: str, params: TrialParams) -> AsyncIterator[SampleStream]:
        yield self.stream


async def test_samples_that_were_not_stored_are_told_of(autojump_clock: trio.testing.MockClock) -> None:
    sink = StoppingSink(after=5)
    params = trial_params([actor_params("ann", "player")], datalog_endpoint="cogment://discover", max_steps=STEPS)
    config = PlatformConfig(orchestrator=OrchestratorConfig(datalog_flush_seconds=3))
    async with open_platform(registered(), store=sink, config=config) as platform:
        trial_id = await platform.controller.start_trial(params)
        began = trio.current_time()
        with pytest.raises(TrialFailedError, match="17 samples did not reach the data log") as caught:
            await platform.controller.wait_trial(trial_id)
        assert trio.current_time() - began == pytest.approx(3, abs=0.5)
        outcome = await platform.controller.wait_trial(trial_id, check=False)
    assert outcome == caught.value.outcome
    assert (outcome.failed, outcome.stored, outcome.samples_pending) == (False, False, False)
    assert len(sink.stream.ticks) + outcome.samples_lost == outcome.ticks == STEPS + 2


async def test_samples_under_way_when_the_orchestrator_stops_are_told_of(
    autojump_clock: trio.testing.MockClock,
) -> None:
    params = trial_params([actor_params("ann", "player")], datalog_endpoint="cogment://discover", max_steps=STEPS)
    caught: list[TrialFailedError] = []
    async with (
        open_platform(registered(), store=StoppingSink(after=5)) as platform,
        trio.open_nursery() as nursery,
    ):
        trial_id = await platform.controller.start_trial(params)
        await platform.controller.wait_trial_state(trial_id)

        async def wait() -> None:
            with pytest.raises(TrialFailedError, match="the data log has not taken all samples") as error:
                await platform.controller.wait_trial(trial_id)
            caught.append(error.value)

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await platform.orchestrator.stop()
    assert (caught[0].outcome.cause, caught[0].outcome.samples_pending) == (EndCause.STEP_LIMIT, True)
