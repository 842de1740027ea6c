"""Heartbeats over real calls: who is silent and owes nothing gets them, who does not read them is lost."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.helpers import (
    END,
    HEARTBEAT,
    NORMAL,
    Script,
    actor_that_acts,
    bench,
    environment_of,
    observation_set,
    params_of,
    start_environment,
)
from trio_cogment import open_platform
from trio_cogment.api import orchestrator_pb2
from trio_cogment.api.common_pb2 import ActorInitialOutput, ActorRunTrialOutput, TrialState
from trio_cogment.api.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.rpc import ServerCall, methods_of
from trio_cogment.sdk import actor_params, trial_params

both = pytest.mark.parametrize("wire", [False, True])
RUN_TRIAL = methods_of(orchestrator_pb2.DESCRIPTOR.services_by_name["ClientActorSP"])["RunTrial"]


@both
async def test_every_silent_participant_gets_them_after_it_has_begun(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    got: dict[str, list[Any]] = {"env": [], "a": [], "c": []}

    async def environment(call: ServerCall) -> None:
        await call.receive()
        await trio.sleep(45)
        await call.send(EnvRunTrialOutput(state=NORMAL, init_output=EnvInitialOutput()))
        await trio.sleep(25)
        await call.send(observation_set(2))
        async for message in call:
            got["env"].append((trio.current_time(), message.state))

    async def actor(call: ServerCall) -> None:
        await call.receive()
        await trio.sleep(30)
        await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
        async for message in call:
            got["a"].append((trio.current_time(), message.state))

    params = trial_params([actor_params("a", "player"), actor_params("c", "player", endpoint="cogment://client")])
    async with bench(Script(environment).environment(), Script(actor).actor(), wire=wire) as table:
        await table.controller.start_trial(params, trial_id="t")
        await trio.sleep(5)
        async with table.channel.call(RUN_TRIAL, metadata=[("trial-id", "t")]) as call:
            await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput(actor_name="c")))
            assert (await call.receive()).HasField("init_input")
            async for message in call:
                got["c"].append((trio.current_time(), message.state))
                if message.HasField("observation"):
                    await trio.sleep(50)
                    break
    beats = {name: [when for when, state in seen if state == HEARTBEAT] for name, seen in got.items()}
    # The client joined at 5, the actor was ready at 30, and the environment, contacted then, at 75. At 100 it showed
    # its first observations: from then on it waits, and the actors owe their actions.
    assert beats["c"] == pytest.approx([25, 45, 65, 85])
    assert beats["a"] == pytest.approx([50, 70, 90])
    assert beats["env"] == pytest.approx([120, 140])


async def test_the_sdks_sessions_answer_and_nothing_is_answered_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    messages = 0

    async def environment(session: Any) -> None:
        nonlocal messages
        await session.start([("*", b"o")])
        async for event in session.all_events():
            messages += 1
            if event.actions:
                await trio.sleep(100)
                await session.produce_observations([("*", b"o")])

    async def actor(session: Any) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"a")

    async with open_platform(config=PlatformConfig(orchestrator=OrchestratorConfig(heartbeat_seconds=1))) as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "actor")
        trial_id = await platform.controller.start_trial(params_of("a", "b"))
        await trio.sleep(1000)
        (info,) = await platform.controller.trial_infos([trial_id])
        trial = platform.orchestrator.trials.get(trial_id)
        assert trial is not None
        assert info.state == TrialState.RUNNING
        assert info.tick_id >= 9
        # A beat a second, each with its answer: nothing more is under way.
        assert all(participant.unanswered_heartbeats <= 101 for participant in trial.machine.participants.values())
    assert messages < 20


@both
async def test_they_are_answered_before_init_while_playing_and_during_the_end(
    wire: bool, autojump_clock: trio.testing.MockClock
) -> None:
    answers: list[str] = []

    async def beat(call: ServerCall, kind: Any, what: str) -> None:
        await call.send(kind(state=HEARTBEAT))
        while True:
            message = await call.receive()
            if message.state == HEARTBEAT:
                answers.append(what)
                return

    async def environment(call: ServerCall) -> None:
        from tests.helpers import LAST, LAST_ACK

        await call.receive()
        await beat(call, EnvRunTrialOutput, "environment before init")
        await call.send(EnvRunTrialOutput(state=NORMAL, init_output=EnvInitialOutput()))
        await beat(call, EnvRunTrialOutput, "environment before its first set")
        await call.send(observation_set(1))
        await call.receive()
        await call.send(EnvRunTrialOutput(state=LAST))
        await beat(call, EnvRunTrialOutput, "environment after LAST")
        await call.send(observation_set(1))
        await beat(call, EnvRunTrialOutput, "environment after its final set")
        await call.send(EnvRunTrialOutput(state=LAST_ACK))
        await beat(call, EnvRunTrialOutput, "environment after LAST_ACK")
        await call.receive()

    async def actor(call: ServerCall) -> None:
        from tests.helpers import LAST, LAST_ACK

        await call.receive()
        await beat(call, ActorRunTrialOutput, "actor before init")
        await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
        await beat(call, ActorRunTrialOutput, "actor after init")
        last = False
        async for message in call:
            if message.state == LAST:
                last = True
            elif message.HasField("observation") and last:
                await beat(call, ActorRunTrialOutput, "actor after the final observation")
                await trio.sleep(1)
                await call.send(ActorRunTrialOutput(state=LAST_ACK))
            elif message.HasField("observation"):
                await call.send(ActorRunTrialOutput(state=NORMAL, action={"tick_id": -1}))
            elif message.state == END:
                return

    async with bench(Script(environment).environment(), Script(actor).actor(), wire=wire) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        info = await table.controller.wait_trial_state("t")
    assert info is not None
    assert sorted(answers) == sorted(
        [
            "actor before init",
            "actor after init",
            "actor after the final observation",
            "environment before init",
            "environment before its first set",
            "environment after LAST",
            "environment after its final set",
            "environment after LAST_ACK",
        ]
    )


@both
async def test_who_does_not_read_them_is_lost_in_the_end(wire: bool, autojump_clock: trio.testing.MockClock) -> None:
    async def deaf(call: ServerCall) -> None:
        await call.receive()
        await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
        await trio.sleep_forever()

    async def waits(call: ServerCall) -> None:
        await start_environment(call)
        async for _ in call:
            pass

    config = OrchestratorConfig(heartbeat_seconds=1, max_outbox_messages=50)
    async with bench(Script(waits).environment(), Script(deaf).actor(), wire=wire, config=config) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        await trio.sleep(100)
        (info,) = await table.controller.trial_infos(["t"])
        assert info.state == TrialState.PENDING
        with trio.fail_after(100_000):
            await table.controller.wait_trial_state("t")


async def test_none_is_sent_when_none_is_wanted(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[Any] = []
    services = Script(environment_of(5, seen, seconds_per_tick=100)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, config=OrchestratorConfig(heartbeat_seconds=0)) as table:
        await table.controller.start_trial(params_of("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
    assert HEARTBEAT not in [message.state for message in seen]
