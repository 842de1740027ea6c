"""The platform in asyncio's thread: a whole trial, cancellation in both directions, and the end of the loop."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, assert_type

import pytest
import trio
import trio.lowlevel
import trio.testing
from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import StringValue

from tests.sync.players import descriptors, params, threads
from trio_cogment import aio, sdk
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, RpcError
from trio_cogment.sdk import ActorSession as TrioActorSession
from trio_cogment.sdk import EnvironmentSession as TrioEnvironmentSession
from trio_cogment.sdk import Event, PreTrialSession, Session

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


class BrokenError(Exception):
    pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenError])
def test_the_end_of_trio_ends_the_block(error: type[BaseException]) -> None:
    """As Control-C does in a loop that does not handle it; the block is cancelled, and gets what has ended Trio."""
    steps = []

    async def fail() -> None:
        raise error("of Trio")

    async def program() -> None:
        try:
            async with aio.open_platform() as platform:
                await platform.call(spawn, platform)
                try:
                    await asyncio.sleep(PATIENCE_SECONDS)
                finally:
                    steps.append("left")
        finally:
            task = asyncio.current_task()
            assert task is not None
            steps.append(str(task.cancelling()))

    async def spawn(platform: aio.Platform) -> None:
        # In a task of the Trio program that nobody waits for.
        platform._guest._calls.start_soon(fail)

    with pytest.raises((error, BaseExceptionGroup)) as caught:
        asyncio.run(program())
    assert caught.group_contains(error) if isinstance(caught.value, BaseExceptionGroup) else True
    assert isinstance(caught.value, KeyboardInterrupt) == (error is KeyboardInterrupt)
    assert steps == ["left", "0"]


def test_control_c_in_a_loop_that_does_not_handle_it() -> None:
    program = """
import asyncio, signal
from trio_cogment import aio, sdk
from tests.aio.test_platform import echo, endless
from tests.sync.players import params
async def main():
    async with aio.open_platform() as platform:
        platform.participants.register_environment(endless)
        platform.participants.register_actor(echo, "echo")
        trial = await platform.controller.start_trial(params())
        asyncio.get_running_loop().call_later(0.2, signal.raise_signal, signal.SIGINT)
        await platform.controller.wait_trial(trial)
loop = asyncio.new_event_loop()
try:
    loop.run_until_complete(main())
except KeyboardInterrupt:
    print("interrupted")
loop.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_hooks_and_data_logs() -> None:
    logged: list[int] = []

    async def hook(session: PreTrialSession) -> None:
        await asyncio.sleep(0)
        session.params.properties["hooked"] = "yes"

    async def log(session: aio.DatalogSession) -> None:
        async for sample in session:
            await asyncio.sleep(0)
            logged.append(sample.tick_id)
        assert (session.params.properties["hooked"], session.user_id) == ("yes", "trio-cogment")

    async def program() -> None:
        config = PlatformConfig(default_params=params(log=True), pre_trial_hooks=("cogment://discover",))
        async with aio.open_platform(config=config) as platform:
            platform.participants.register_environment(world)
            platform.participants.register_actor(echo, "echo")
            platform.participants.register_pre_trial_hook(hook)
            platform.participants.register_datalog(log)
            trial_id = await platform.controller.start_trial()
            await platform.controller.wait_trial(trial_id)
            assert [actor.name for actor in await platform.controller.actors(trial_id)] == ["ann"]

    run(program)
    assert logged[:3] == [0, 1, 2]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(aio.ActorSession, TrioActorSession), (aio.EnvironmentSession, TrioEnvironmentSession)],
)
def test_sessions_have_what_those_of_trio_have(ours: type, theirs: type[Session]) -> None:
    for_the_sdk = {"run", "finish", "taken_by"}
    # What handles events in the task that brings them is for Trio's thread and its functions.
    in_trio = {name for name in dir(theirs) if name.startswith("handle") or name.endswith("_nowait")}
    assert not {name for name in dir(theirs) if not name.startswith("_")} - set(dir(ours)) - for_the_sdk - in_trio


@pytest.mark.parametrize(
    ("ours", "theirs", "left_out"),
    [
        # For Trio's thread and its functions.
        (aio.Controller, sdk.Controller, {"start_trial_nowait"}),
        # What copies trials from one store to another is written for Trio.
        (aio.DatastoreClient, sdk.DatastoreClient, {"page_of_trials", "add_trial", "adding", "open_adder"}),
        # Gives an object of Trio.
        (aio.ModelRegistryClient, sdk.ModelRegistryClient, {"track_latest"}),
        (aio.DatalogSession, sdk.DatalogSession, set()),
    ],
)
def test_clients_have_what_those_of_trio_have(ours: type, theirs: type, left_out: set[str]) -> None:
    assert {name for name in dir(theirs) if not name.startswith("_")} - set(dir(ours)) == left_out


async def typed(session: aio.ActorSession[Duration, StringValue, None], env: aio.EnvironmentSession[Duration]) -> None:
    """Checked by mypy, which refuses an `ignore` that is not needed."""
    assert_type(session.all_events(), AsyncIterator[Event[Duration, None]])
    assert_type(session.config, None)
    await session.do_action(StringValue())
    await session.do_action(Duration())  # type: ignore[arg-type]  # what is tested
    await env.start([("*", Duration())])
    await env.produce_observations([("*", StringValue())])  # type: ignore[list-item]  # what is tested


def test_ticks_at_a_rate() -> None:
    """An action for an earlier observation is late, and counted; the trial goes on by the clock."""

    acted = asyncio.Event()

    async def until_acted(session: aio.EnvironmentSession) -> None:
        await session.start([("*", b"")])
        async for event in session.all_events():
            if event.actions is not None:
                await (session.end if acted.is_set() else session.produce_observations)([("*", b"")])

    async def late(session: aio.ActorSession) -> None:
        assert (session.tick_hz, session.observe_every) == (50, 1)
        async for event in session.all_events():
            if event.observation is not None and event.tick_id == 1:
                await session.do_action(b"", tick_id=0)
                acted.set()

    async def program() -> None:
        given = sdk.trial_params([sdk.actor_params("ann", "c", implementation="late", default_action=b"")], tick_hz=50)
        async with aio.open_platform() as platform:
            platform.participants.register_environment(until_acted)
            platform.participants.register_actor(late, "late")
            trial_id = await platform.controller.start_trial(given)
            await platform.controller.wait_trial(trial_id)
            [info] = await platform.controller.trial_infos([trial_id])
        assert info.tick_rate.late_actions == 1
        assert info.tick_rate.absent_actions == info.tick_id

    run(program)
