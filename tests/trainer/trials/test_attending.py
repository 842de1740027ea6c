"""Trials that workers start themselves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from google.protobuf.json_format import ParseDict

from tests.rl.runner.worlds import countdown, gated
from tests.trainer.bench import Client, serving
from tests.trainer.dispatch.programs import until
from tests.trainer.trials.test_starter import people
from tests.trainer.trials.worlds import PARAMS
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.model_registry_pb2 import ModelVersionInfo
from trio_cogment.base.errors import UnavailableError
from trio_cogment.base.outcome import EndCause
from trio_cogment.platform import Platform, open_platform
from trio_cogment.sdk import ModelRegistryClient, Participants
from trio_cogment.trainer import RunOrder, RunSink, Where
from trio_cogment.trainer.dispatch.admission import Capacity
from trio_cogment.trainer.dispatch.dispatcher import RunDispatcher, Starter
from trio_cogment.trainer.dispatch.jsonl import Origin
from trio_cogment.trainer.dispatch.workers import Listener
from trio_cogment.trainer.runs import Cause
from trio_cogment.trainer.trials.attending import AttendedWorkers

RUN = {"entry_point": "python"}


class Works(Starter):
    """A worker that is a function."""

    def __init__(self, work: Callable[[], Awaitable[None]], sinks: list[RunSink]) -> None:
        self._work = work
        self._sinks = sinks

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield

    async def run(self, order: RunOrder, gpus: Sequence[int], sink: RunSink) -> None:
        await sink.starting(order.run_id, gpus)
        self._sinks.append(sink)
        await self._work()
        await sink.ended(order.run_id, Cause.FINISHED)


def params() -> TrialParams:
    return ParseDict({**PARAMS, "datalog": {"endpoint": "cogment://discover"}}, TrialParams())


@asynccontextmanager
async def attending(
    participants: Participants,
    work: Callable[[Platform], Awaitable[None]],
    sinks: list[RunSink] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Client, Platform]]:
    async with open_platform(participants, store="memory:", **options) as platform:
        where = Where(platform.channel, platform.datastore_client(), "cogment://discover", participants.spec)
        workers = AttendedWorkers(Works(lambda: work(platform), [] if sinks is None else sinks), where)
        async with (
            RunDispatcher(Capacity(cpus=9, memory_mb=9999), workers=workers) as dispatcher,
            serving(dispatcher=dispatcher) as (client, _),
        ):
            with trio.fail_after(20):
                yield client, platform


async def test_trials_with_the_name_of_a_run_are_its_episodes() -> None:
    async def work(platform: Platform) -> None:
        controller = platform.controller
        for name in ("r-ep000007", "r-wk1-ep000003", "r2-ep000001", "other"):
            await controller.start_trial(params(), trial_id=name)
            await controller.wait_trial(name)

    async with attending(people(), work) as (client, _):
        await client.submit("r", **RUN)
        await until(client, "r", "TERM")
        async with client.stream("r", kind="Episodes") as call:
            found = {(e.episode_index, e.worker_id): json.loads(e.metadata_json)["trial_id"] async for e in call}
        assert found == {(7, ""): "r-ep000007", (3, "k1"): "r-wk1-ep000003"}
        assert await client.all_of("r") == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_trials_with_a_property_are_episodes_of_a_run() -> None:
    async def work(platform: Platform) -> None:
        for name, run_id in (("one", "r"), ("two", "r"), ("three", "s")):
            joining = params()
            joining.properties["run_id"] = run_id
            await platform.controller.start_trial(joining, trial_id=name)
            await platform.controller.wait_trial(name)

    async with attending(people(), work) as (client, _):
        await client.submit("r", **RUN)
        await until(client, "r", "TERM")
        async with client.stream("r", kind="Episodes") as call:
            assert [episode.episode_index async for episode in call] == [0, 1]


async def test_the_trials_of_a_run_end_with_it() -> None:
    async def work(platform: Platform) -> None:
        await platform.controller.start_trial(params(), trial_id="r-ep000000")
        await platform.controller.start_trial(params(), trial_id="other")
        await trio.sleep_forever()

    async with attending(people(countdown(10_000_000)), work) as (client, platform):
        await client.submit("r", **RUN)
        await until(client, "r", "EXEC")
        await client.cancel("r")
        infos: Any = await platform.controller.trial_infos()
        states = {info.trial_id: info.state == TrialState.ENDED for info in infos}
        assert states == {"r-ep000000": True, "other": False}


async def test_trials_that_do_not_end_softly_end_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_cogment.trainer.trials.attending.GRACE_SECONDS", 0.1)

    started = trio.Event()

    async def work(platform: Platform) -> None:
        await platform.controller.start_trial(params(), trial_id="r-ep000000")
        started.set()
        await trio.sleep_forever()

    async with attending(people(countdown(10_000_000), gated(trio.Event())), work) as (client, platform):
        await client.submit("r", **RUN)
        await started.wait()
        await client.cancel("r")
        with trio.fail_after(10):
            assert (await platform.controller.wait_trial("r-ep000000")).cause is EndCause.HARD_TERMINATION


async def test_a_checkpoint_of_a_run_is_a_version_in_the_registry(tmp_path: Path) -> None:
    async def work(platform: Platform) -> None:
        registry = platform.model_registry_client()
        info = await registry.publish("walker", b"weights", user_data={"run_id": "r"})
        line = {"event": "checkpoint_saved", "payload": {"model": "walker", "version": info.version_number}}
        await Listener(Origin("r"), sinks[0]).take([json.dumps(line).encode()])

    sinks: list[RunSink] = []
    async with attending(people(), work, sinks, model_registry=tmp_path) as (client, platform):
        await client.submit("r", **RUN)
        await until(client, "r", "TERM")
        (link,) = (await client.record("r")).checkpoints
        model, _, version = link.rpartition("@")
        info, data = await platform.model_registry_client().retrieve(model, int(version))
        assert (data, dict(info.user_data)) == (b"weights", {"run_id": "r"})


async def test_a_checkpoint_that_the_registry_has_not_is_not_linked(tmp_path: Path) -> None:
    async with open_platform(people(), model_registry=tmp_path) as platform, serving() as (client, trainer):
        await client.submit("r")
        await client.register("r")
        registry = platform.model_registry_client()
        await registry.publish("walker", b"weights")
        listener = Listener(Origin("r"), trainer.reports, registry)
        for model, version in (("walker", 2), ("walker", 1), ("runner", 1)):
            payload = {"model": model, "version": version}
            await listener.take([json.dumps({"event": "checkpoint_saved", "payload": payload}).encode()])
        assert list((await client.record("r")).checkpoints) == ["walker@1"]


async def test_a_checkpoint_is_linked_unseen_where_the_registry_does_not_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Slow(ModelRegistryClient):
        async def version_info(self, name: str, version: int = -1) -> ModelVersionInfo:
            if name == "gone":
                raise UnavailableError("it cannot be reached")
            await trio.sleep_forever()
            raise AssertionError

    async with serving() as (client, trainer):
        await client.submit("r")
        await client.register("r")
        listener = Listener(Origin("r"), trainer.reports, Slow(client.channel))
        for model in ("gone", "slow"):
            line = {"event": "checkpoint_saved", "payload": {"model": model, "version": 1}}
            await listener.take([json.dumps(line).encode()])
        assert list((await client.record("r")).checkpoints) == ["gone@1", "slow@1"]


async def test_what_trials_have_done_comes_before_the_end_of_the_run() -> None:
    async def work(platform: Platform) -> None:
        async with platform.controller.watch_trials([TrialState.RUNNING]) as watch:
            for number in range(3):
                await platform.controller.start_trial(params(), trial_id=f"r-ep{number}")
            seen: set[str] = set()
            while len(seen) < 3:
                seen.add((await watch.receive()).trial_id)

    async with attending(people(countdown(10_000_000)), work) as (client, _):
        await client.submit("r", **RUN)
        await until(client, "r", "TERM")
        async with client.stream("r", kind="Episodes") as call:
            assert [(e.terminated, e.truncated) async for e in call] == [(False, True)] * 3
