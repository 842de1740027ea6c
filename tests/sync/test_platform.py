"""The platform without `async`: a whole trial, errors, threads, and what is left when it is closed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import assert_type

import pytest
import trio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import StringValue

from tests.sync.players import counter, descriptors, echo, endless, params, threads
from trio_cogment import sdk, sync
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError, RpcError
from trio_cogment.platform import open_platform
from trio_cogment.sdk import ActorSession as AsyncActorSession
from trio_cogment.sdk import EnvironmentSession as AsyncEnvironmentSession
from trio_cogment.sdk import Event, Participants, PreTrialSession, Session

PATIENCE_SECONDS = 60


@pytest.mark.parametrize("store", ["memory:", "sqlite:{folder}/trials.db"])
def test_a_trial_from_start_to_stored(tmp_path: Path, store: str) -> None:
    seen: list[bytes] = []
    logged: list[int] = []

    async def asynchronous(session: AsyncActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                seen.append(event.observation.payload)
                await session.do_action(b"")

    def hook(session: PreTrialSession) -> None:
        assert threading.current_thread() is not threading.main_thread()
        session.params.properties["hooked"] = "yes"

    def log(session: sync.DatalogSession) -> None:
        logged.extend(sample.tick_id for sample in session)

    before, running = descriptors(), threads()
    default = params(actor="echo", log=True)
    config = PlatformConfig(default_params=default, pre_trial_hooks=("cogment://discover",))
    where = store.format(folder=tmp_path)
    with sync.open_platform(store=where, config=config) as platform:
        platform.participants.register_environment(counter)
        platform.participants.register_actor(echo, "echo")
        platform.participants.register_actor(asynchronous, "asynchronous")
        platform.participants.register_pre_trial_hook(hook)
        with platform.controller.watch_trials() as entries:
            trial_id = platform.controller.start_trial(trial_id="one")
            states = []
            for entry in entries:
                states.append(entry.state)
                if entry.state == TrialState.ENDED:
                    break
        assert states == sorted(states)
        platform.controller.wait_trial(trial_id)
        with platform.datastore.samples(trial_id, follow=True) as samples:
            observations = [sample.actors["ann"].observation for sample in samples]
        assert observations == [b"0", b"1", b"2", b"the end"]
        stored = platform.datastore.trial(trial_id)
        assert stored is not None
        assert stored.params.properties["hooked"] == "yes"
        assert [trial.trial_id for trial in platform.datastore.all_trials()] == ["one"]

        platform.participants.register_datalog(log)
        platform.controller.wait_trial(platform.controller.start_trial(params(actor="asynchronous", log=True)))
        assert seen == [b"0", b"1", b"2", b"the end"]
        assert logged[:3] == [0, 1, 2]
    assert platform.closed
    assert threads() == running
    assert descriptors() == before


def test_models(tmp_path: Path) -> None:
    with sync.open_platform(model_registry=tmp_path) as platform:
        registry = platform.model_registry
        assert registry.store("m", b"weights", user_data={"a": "b"}).version_number == 1
        registry.publish("m", [b"more ", b"weights"], size=12)
        assert registry.retrieve("m")[1] == b"more weights"
        assert b"".join(registry.stream("m", 1)) == b"weights"
        assert [info.version_number for info in registry.list_versions("m")] == [1, 2]
        with registry.version_updates("m") as versions:
            assert next(versions).version_number == 2
            registry.store("m", b"more")
            assert next(versions).version_number == 3
        with pytest.raises(RpcError, match="NOT_FOUND"):
            registry.model_info("n")
        with pytest.raises(RpcError, match="NOT_FOUND"):
            next(registry.list_versions("n"))
        with pytest.raises(FailedPreconditionError, match=r"no datastore: open_platform\(store=...\)"):
            _ = platform.datastore


def test_a_client_actor() -> None:
    def guest(session: sync.ActorSession) -> None:
        assert (session.name, session.actor_class, session.environment_name) == ("ann", "c", "env")
        echo(session)
        assert (session.is_over, session.details, session.tick_id) == (True, None, 3)

    with sync.open_platform() as platform:
        platform.participants.register_environment(counter)
        joined = params()
        joined.actors[0].endpoint = "cogment://client"
        trial_id = platform.controller.start_trial(joined)
        platform.join_trial(trial_id, guest, actor_name="ann")
        with pytest.raises(FailedPreconditionError, match="no model registry"):
            _ = platform.model_registry


def test_each_session_has_a_thread() -> None:
    """However many there are, or trials whose participants wait for one another would never end."""
    names = [f"actor_{number}" for number in range(1100)]
    with sync.open_platform() as platform:
        platform.participants.register_environment(counter)
        platform.participants.register_actor(echo, "echo")
        platform.controller.wait_trial(platform.controller.start_trial(params(names=names)))


def test_exceptions_come_with_their_tracebacks() -> None:
    async def failing_deep_within() -> None:
        raise KeyError("a detail")

    with sync.open_platform() as platform:
        with pytest.raises(KeyError, match="a detail") as caught:
            platform.call(failing_deep_within)
        assert any(frame.name == "failing_deep_within" for frame in traceback.extract_tb(caught.value.__traceback__))
        assert platform.call(trio.sleep, 0) is None
    with pytest.raises(CogmentError, match="got the scheme 'nonsense'"):
        sync.open_platform(store="nonsense:")


def test_after_the_end_every_call_says_so() -> None:
    with sync.open_platform(store="memory:") as platform:
        watch = platform.controller.watch_trials()
        samples = platform.datastore.samples("x")
    platform.close()
    for call in (
        platform.controller.trial_infos,
        lambda: platform.participants.register_environment(counter),
        watch.__enter__,
        lambda: next(samples),
        lambda: platform.call(trio.sleep, 0),
    ):
        with pytest.raises(FailedPreconditionError, match="the platform is closed"):
            call()


def test_closing_ends_the_calls_of_other_threads_and_the_trials() -> None:
    details = []

    def actor(session: sync.ActorSession) -> None:
        try:
            echo(session)
        finally:
            details.append(session.is_over)

    running = threads()
    with ThreadPoolExecutor(1) as pool:
        platform = sync.open_platform()
        platform.participants.register_environment(endless)
        platform.participants.register_actor(actor, "echo")
        trial_id = platform.controller.start_trial(params())
        waiting = pool.submit(platform.controller.wait_trial, trial_id)
        with platform.controller.watch_trials([TrialState.RUNNING]) as entries:
            assert next(entries).trial_id == trial_id
        platform.close()
        with pytest.raises(FailedPreconditionError, match="the platform was closed before the call returned"):
            waiting.result(PATIENCE_SECONDS)
    assert len(details) == 1
    assert threads() == running


def test_closing_again_waits_as_well() -> None:
    """While a participant computes, no call of `close` returns."""
    computing, go_on = threading.Event(), threading.Event()

    def busy(session: sync.EnvironmentSession) -> None:
        session.start([("*", b"")])
        computing.set()
        go_on.wait(PATIENCE_SECONDS)

    platform = sync.open_platform()
    platform.participants.register_environment(busy)
    platform.participants.register_actor(echo, "echo")
    platform.controller.start_trial(params())
    assert computing.wait(PATIENCE_SECONDS)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(platform.close) for _ in range(2)]
        with pytest.raises(TimeoutError):
            both[0].result(0.1)
        assert platform.closed
        assert not both[1].done()
        go_on.set()
        for one in both:
            one.result(PATIENCE_SECONDS)
    platform.close()


def test_a_call_in_the_platforms_own_thread_is_refused() -> None:
    refused: list[str] = []

    async def actor(session: AsyncActorSession) -> None:
        for call in (platform.controller.trial_infos, platform.close):
            try:
                call()
            except FailedPreconditionError as error:
                refused.append(str(error))
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"")

    with sync.open_platform() as platform:
        platform.participants.register_environment(counter)
        platform.participants.register_actor(actor, "a")
        platform.controller.wait_trial(platform.controller.start_trial(params()))
    assert (
        refused
        == ["a blocking call in the platform's own thread would wait for itself; await the asynchronous function"] * 2
    )


def test_a_call_that_exits_ends_the_script_and_not_the_platform() -> None:
    async def leave() -> None:
        sys.exit(3)

    with sync.open_platform() as platform:
        with pytest.raises(SystemExit) as caught:
            platform.call(leave)
        assert caught.value.code == 3
        assert platform.call(trio.sleep, 0) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_platform_that_was_inherited_is_refused() -> None:
    """Its thread is not in the new process: a call would wait forever."""
    program = """
import os, sys
from trio_cogment import sync
platform = sync.open_platform()
if os.fork() == 0:
    for use in (platform.controller.trial_infos, platform.close):
        try:
            use()
        except Exception as error:
            print(error, flush=True)
    sys.exit()
os.wait()
print(list(platform.controller.trial_infos()))
platform.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    refused = "the platform was made before this process was forked: make it in the process that uses it"
    assert (done.returncode, done.stdout.splitlines()) == (0, [refused, refused, "[]"]), done.stderr


def test_an_iteration_that_is_closed_or_whose_platform_is_gives_nothing_more(tmp_path: Path) -> None:
    with sync.open_platform(model_registry=tmp_path) as platform:
        platform.model_registry.store("m", b"weights")
        pieces = platform.model_registry.stream("m", 1)
        assert next(pieces) == b"weights"
        pieces.close()
        assert list(pieces) == []
        watch = platform.controller.watch_trials()
        with watch:
            platform.close()
            with pytest.raises(FailedPreconditionError, match="the platform is closed"):
                next(watch)


def test_iterations_can_be_left_and_closed() -> None:
    with sync.open_platform() as platform:
        entries = platform.controller.watch_trials()
        entries.close()
        assert list(entries) == []
        with platform.controller.watch_trials() as watch:
            platform.participants.register_environment(counter)
            platform.participants.register_actor(echo, "echo")
            trial_id = platform.controller.start_trial(params())
            assert next(watch).trial_id == trial_id
        assert list(watch) == []


def test_two_at_once_and_one_is_closed() -> None:
    with sync.open_platform(store="memory:") as other:
        with sync.open_platform(store="memory:") as platform:
            for each in (platform, other):
                each.participants.register_environment(endless)
                each.participants.register_actor(echo, "echo")
                each.controller.start_trial(params(log=True), trial_id="one")
        with pytest.raises(FailedPreconditionError, match="the platform is closed"):
            platform.controller.trial_infos()
        (info,) = other.controller.trial_infos(["one"])
        with other.datastore.samples("one", follow=True) as samples:
            assert any(sample.tick_id > info.tick_id + 3 for sample in samples)


def test_what_is_no_function_is_refused() -> None:
    with (
        sync.open_platform() as platform,
        pytest.raises(InvalidArgumentError, match="expected a function, got str"),
    ):
        platform.participants.register_actor("no function", "b")  # type: ignore[arg-type]  # what is tested


async def test_ordinary_functions_in_a_trio_program() -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with open_platform() as platform:
            platform.participants.register_environment(sync.environment(counter))
            platform.participants.register_actor(sync.actor(echo), "echo")
            await platform.controller.wait_trial(await platform.controller.start_trial(params()))


async def test_a_cancelled_trial_reaches_the_worker_thread() -> None:
    left = trio.Event()
    participants = Participants()

    def actor(session: sync.ActorSession) -> None:
        try:
            echo(session)
        except trio.Cancelled:
            trio.from_thread.run_sync(left.set)
            raise

    participants.register_environment(sync.environment(endless))
    participants.register_actor(sync.actor(actor), "a")
    with trio.fail_after(PATIENCE_SECONDS):
        with trio.CancelScope() as scope:
            async with open_platform(participants) as platform:
                await platform.controller.start_trial(params())
                async with platform.controller.watch_trials([TrialState.RUNNING]) as watch:
                    await watch.receive()
                scope.cancel()
                await trio.sleep_forever()
        assert left.is_set()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(sync.ActorSession, AsyncActorSession), (sync.EnvironmentSession, AsyncEnvironmentSession)],
)
def test_sessions_have_what_the_asynchronous_ones_have(ours: type, theirs: type[Session]) -> None:
    for_the_sdk = {"run", "finish", "taken_by"}
    # What handles events in the task that brings them is for Trio's thread and its functions.
    in_trio = {name for name in dir(theirs) if name.startswith("handle") or name.endswith("_nowait")}
    assert not {name for name in dir(theirs) if not name.startswith("_")} - set(dir(ours)) - for_the_sdk - in_trio


@pytest.mark.parametrize(
    ("ours", "theirs", "left_out"),
    [
        # For Trio's thread and its functions.
        (sync.Controller, sdk.Controller, {"start_trial_nowait"}),
        # What copies trials from one store to another is written for Trio.
        (sync.DatastoreClient, sdk.DatastoreClient, {"page_of_trials", "add_trial", "adding", "open_adder"}),
        # Gives an object of Trio.
        (sync.ModelRegistryClient, sdk.ModelRegistryClient, {"track_latest"}),
        (sync.DatalogSession, sdk.DatalogSession, set()),
    ],
)
def test_clients_have_what_the_asynchronous_ones_have(ours: type, theirs: type, left_out: set[str]) -> None:
    assert {name for name in dir(theirs) if not name.startswith("_")} - set(dir(ours)) == left_out


def typed(session: sync.ActorSession[Duration, StringValue, None], env: sync.EnvironmentSession[Duration]) -> None:
    """Checked by mypy, which refuses an `ignore` that is not needed."""
    assert_type(session.all_events(), Iterator[Event[Duration, None]])
    assert_type(session.config, None)
    session.do_action(StringValue())
    session.do_action(Duration())  # type: ignore[arg-type]  # what is tested
    env.start([("*", Duration())])
    env.produce_observations([("*", StringValue())])  # type: ignore[list-item]  # what is tested


def test_a_script_that_closes_nothing_ends(tmp_path: Path) -> None:
    """Also with a trial that runs, whose participants wait in worker threads."""
    program = f"""
import threading
import trio_cogment.sync
from tests.sync.players import echo, endless, params
platform = trio_cogment.sync.open_platform(store="sqlite:{tmp_path}/trials.db")
platform.participants.register_environment(endless)
platform.participants.register_actor(echo, "echo")
platform.controller.start_trial(params(log=True))
print("started")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_control_c_interrupts_the_call_and_not_the_platform() -> None:
    program = """
import os, signal, threading
import trio_cogment.sync
from tests.sync.players import echo, endless, params
go_on = threading.Event()
def busy(session):
    session.start([("*", b"")])
    busy.begun.set()
    go_on.wait()
    print("computed")
busy.begun = threading.Event()
with trio_cogment.sync.open_platform() as platform:
    platform.participants.register_environment(endless)
    platform.participants.register_actor(echo, "echo")
    trial = platform.controller.start_trial(params())
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        platform.controller.wait_trial(trial)
    except KeyboardInterrupt:
        print("interrupted")
    (info,) = platform.controller.trial_infos([trial])
    print(info.tick_id >= 0)
    platform.controller.terminate_trial(trial)
    platform.controller.wait_trial(trial)
    print("ended")
    platform.participants.register_environment(busy, "busy")
    platform.controller.start_trial(params("busy"))
    busy.begun.wait()
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        platform.close()
    except KeyboardInterrupt:
        print("not", "closed")
    threading.Timer(0.1, go_on.set).start()
print("closed")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    wanted = ["interrupted", "True", "ended", "not", "closed", "computed", "closed"]
    assert (done.returncode, done.stdout.split()) == (0, wanted), done.stderr


def test_ticks_at_a_rate() -> None:
    """An action for an earlier observation is late, and counted; the trial goes on by the clock."""
    told: list[tuple[float, int]] = []
    acted = threading.Event()

    def late(session: sync.ActorSession) -> None:
        told.append((session.tick_hz, session.observe_every))
        for event in session.all_events():
            if event.observation is not None and event.tick_id == 1:
                session.do_action(b"", tick_id=0)
                acted.set()

    def until_acted(session: sync.EnvironmentSession) -> None:
        session.start([("*", b"")])
        for event in session.all_events():
            if event.actions is not None:
                (session.end if acted.is_set() else session.produce_observations)([("*", b"")])

    given = sdk.trial_params([sdk.actor_params("ann", "c", implementation="late", default_action=b"")], tick_hz=50)
    with sync.open_platform() as platform:
        platform.participants.register_environment(until_acted)
        platform.participants.register_actor(late, "late")
        trial_id = platform.controller.start_trial(given)
        platform.controller.wait_trial(trial_id)
        [info] = platform.controller.trial_infos([trial_id])
    assert told == [(50, 1)]
    assert info.tick_rate.late_actions == 1
    assert info.tick_rate.absent_actions == info.tick_id
