"""The dispatcher: admission, the queue, and a boundary around each run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.trainer.bench import Client, fails, serving
from tests.trainer.configs import a_config
from tests.trainer.dispatch.programs import until
from trio_cogment.base.errors import CogmentError, StatusCode, UnavailableError
from trio_cogment.trainer import RunOrder, RunSink
from trio_cogment.trainer.config_check import parse_config
from trio_cogment.trainer.dispatch.admission import Capacity
from trio_cogment.trainer.dispatch.dispatcher import RunDispatcher, Starter
from trio_cogment.trainer.runs import Cause


class Fake(Starter):
    """Runs runs until they are told to end."""

    def __init__(self) -> None:
        self.gpus: dict[str, Sequence[int]] = {}
        self.ends: dict[str, trio.Event] = {}
        self.buried: list[str] = []
        self.error: Exception | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield

    async def run(self, order: RunOrder, gpus: Sequence[int], sink: RunSink) -> None:
        self.gpus[order.run_id] = gpus
        end = self.ends[order.run_id] = trio.Event()
        try:
            await sink.starting(order.run_id, gpus)
            if self.error is not None and order.run_id == "b":
                raise self.error
            await end.wait()
            await sink.ended(order.run_id, Cause.FINISHED)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            self.buried.append(order.run_id)


@asynccontextmanager
async def dispatching(**capacity: Any) -> AsyncIterator[tuple[Client, Fake, RunDispatcher]]:
    fake = Fake()
    async with (
        RunDispatcher(Capacity(**{"cpus": 1, "memory_mb": 1000, **capacity}), workers=fake) as dispatcher,
        serving(dispatcher=dispatcher) as (client, _),
    ):
        yield client, fake, dispatcher


QUEUES = {"entry_point": "python", "schedule": {"when_full": "queue"}}


async def test_a_run_waits_for_its_turn_and_is_started_when_another_one_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with dispatching() as (client, fake, dispatcher):
        for run_id in "abc":
            await client.submit(run_id, **QUEUES)
        await until(client, "a", "HSHK")
        assert ([await client.status(run_id) for run_id in "bc"], dispatcher.waiting) == (["INIT"] * 2, ["b", "c"])
        await client.cancel("b")
        assert dispatcher.waiting == ["c"]
        fake.ends["a"].set()
        await until(client, "c", "HSHK")
        assert list(fake.gpus) == ["a", "c"]


async def test_a_run_that_does_not_wait_is_refused_and_is_there_as_a_failed_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with dispatching() as (client, _, _):
        await client.submit("a", entry_point="python")
        async with fails(StatusCode.RESOURCE_EXHAUSTED, "0 cpus are free, 1 are asked for"):
            await client.submit("b", entry_point="python")
        assert await client.status("b") == "TERM"
        await client.cancel("a")
        await client.submit("c", entry_point="python")
        assert await until(client, "c", "HSHK")


async def test_gpus_are_given_told_and_taken_back(autojump_clock: trio.testing.MockClock) -> None:
    async with dispatching(cpus=9, gpus=(4, 7)) as (client, _, _):
        resources = {"cpus": 1, "memory_mb": 256, "gpus": {"requested": 2, "mandatory": True}}
        await client.submit("a", entry_point="python", resources=resources)
        await until(client, "a", "HSHK")
        record = await client.record("a")
        assert (record.gpu_slot, list(record.gpu_slots)) == (4, [4, 7])
        async with fails(StatusCode.RESOURCE_EXHAUSTED, "0 gpus are free, 2 are asked for"):
            await client.submit("b", entry_point="python", resources=resources)
        await client.cancel("a")
        await client.submit("c", entry_point="python", resources=resources)


async def test_cancel_returns_when_nothing_is_left(autojump_clock: trio.testing.MockClock) -> None:
    async with dispatching() as (client, fake, _):
        await client.submit("a", entry_point="python")
        await until(client, "a", "HSHK")
        await client.cancel("a")
        assert fake.buried == ["a"]


@pytest.mark.parametrize(
    "error", [UnavailableError("no way"), ZeroDivisionError("a bug"), ExceptionGroup("", [OSError()])]
)
async def test_what_goes_wrong_in_a_run_ends_it_alone(autojump_clock: trio.testing.MockClock, error: Exception) -> None:
    async with dispatching(cpus=2) as (client, fake, _):
        await client.submit("a", entry_point="python")
        await until(client, "a", "HSHK")
        fake.error = error
        await client.submit("b", entry_point="python", run_name="b")
        await until(client, "b", "TERM")
        text = "no way" if isinstance(error, CogmentError) else "internal error"
        assert (await client.record("b")).failure_reason.startswith(f"dispatch_error: {text}")
        assert await client.status("a") == "HSHK"


async def test_a_run_that_was_there_before_waits_whatever_its_configuration_says(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with dispatching() as (client, _, dispatcher), serving() as (_, trainer):
        await client.submit("a", entry_point="python")
        config = parse_config(a_config())
        await dispatcher.start(RunOrder("old", config, again=True), trainer.reports)
        assert dispatcher.waiting == ["old"]
        await dispatcher.stop("old")
        await dispatcher.stop("never heard of")


async def test_runs_of_trials_need_somebody_who_starts_them() -> None:
    trials = {"count": 1, "params": {}}
    async with dispatching() as (client, _, _):
        async with fails(StatusCode.FAILED_PRECONDITION, "this trainer starts no trials"):
            await client.submit("a", entry_point="builtin:trials", trials=trials)
        assert await client.status("a") == "TERM"


async def test_nothing_is_started_behind_the_end(autojump_clock: trio.testing.MockClock) -> None:
    async with dispatching() as (client, fake, dispatcher):
        await client.submit("a", **QUEUES)
        await client.submit("b", **QUEUES)
        await until(client, "a", "HSHK")
        await dispatcher.close()
        assert (fake.buried, list(fake.gpus)) == (["a"], ["a"])
        async with fails(StatusCode.UNAVAILABLE, "the dispatcher is closed"):
            await client.submit("c", **QUEUES)
