"""The shell around one machine: failures stay inside."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from tests.helpers import END, Script, actor_that_acts, bench, environment_of, params_of, wait_ended
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import AlreadyExistsError, InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.base.services import TRIAL_ID
from trio_cogment.rpc import InProcessChannel, Metadata
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.servers.orchestrator._participant_streams import ParticipantStreams
from trio_cogment.servers.orchestrator._trial import _PERFORM
from trio_cogment.trial import Announce, Begin, HardEnd, Received, TrialMachine
from trio_cogment.trial._machine import _HANDLERS


async def test_machine_that_fails_ends_its_trial_and_no_other(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    received = _HANDLERS[Received]

    def fails_in_one(machine: TrialMachine, event: Received) -> None:
        if machine.trial_id == "bad" and machine.tick_id == 1:
            raise ZeroDivisionError
        received(machine, event)

    monkeypatch.setitem(_HANDLERS, Received, fails_in_one)
    seen: list[Any] = []
    services = Script(environment_of(3)).environment(), Script(actor_that_acts(seen)).actor()
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("a"), trial_id="bad")
        await table.controller.start_trial(params_of("a"), trial_id="good")
        bad = await table.controller.wait_trial_state("bad")
        good = await table.controller.wait_trial_state("good")
        await trio.testing.wait_all_tasks_blocked()
    assert bad is not None
    assert good is not None
    assert (bad.state, bad.tick_id) == (TrialState.ENDED, 1)
    assert good.tick_id == 3
    assert any("failed to run this trial" in message.details for message in seen)
    assert "ZeroDivisionError" in caplog.text


async def test_a_trial_that_cannot_even_be_ended_is_over(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_machine: TrialMachine, _event: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(_HANDLERS, Received, fails)
    monkeypatch.setitem(_HANDLERS, HardEnd, fails)
    services = Script(environment_of(3)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("a"), trial_id="bad")
        (trial,) = table.orchestrator.trials
        await trio.sleep(10)
        assert table.orchestrator.running_trials == 0
        assert trial.over
        assert not trial.equipped
        # Whoever asks again changes nothing of it.
        ended_at = trial.ended_at
        trial.hard_end("again")
        assert trial.ended_at == ended_at
    assert "trial bad: cannot even be ended" in caplog.text


async def test_a_run_that_is_over_starts_no_task(autojump_clock: trio.testing.MockClock) -> None:
    async with bench(Script(environment_of(1)).environment(), Script(actor_that_acts()).actor()) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        (run,) = table.orchestrator.runs
        await wait_ended(table.orchestrator, "t")
        await trio.testing.wait_all_tasks_blocked()
        assert table.orchestrator.runs == []
        run.spawn(trio.sleep_forever, "too late")
        run.abandon(trio.current_time())
        assert run.task_names == []


async def test_an_effect_that_fails_keeps_nobody_else_from_learning_of_the_end(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_trial: Any, _effect: Announce) -> None:
        raise ZeroDivisionError

    seen: list[Any] = []
    services = Script(environment_of()).environment(), Script(actor_that_acts(seen)).actor()
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("a"), trial_id="bad")
        monkeypatch.setitem(_PERFORM, Announce, fails)
        await table.controller.terminate_trial("bad", hard=True)
        await trio.testing.wait_all_tasks_blocked()
        assert table.orchestrator.running_trials == 0
    assert seen[-1].state == END
    assert "trial bad: failed while ending" in caplog.text


async def test_task_that_fails_ends_its_trial_and_no_other(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hold = ParticipantStreams._hold

    async def fail() -> None:
        raise ZeroDivisionError

    def fails_in_one(self: ParticipantStreams, *arguments: Any) -> None:
        if self._metadata == Metadata(((TRIAL_ID, "bad"),)):
            self._spawn(fail, "a task that fails")
        else:
            hold(self, *arguments)

    monkeypatch.setattr(ParticipantStreams, "_hold", fails_in_one)
    monkeypatch.setattr(InProcessChannel, "call_nowait", lambda *_arguments, **_named: None)  # or there are no tasks
    services = Script(environment_of(3)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("a"), trial_id="bad")
        await table.controller.start_trial(params_of("a"), trial_id="good")
        bad = await table.controller.wait_trial_state("bad")
        good = await table.controller.wait_trial_state("good")
    assert bad is not None
    assert good is not None
    assert bad.state == TrialState.ENDED
    assert good.tick_id == 3
    assert "ZeroDivisionError" in caplog.text


async def test_many_trials_leave_nothing(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(2)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(100):
            trial_id = await table.controller.start_trial(params_of("a"))
            await table.controller.wait_trial_state(trial_id)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert table.orchestrator.running_trials == 0


@pytest.mark.parametrize("wire", [False, True])
async def test_crowd_that_talks_at_once_harms_nobody(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    """A participant that reads may get more in one turn of the others than its call holds."""
    from google.protobuf.any_pb2 import Any as AnyMessage

    from trio_cogment.api.common_pb2 import ActorInitialOutput, ActorRunTrialOutput, CommunicationState, Message

    got: list[str] = []

    async def talks(call: Any) -> None:
        await call.receive()
        await call.send(ActorRunTrialOutput(state=CommunicationState.NORMAL, init_output=ActorInitialOutput()))
        message = Message(tick_id=-1, receiver_name="env", payload=AnyMessage(value=b"x"))
        await call.receive()
        for _ in range(3):
            await call.send(ActorRunTrialOutput(state=CommunicationState.NORMAL, message=message))
        await actor_that_acts(start=False)(call)

    async def listens(call: Any) -> None:
        from tests.helpers import observation_set, start_environment

        actors = await start_environment(call)
        await call.send(observation_set(actors))
        async for message in call:
            if message.HasField("message"):
                got.append(message.message.sender_name)
                if len(got) == 3 * actors:
                    break
        ended.set()
        await trio.sleep_forever()

    ended = trio.Event()
    names = [f"a{number}" for number in range(400)]
    async with bench(Script(listens).environment(), Script(talks).actor(), wire=wire) as table:
        await table.controller.start_trial(params_of(*names), trial_id="t")
        with trio.fail_after(60):
            await ended.wait()
    assert sorted(got) == sorted(names * 3)


async def test_stream_of_a_lost_participant_is_let_go(autojump_clock: trio.testing.MockClock) -> None:
    from tests.helpers import observation_set, start_environment
    from trio_cogment.sdk import actor_params, trial_params

    async def leaves(call: Any) -> None:
        await call.receive()

    async def waits(call: Any) -> None:
        await call.send(observation_set(await start_environment(call)))
        async for _ in call:
            pass

    async with bench(Script(waits).environment(), Script(leaves).actor()) as table:
        params = trial_params([actor_params("a", "player", optional=True)])
        await table.controller.start_trial(params, trial_id="t")
        await trio.testing.wait_all_tasks_blocked()
        (run,) = table.orchestrator._runs
        assert "trial t: env" in run.task_names
        assert "trial t: a" not in run.task_names


async def test_what_a_trial_does_is_told_in_the_order_of_its_names(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(None, seconds_per_tick=1)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("zoe", "ann", "bob"), trial_id="t")
        await trio.testing.wait_all_tasks_blocked()
        (run,) = table.orchestrator.runs
        assert {"trial t: ann", "trial t: bob", "trial t: env", "trial t: zoe"} <= set(run.task_names)
        assert run.task_names == sorted(run.task_names)


async def test_source_of_ids_that_repeats_itself_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(None)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        for new_id, error in ((lambda: "same", AlreadyExistsError), (lambda: "bad\nid", InvalidArgumentError)):
            async with Orchestrator(
                host=Host(wall_clock=lambda: 1, new_id=new_id), local=table.orchestrator._local
            ) as orchestrator:
                if error is AlreadyExistsError:
                    assert await orchestrator.start_trial(params=params_of("a")) == "same"
                with pytest.raises(error):
                    await orchestrator.start_trial(params=params_of("a"))


@pytest.mark.parametrize("taken", [9, 10])
async def test_an_id_that_is_taken_is_drawn_again_up_to_ten_times(
    taken: int, autojump_clock: trio.testing.MockClock
) -> None:
    drawn: list[str] = []

    def new_id() -> str:
        drawn.append("same" if len(drawn) < 1 + taken else "another")
        return drawn[-1]

    services = Script(environment_of(None)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        host = Host(wall_clock=lambda: 1, new_id=new_id)
        async with Orchestrator(host=host, local=table.orchestrator._local) as orchestrator:
            assert await orchestrator.start_trial(params=params_of("a")) == "same"
            if taken == 9:
                assert await orchestrator.start_trial(params=params_of("a")) == "another"
            else:
                with pytest.raises(AlreadyExistsError, match="every one of 10 new trial ids is taken"):
                    await orchestrator.start_trial(params=params_of("a"))
    assert len(drawn) == 1 + 10


async def test_in_what_is_left_of_a_released_trial_nothing_waits(autojump_clock: trio.testing.MockClock) -> None:
    async with bench() as table:
        orchestrator = table.orchestrator
        holding = orchestrator.room.enter("")
        trial = orchestrator.trials.reserve("t", partial(orchestrator._new_trial, "", holding))
        trial.feed(Begin())
        streams = ParticipantStreams(
            "t",
            params_of("a"),
            {},
            cast(Any, SimpleNamespace(authorizations=lambda *_: tuple)),
            holding=holding,
            config=OrchestratorConfig(max_outbox_messages=70),
            feed=trial.feed,
            spawn=cast(Any, None),
        )
        trial.equip(streams, cast(Any, SimpleNamespace(queued_samples=5, takes_shared=False)))
        assert trial.queues == (5, 0, 0, 70)
        streams.disband()
        assert trial.queues == (5, 0, 0, 0)
        trial.release()
        assert trial.queues == (0, 0, 0, 0)


@pytest.mark.parametrize("stays", [1.0, 1000.0])
async def test_a_stop_waits_for_calls_that_are_served_as_long_as_for_a_farewell(
    stays: float, autojump_clock: trio.testing.MockClock
) -> None:
    async with bench(config=OrchestratorConfig(farewell_seconds=3)) as table, trio.open_nursery() as nursery:

        async def serve(task_status: trio.TaskStatus[None]) -> None:
            with table.orchestrator.serving_call():
                task_status.started()
                await trio.sleep(stays)

        await nursery.start(serve)
        began = trio.current_time()
        await table.orchestrator.stop()
        assert trio.current_time() - began == min(stays, 3)
        nursery.cancel_scope.cancel()


async def test_what_an_ended_trial_had_needs_no_garbage_collector(autojump_clock: trio.testing.MockClock) -> None:
    """It is in no cycle of references: collecting the garbage of a trial takes longer than much of the trial."""
    services = Script(environment_of(2)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, config=OrchestratorConfig(max_ended_trials=0)) as table:
        kept: list[weakref.ref[Any]] = []
        gc.disable()
        try:
            for trial_id in ("first", "second"):
                await table.controller.start_trial(params_of("a"), trial_id=trial_id)
                (run,) = table.orchestrator.runs
                # A compiled trial takes no weak references; who has it has its event.
                kept += [weakref.ref(run), weakref.ref(run.trial.settled)]
                del run
                await wait_ended(table.orchestrator, trial_id)
                await trio.testing.wait_all_tasks_blocked()
            assert table.orchestrator.running_trials == 0
            assert [reference() for reference in kept] == [None] * 4
        finally:
            gc.enable()


async def test_an_ended_trial_that_is_remembered_has_nobody_any_more(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(2)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        (trial,) = table.orchestrator.trials
        assert trial.equipped
        await wait_ended(table.orchestrator, "t")
        await trio.testing.wait_all_tasks_blocked()
        assert not trial.equipped


async def test_how_long_it_lasts_and_what_became_of_its_samples_is_told(autojump_clock: trio.testing.MockClock) -> None:
    services = Script(environment_of(2, seconds_per_tick=1)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        (trial,) = table.orchestrator.trials
        assert (trial.info().trial_duration, trial.ended_at) == (0, 0)
        await wait_ended(table.orchestrator, "t")
        assert trial.info().trial_duration == 2_000_000_000
        trial.samples_settled(3)
        assert trial.outcome is not None
        assert (trial.outcome.samples_lost, trial.info().end.samples_lost, trial.outcome.stored) == (3, 3, False)


async def test_a_trial_that_cannot_be_ended_ends_once(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_machine: TrialMachine, _event: Any) -> None:
        raise ZeroDivisionError

    services = Script(environment_of(None, seconds_per_tick=1)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        await trio.sleep(2.5)
        (trial,) = table.orchestrator.trials
        monkeypatch.setitem(_HANDLERS, HardEnd, fails)
        for _ in range(2):
            trial.hard_end("enough")
            await trio.sleep(4)
        assert (trial.ended_at, trial.seconds, trial.over) == (2.5, 2.5, True)
        trial.feed(HardEnd("again"))
        assert (trial.ended_at, trial.seconds) == (2.5, 2.5)
