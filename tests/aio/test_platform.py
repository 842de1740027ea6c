"""The platform in asyncio's thread: a whole trial, cancellation in both directions, and the end of the loop."""

from __future__ import annotations

import asyncio
import contextvars
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from tests.sync.players import descriptors, params, threads
from trio_cogment import aio
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.errors import CogmentError, FailedPreconditionError, RpcError
from trio_cogment.sdk import ActorSession as TrioActorSession
from trio_cogment.sdk import EnvironmentSession as TrioEnvironmentSession
from trio_cogment.sdk import Session

PATIENCE_SECONDS = 60


def run(program: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await program()

    asyncio.run(limited())


async def world(session: aio.EnvironmentSession) -> None:
    await session.start([("*", b"0")])
    async for event in session.all_events():
        if event.actions is not None:
            if event.tick_id == 2:
                await session.end([("*", b"the end")])
            else:
                await session.produce_observations([("*", b"%d" % (event.tick_id + 1))])


async def endless(session: aio.EnvironmentSession) -> None:
    await session.start([("*", b"on")])
    async for event in session.all_events():
        if event.actions is not None:
            await session.produce_observations([("*", b"on")])


async def echo(session: aio.ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(event.observation.payload)


def test_a_trial_from_start_to_stored(tmp_path: Path) -> None:
    variable = contextvars.ContextVar("variable", default="")
    seen = []

    async def actor(session: aio.ActorSession) -> None:
        seen.append(variable.get())
        assert asyncio.current_task() is not None
        await asyncio.sleep(0)
        await echo(session)

    async def program() -> None:
        variable.set("of the program")
        store = f"sqlite:{tmp_path}/trials.db"
        async with aio.open_platform(store=store, model_registry=tmp_path / "models") as platform:
            platform.participants.register_environment(world)
            platform.participants.register_actor(actor, "actor")
            states = []
            async with platform.controller.watch_trials() as entries:
                trial_id = await platform.controller.start_trial(params(log=True))
                async for entry in entries:
                    states.append(entry.state)
                    if entry.state == TrialState.ENDED:
                        break
            assert states == sorted(states)
            await platform.controller.wait_trial(trial_id)
            async with platform.datastore.samples(trial_id, follow=True) as samples:
                observations = [sample.actors["ann"].observation async for sample in samples]
            assert observations == [b"0", b"1", b"2", b"the end"]
            assert (await platform.model_registry.store("m", b"weights")).version_number == 1
            with pytest.raises(RpcError, match="NOT_FOUND"):
                await platform.model_registry.retrieve("n")
        assert platform.closed
        with pytest.raises(FailedPreconditionError, match="the platform is closed"):
            await platform.controller.trial_infos()

    before, running = descriptors(), threads()
    run(program)
    assert seen == ["of the program"]
    assert descriptors() == before
    assert threads() == running


def test_participants_for_trio_and_a_client_actor() -> None:
    async def for_trio(session: TrioEnvironmentSession) -> None:
        await session.start([("*", b"")])
        async for event in session.all_events():
            if event.actions is not None:
                await trio.lowlevel.checkpoint()
                await session.end([("*", b"")])

    async def program() -> None:
        async with aio.open_platform() as platform:
            platform.platform.participants.register_environment(for_trio)
            joined = params()
            joined.actors[0].endpoint = "cogment://client"
            trial_id = await platform.controller.start_trial(joined)
            await platform.join_trial(trial_id, echo, actor_name="ann")
            await platform.call(trio.sleep, 0)

    run(program)


def test_a_cancelled_call_has_ended_in_trio() -> None:
    steps = []

    async def long_call() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            steps.append("ended")

    async def program() -> None:
        async with aio.open_platform() as platform:
            task = asyncio.create_task(platform.call(long_call))
            await platform.call(trio.testing.wait_all_tasks_blocked)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            steps.append("cancelled")
            assert await platform.controller.trial_infos() == []

    run(program)
    assert steps == ["ended", "cancelled"]


@pytest.mark.usefixtures("quiet")
def test_the_end_of_the_platform_cancels_the_coroutines_of_participants() -> None:
    """As does `asyncio.run` when its program is cancelled, or raises."""
    ended = []

    async def actor(session: aio.ActorSession) -> None:
        try:
            await echo(session)
        finally:
            await asyncio.sleep(0.01)
            ended.append(session.trial_id)

    async def program(fail: bool) -> None:
        async with aio.open_platform() as platform:
            platform.participants.register_environment(endless)
            platform.participants.register_actor(actor, "a")
            async with platform.controller.watch_trials([TrialState.RUNNING]) as running:
                await platform.controller.start_trial(params())
                await anext(running)
            if fail:
                raise KeyError("of the program")
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            await asyncio.sleep(PATIENCE_SECONDS)

    running = threads()
    with pytest.raises(KeyError, match="of the program"):
        asyncio.run(program(True))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(program(False))
    assert len(ended) == 2
    assert threads() == running


def test_a_call_that_waits_when_the_platform_is_closed() -> None:
    async def program() -> None:
        async with aio.open_platform() as platform:
            waiting = asyncio.create_task(platform.call(trio.sleep_forever))
            await platform.controller.trial_infos()
        with pytest.raises(FailedPreconditionError, match="the platform was closed before the call returned"):
            await waiting

    run(program)


def test_exceptions_come_with_their_tracebacks() -> None:
    async def failing_deep_within() -> None:
        raise KeyError("a detail")

    async def program() -> None:
        async with aio.open_platform() as platform:
            with pytest.raises(KeyError, match="a detail") as caught:
                await platform.call(failing_deep_within)
            assert "failing_deep_within" in {frame.name for frame in traceback.extract_tb(caught.tb)}
            with pytest.raises(FailedPreconditionError, match="no datastore"):
                _ = platform.datastore
            with pytest.raises(RuntimeError, match="Attempted to call run"):
                async with aio.open_platform():
                    pass
        with pytest.raises(CogmentError, match="got the scheme 'nonsense'"):
            async with aio.open_platform(store="nonsense:"):
                pass

    run(program)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(aio.ActorSession, TrioActorSession), (aio.EnvironmentSession, TrioEnvironmentSession)],
)
def test_sessions_have_what_those_of_trio_have(ours: type, theirs: type[Session]) -> None:
    for_the_sdk = {"run", "finish"}
    assert not {name for name in dir(theirs) if not name.startswith("_")} - set(dir(ours)) - for_the_sdk
