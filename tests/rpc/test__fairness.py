"""A busy sender or receiver lets others run after sixteen messages, and not more often; it can be cancelled at each."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from tests.helpers import wire_channel
from trio_cogment.api.common_pb2 import Action
from trio_cogment.rpc import CallOpener, InProcessChannel
from trio_cogment.testing.conformance.channel import COUNT, ECHO, CheckService

MESSAGES = 100


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[CallOpener]:
    services = [CheckService().service()]
    if kind == "process":
        async with InProcessChannel(services) as channel:
            yield channel
        return
    async with wire_channel(services) as remote:
        yield remote


class Steps(trio.abc.Instrument):
    """Counts how often a task is scheduled: between two of its steps everybody else who is ready has one, too."""

    def __init__(self) -> None:
        self.task = trio.lowlevel.current_task()
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self.task


async def stretches(operation: Callable[[], Awaitable[object]]) -> list[int]:
    """Do something many times; return how often in a row without a pass of Trio's loop in between."""
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    seen: list[int] = []
    for _ in range(MESSAGES):
        await operation()
        seen.append(steps.count)
    trio.lowlevel.remove_instrument(steps)
    return [len(list(group)) for _, group in itertools.groupby(seen)]


class Sink:
    """A consumer."""

    def __init__(self) -> None:
        self.messages = 0

    def on_message(self, _: object) -> None:
        self.messages += 1

    def on_end(self, error: Exception | None) -> None:
        assert error is None


@pytest.mark.parametrize("kind", ["process", "connection"])
async def test_who_receives_what_waits_lets_others_run_each_sixteenth_time(kind: str) -> None:
    with trio.fail_after(30):
        async with opened(kind) as channel, channel.call(COUNT) as call:
            await call.send(Action(tick_id=MESSAGES))
            await call.done_sending()
            await trio.testing.wait_all_tasks_blocked()
            assert set((await stretches(call.receive))[1:-1]) == {16}


@pytest.mark.parametrize("kind", ["process", "connection"])
async def test_who_sends_what_need_not_wait_lets_others_run_each_sixteenth_time(kind: str) -> None:
    with trio.fail_after(30):
        async with opened(kind) as channel, channel.call(ECHO) as call:
            call.set_consumer(Sink())
            await trio.testing.wait_all_tasks_blocked()
            assert set((await stretches(lambda: call.send(Action())))[1:-1]) == {16}
            await call.done_sending()
