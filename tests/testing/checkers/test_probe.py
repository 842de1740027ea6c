"""What is seen from inside: the probe, recorded calls, a data log's file; and calls in process that take time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.helpers import params_of
from trio_cogment import actor_params, trial_params
from trio_cogment.api.common_pb2 import Action
from trio_cogment.config import OrchestratorConfig
from trio_cogment.errors import RpcError
from trio_cogment.orchestrator import orchestrator_services
from trio_cogment.rpc import CallOpener, InProcessChannel
from trio_cogment.sdk import Controller
from trio_cogment.testing import (
    FakeActor,
    FakeDatalog,
    FakeEnvironment,
    InvariantError,
    LatentChannel,
    Link,
    PowerLossError,
    Probe,
    RecordedCalls,
    World,
    check_history,
    record_states,
    simulate,
)
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, FAIL, WAIT, CheckService
from trio_cogment.testing.fakes._sample_file import SampleFile, read_ticks

# --- the probe ---


async def shielded(world: World, deadline: float) -> None:
    async with world.serve_orchestrator() as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(Probe(orchestrator, world.history).run)
        with trio.move_on_after(2), trio.CancelScope(shield=True, deadline=trio.current_time() + deadline):
            await trio.sleep(6)
        nursery.cancel_scope.cancel()


def test_a_shield_without_a_deadline_is_found_while_it_holds() -> None:
    history = simulate(1, shielded, float("inf")).history
    with pytest.raises(InvariantError, match=r"shields-have-deadlines: \S*main: was shielded at 4.0"):
        check_history(history)


@pytest.mark.parametrize("deadline", [5.0, 1.0])
def test_a_shield_with_a_deadline_may_hold(deadline: float) -> None:
    history = simulate(1, shielded, deadline).history
    check_history(history)
    assert [event for event in history if event.what == "shield"] or deadline < 2


async def probed_trial(world: World, spoil: Callable[[Any], None]) -> None:
    """A trial whose actor does not read for a while, in process."""
    services = [FakeActor(world).service(), FakeEnvironment(world, ticks=5).service()]
    async with world.in_process(services) as inside:
        local = _Finds(inside)
        config = OrchestratorConfig(max_queued_samples=2)
        async with world.serve_orchestrator(local=local, config=config) as orchestrator:
            probe = Probe(orchestrator, world.history)
            async with InProcessChannel(orchestrator_services(orchestrator)) as near, trio.open_nursery() as nursery:
                nursery.start_soon(record_states, Controller(near), world.history)
                nursery.start_soon(probe.run)
                await Controller(near).start_trial(params_of("ann"), trial_id="t")
                spoil(orchestrator)
                await Controller(near).wait_trial("t")
                await trio.sleep(10)
                nursery.cancel_scope.cancel()


class _Finds:
    def __init__(self, channel: CallOpener) -> None:
        self._channel = channel

    def find(self, *_: object) -> CallOpener:
        return self._channel


def test_tasks_of_a_trial_are_gone_soon_after_its_end() -> None:
    history = simulate(1, probed_trial, lambda _: None).history
    check_history(history)
    assert [event.details["names"] for event in history if event.what == "tasks"][-1] == []


def test_a_task_that_stays_is_found() -> None:
    def spoil(orchestrator: Any) -> None:
        async def stay() -> None:
            await trio.sleep(8)

        (run,) = orchestrator.runs
        run.spawn(stay, "somebody")

    history = simulate(1, probed_trial, spoil).history
    with pytest.raises(InvariantError, match=r"tasks-end-with-their-trial: t: \S+ s after .*somebody"):
        check_history(history)


def test_queues_are_looked_at_whenever_something_happens() -> None:
    def spoil(orchestrator: Any) -> None:
        trial = orchestrator.trials.get("t")
        type(trial).queues = property(lambda _: Queues(samples=0, messages=10**6, longest=10**6, max_messages=1))

    from trio_cogment.orchestrator._trial import Queues, Trial

    before = Trial.queues
    try:
        history = simulate(1, probed_trial, spoil).history
    finally:
        Trial.queues = before  # type: ignore[method-assign]  # put back
    with pytest.raises(InvariantError, match="queues-stay-within-limits: t: 1000000 messages"):
        check_history(history)


# --- recorded calls ---


def test_how_calls_end_is_noted() -> None:
    async def scenario(world: World) -> None:
        async with world.in_process([CheckService().service()]) as channel:
            calls = RecordedCalls(channel, world.history, "me")
            await calls.unary(ECHO_ONE, Action(tick_id=1))
            with pytest.raises(RpcError):
                await calls.unary(FAIL, Action(content=b"status"))
            async with calls.call(WAIT, metadata=[("trial-id", "t")]) as call:
                call.set_consumer(_Silent())
                await trio.sleep(1)
            async with calls.call(ECHO) as call:
                await call.done_sending()
                assert await call.receive() is None
                assert await call.receive() is None
                assert call.trailing_metadata is not None

    history = simulate(1, scenario).history
    check_history(history)
    notes = [(event.what, event.details.get("method") or event.details.get("code")) for event in history]
    assert [note for note in notes if note[0] != "call left"] == [
        ("call", "EchoOne"),
        ("status", "OK"),
        ("call", "Fail"),
        ("status", "DATA_LOSS"),
        ("call", "Wait"),
        ("status", "CANCELLED"),
        ("call", "Echo"),
        ("status", "OK"),
    ]
    assert [event.details["trial"] for event in history if event.what == "call"] == ["", "", "t", ""]


class _Silent:
    def on_message(self, message: Any) -> None: ...
    def on_end(self, error: RpcError | None) -> None: ...


def test_a_call_that_ends_twice_is_found() -> None:
    async def scenario(world: World) -> None:
        async with (
            world.in_process([CheckService().service()]) as channel,
            RecordedCalls(channel, world.history, "me").call(ECHO) as call,
        ):
            given: list[Any] = []
            call._call.set_consumer = given.append  # type: ignore[attr-defined]  # to be told by hand
            call.set_consumer(_Silent())
            given[0].on_end(None)
            given[0].on_message(Action())
            given[0].on_end(None)

    with pytest.raises(InvariantError, match="calls-end-once: me: call 0 "):
        check_history(simulate(1, scenario).history)


# --- a data log's file ---


def test_what_is_durable_is_there_after_a_crash_at_any_moment() -> None:
    for seed in range(150):
        disk = World(seed).disk("log")
        kept: list[int] = []
        disk.crash_at(seed % 30)
        try:
            file = SampleFile(disk, "t")
            for tick in (0, 1, 1, 2, 3, 4, 5):
                file.add(tick)
                kept.append(tick)
        except PowerLossError:
            pass
        disk.restart()
        ticks = read_ticks(disk, "t")
        assert ticks[: len(set(kept))] == sorted(set(kept))
        again = SampleFile(disk, "t")
        again.add(9)
        assert read_ticks(disk, "t") == [*ticks, 9]


def test_a_sync_that_failed_is_not_believed() -> None:
    disk = World(1).disk("log")
    file = SampleFile(disk, "t")
    file.add(0)
    disk.fail_syncs()
    with pytest.raises(OSError, match="Input/output"):
        file.add(1)
    again = SampleFile(disk, "t")
    again.add(1)
    disk.crash()
    disk.restart()
    assert read_ticks(disk, "t") == [0, 1]


def test_a_fake_data_log_keeps_its_samples_and_recovers() -> None:
    async def scenario(world: World) -> int:
        disk = world.disk("log")
        log = FakeDatalog(world, files=lambda _: disk)
        services = [FakeActor(world).service(), FakeEnvironment(world, ticks=5).service(), log.service()]
        async with (
            world.in_process(services) as inside,
            world.serve_orchestrator(local=_Finds(inside)) as orchestrator,
        ):
            disk.fail_syncs(3)
            params = params_of("ann", datalog_endpoint="cogment://discover")
            await orchestrator.start_trial(trial_id="t", params=params)
            await trio.sleep(60)
            assert orchestrator.lost_samples == 0
        disk.crash()
        disk.restart()
        log.note_kept()
        return world.counters["datalog: stored after its disk had failed"]

    outcome = simulate(1, scenario)
    assert outcome.value == 1
    (kept,) = [event.details["ticks"] for event in outcome.history if event.what == "kept"]
    assert kept == list(range(6))
    check_history(outcome.history, ["acknowledged-samples-are-kept", "samples-come-once"])


# --- in process, in some time ---


async def busy_world(session: Any) -> None:
    await session.start([("*", b"0")])
    async for event in session.all_events():
        if event.actions is not None:
            await (session.end if session.tick_id == 20 else session.produce_observations)([("*", b"x")])


async def busy_actor(session: Any) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"y")


@pytest.mark.parametrize("latency", [0.0, 0.01, 1.0])
def test_a_platform_in_process_takes_the_time_of_its_link(latency: float) -> None:
    """Nobody thinks here: without a latency, all of it happens in one instant."""

    async def scenario(world: World) -> float:
        link = Link(latency_seconds=latency, jitter_seconds=latency / 10) if latency else None
        async with world.open_platform(link=link) as platform:
            platform.participants.register_environment(busy_world)
            platform.participants.register_actor(busy_actor, "busy")
            began = trio.current_time()
            trial = await platform.controller.start_trial(trial_params([actor_params("ann", "player")]))
            await platform.controller.wait_trial(trial)
            return trio.current_time() - began

    seconds = simulate(1, scenario).value
    # Twenty times: observation, action, and both ways the orchestrator is in between.
    assert 80 * latency <= seconds <= 110 * latency
    assert simulate(1, scenario).value == seconds


def test_messages_overtake_nothing_and_statuses_come_after_them() -> None:
    async def scenario(world: World) -> list[float]:
        link = Link(latency_seconds=0.1, jitter_seconds=0.5)
        async with LatentChannel([CheckService().service()], link, world.stream) as channel:
            times = []
            async with channel.call(ECHO) as call:
                for number in range(30):
                    await call.send(Action(tick_id=number))
                await call.done_sending()
                ticks = []
                async for reply in call:
                    ticks.append(reply.tick_id)
                    times.append(trio.current_time())
            assert ticks == list(range(30))
            return times

    times = simulate(3, scenario).value
    assert times[0] > 0.2
    assert times[-1] < 3  # they travel together
