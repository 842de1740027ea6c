"""Outcomes of trials as controllers are told: each way to fail, in process and over sockets."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value

from tests.cli.process import PATIENCE_SECONDS, listening, served
from trio_cogment import (
    ActorClass,
    ActorSession,
    Controller,
    EnvironmentSession,
    OrchestratorConfig,
    Participants,
    PlatformConfig,
    Spec,
    TrialFailedError,
    TrialOutcome,
    actor_params,
    open_platform,
    trial_params,
)
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.base.errors import NotFoundError
from trio_cogment.base.outcome import EndCause
from trio_cogment.rpc import CallOpener, Channel
from trio_cogment.sdk import ActorImplementation, join_trial

IN_PROCESS, OVER_SOCKETS = "in process", "over sockets"
IMPATIENCE_SECONDS = 0.3
BOTH = pytest.mark.parametrize("transport", [IN_PROCESS, OVER_SOCKETS])
SPEC = Spec.of(ActorClass("player", observation=UInt32Value, action=UInt32Value))

#: Served by a process that is killed in the middle of a trial.
KILLED = """
import os, signal, trio
from trio_cogment.sdk import Participants, serve_participants

async def actor(session):
    async for event in session.all_events():
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    participants = Participants()
    participants.register_actor(actor, "player")
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(lambda task_status: serve_participants(
            participants, address="127.0.0.1", task_status=task_status))
        print(serving.port, flush=True)

trio.run(main)
"""


class BrainError(Exception):
    """What the user's code raises."""


async def player(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(UInt32Value(value=1))


async def world(session: EnvironmentSession) -> None:
    observations: list[tuple[str | int, Any]] = [("*", UInt32Value(value=1))]
    await session.start(observations)
    async for event in session.all_events():
        if event.actions is not None:
            await session.produce_observations(observations)


async def short_world(session: EnvironmentSession) -> None:
    observations: list[tuple[str | int, Any]] = [("*", UInt32Value(value=1))]
    await session.start(observations)
    async for event in session.all_events():
        if event.actions is not None:
            await session.end(observations)


async def raises(session: Any) -> None:
    if isinstance(session, EnvironmentSession):
        await session.start([("*", UInt32Value(value=1))])
    async for _ in session.all_events():
        raise BrainError("no idea\nwhat to do")


async def raises_in_a_nursery(session: Any) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(raises, session)


async def returns(session: Any) -> None:
    if isinstance(session, EnvironmentSession):
        await session.start([("*", UInt32Value(value=1))])
    async for _ in session.all_events():
        return


async def sends_the_wrong_type(session: Any) -> None:
    if isinstance(session, EnvironmentSession):
        await session.start([("*", StringValue(value="one"))])
    async for _ in session.all_events():
        await session.do_action(StringValue(value="one"))


async def never_comes(_session: Any) -> None:
    await trio.sleep_forever()


@dataclass
class Table:
    """An orchestrator, and where its participants are."""

    controller: Controller
    channel: CallOpener
    endpoint: str
    joining_seconds: float

    def params(self, *, optional: bool = False, max_steps: int = 0) -> TrialParams:
        actors = [
            actor_params("ann", "player", implementation="good", endpoint=self.endpoint),
            actor_params(
                "bob",
                "player",
                implementation="bad",
                endpoint=self.endpoint,
                initial_connection_timeout_seconds=self.joining_seconds,
                optional=optional,
            ),
        ]
        return trial_params(actors, environment="env", environment_endpoint=self.endpoint, max_steps=max_steps)

    async def play(self, params: TrialParams) -> TrialOutcome:
        with trio.fail_after(PATIENCE_SECONDS):
            trial_id = await self.controller.start_trial(params)
            return await self.controller.wait_trial(trial_id, check=False)


@asynccontextmanager
async def table(
    transport: str, *, environment: Any = world, bad: Callable[[Any], Awaitable[None]] = player, missing: bool = False
) -> AsyncIterator[Table]:
    # Only who is not to come is not waited for: who is to come may take long on a busy machine.
    joining = IMPATIENCE_SECONDS if missing or never_comes in (environment, bad) else PATIENCE_SECONDS
    participants = Participants(SPEC)
    participants.register_environment(environment, "env")
    participants.register_actor(player, "good")
    participants.register_actor(bad, "bad")
    config = PlatformConfig(orchestrator=OrchestratorConfig(environment_init_timeout_seconds=joining))
    if transport == IN_PROCESS:
        async with open_platform(participants, config=config) as platform:
            yield Table(platform.controller, platform.channel, "cogment://discover", joining)
        return
    async with (
        open_platform(SPEC, config=config) as platform,
        served(participants) as endpoint,
        listening(*platform.services) as address,
        Channel("127.0.0.1", int(address.rpartition(":")[2])) as channel,
    ):
        yield Table(Controller(channel, spec=SPEC), channel, endpoint, joining)


class Witness:
    """Notes what a participant knows of the end: with its final observation, and afterwards."""

    def __init__(self, then: Callable[[Any], Awaitable[None]]) -> None:
        self._then = then
        self.near: EndCause | None = None
        self.session: Any = None

    async def __call__(self, session: Any) -> None:
        self.session = session
        assert session.outcome is None
        if isinstance(session, EnvironmentSession):
            await self._then(session)
            return
        async for event in session.all_events():
            if event.observation is not None:
                self.near = None if session.outcome is None else session.outcome.cause
                await session.do_action(UInt32Value(value=1))


@BOTH
@pytest.mark.parametrize(
    ("environment", "max_steps", "asked", "cause"),
    [
        (short_world, 0, None, EndCause.ENVIRONMENT),
        (world, 3, None, EndCause.STEP_LIMIT),
        (world, 0, False, EndCause.SOFT_TERMINATION),
        (world, 0, True, EndCause.HARD_TERMINATION),
    ],
)
async def test_participants_know_how_it_ended(
    transport: str, environment: Any, max_steps: int, asked: bool | None, cause: EndCause
) -> None:
    witnesses = [Witness(environment), Witness(player)]
    async with table(transport, environment=witnesses[0], bad=witnesses[1]) as it:
        trial_id = await it.controller.start_trial(it.params(max_steps=max_steps))
        with trio.fail_after(PATIENCE_SECONDS):
            if asked is not None:
                await it.controller.wait_trial_state(trial_id, TrialState.RUNNING)
                await it.controller.terminate_trial(trial_id, hard=asked)
            outcome = await it.controller.wait_trial(trial_id, check=False)
            for witness in witnesses:
                while not witness.session.is_over:
                    await trio.lowlevel.checkpoint()
    assert outcome.cause is cause
    near = None if asked else cause
    assert [witness.near for witness in witnesses] == [None, near]
    for witness in witnesses:
        heard = witness.session.outcome
        assert (heard.trial_id, heard.cause, heard.participant) == (trial_id, cause, outcome.participant)
        assert (heard.reason, heard.ticks) == (outcome.reason, outcome.ticks)


async def test_participants_know_who_made_the_trial_fail() -> None:
    witness = Witness(world)
    async with table(OVER_SOCKETS, environment=witness, bad=raises) as it:
        outcome = await it.play(it.params())
        while not witness.session.is_over:
            await trio.lowlevel.checkpoint()
    heard = witness.session.outcome
    assert outcome.losses
    assert heard.failed
    assert (heard.cause, heard.participant) == (EndCause.PARTICIPANT_FAILED, "bob")
    assert heard.reason == witness.session.details == outcome.reason
    assert (heard.losses, heard.traceback) == ((), "")


FAILURES = [
    (raises, EndCause.PARTICIPANT_FAILED, "failed: BrainError: no idea"),
    (raises_in_a_nursery, EndCause.PARTICIPANT_FAILED, "failed: BrainError: no idea"),
    (returns, EndCause.PARTICIPANT_LEFT, "left the trial: it closed its stream"),
    (sends_the_wrong_type, EndCause.PARTICIPANT_FAILED, "failed: INVALID_ARGUMENT: "),
    (never_comes, EndCause.PARTICIPANT_MISSING, "was lost: it did not come in time"),
]


@BOTH
@pytest.mark.parametrize(("failing", "cause", "reason"), FAILURES)
@pytest.mark.parametrize("who", ["bob", "env"])
async def test_a_failure_is_named(
    transport: str, who: str, failing: Any, cause: EndCause, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    roles = {"bad": failing} if who == "bob" else {"environment": failing}
    async with table(transport, **roles) as it:
        trial_id = await it.controller.start_trial(it.params())
        with pytest.raises(TrialFailedError) as caught, trio.fail_after(PATIENCE_SECONDS):
            await it.controller.wait_trial(trial_id)
        [info] = await it.controller.trial_infos([trial_id])
    outcome = caught.value.outcome
    assert outcome.trial_id == trial_id
    assert outcome.cause is cause
    assert outcome.participant == outcome.failed_participant == who
    assert reason in outcome.reason
    assert [(loss.participant, loss.cause, loss.required) for loss in outcome.losses] == [(who, cause, True)]
    assert outcome.reason in str(caught.value)
    assert TrialOutcome.of(trial_id, info.end) == outcome
    records = [record for record in caplog.records if record.levelno >= logging.ERROR]
    if cause is EndCause.PARTICIPANT_FAILED:
        [record] = records  # once, with file and line, participant and trial
        assert record.exc_info is not None
        assert f"trial {trial_id}: " in record.getMessage()
        assert f"'{who}' failed" in record.getMessage()
        assert "test_outcomes.py" in caplog.text
        # Lines of code are for the process that has the code.
        assert ("test_outcomes.py" in outcome.traceback) == (transport == IN_PROCESS)
    else:
        assert records == []


async def test_a_process_that_is_killed_is_named() -> None:
    async with table(OVER_SOCKETS) as it, trio.open_nursery() as nursery:
        run = partial(trio.run_process, [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, check=False)
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        port = int(await process.stdout.receive_some())
        params = it.params()
        params.actors[1].endpoint = f"grpc://127.0.0.1:{port}"
        params.actors[1].implementation = "player"
        outcome = await it.play(params)
    assert (outcome.cause, outcome.participant, outcome.failed) == (EndCause.PARTICIPANT_LOST, "bob", True)


@BOTH
async def test_a_participant_that_cannot_be_reached_is_named(transport: str) -> None:
    async with table(transport, missing=True) as it:
        params = it.params()
        params.actors[1].endpoint = "grpc://127.0.0.1:9"
        outcome = await it.play(params)
    assert (outcome.cause, outcome.participant, outcome.failed) == (EndCause.PARTICIPANT_MISSING, "bob", True)


@BOTH
@pytest.mark.parametrize(
    ("joining", "cause", "reason"),
    [
        (raises, EndCause.PARTICIPANT_FAILED, "BrainError: no idea"),
        (returns, EndCause.PARTICIPANT_LEFT, "it closed its side of the stream"),
        (sends_the_wrong_type, EndCause.PARTICIPANT_FAILED, "InvalidArgumentError: "),
    ],
)
async def test_a_failing_client_actor_is_named(
    transport: str, joining: ActorImplementation, cause: EndCause, reason: str
) -> None:
    async with table(transport) as it:
        params = it.params()
        params.actors[1].endpoint = "cogment://client"
        params.actors[1].ClearField("initial_connection_timeout")
        trial_id = await it.controller.start_trial(params)
        caught: list[Exception] = []
        with trio.fail_after(PATIENCE_SECONDS):
            try:
                await join_trial(it.channel, trial_id, joining, actor_name="bob", spec=SPEC)
            except Exception as error:  # noqa: BLE001  looked at below
                caught.append(error)
            outcome = await it.controller.wait_trial(trial_id, check=False)
    assert (outcome.cause, outcome.participant) == (cause, "bob")
    assert reason in outcome.reason
    # Whoever joins is told by the exception itself.
    assert bool(caught) == (cause is EndCause.PARTICIPANT_FAILED)


@BOTH
@pytest.mark.parametrize(("failing", "cause", "reason"), FAILURES)
async def test_the_loss_of_an_optional_actor_is_listed_and_no_failure(
    transport: str, failing: Any, cause: EndCause, reason: str
) -> None:
    async with table(transport, bad=failing) as it:
        trial_id = await it.controller.start_trial(it.params(optional=True, max_steps=3))
        with trio.fail_after(PATIENCE_SECONDS):
            outcome = await it.controller.wait_trial(trial_id)
    assert (outcome.cause, outcome.failed, outcome.failed_participant) == (EndCause.STEP_LIMIT, False, "")
    [loss] = outcome.losses
    assert (loss.participant, loss.cause, loss.required) == ("bob", cause, False)
    assert reason in loss.reason


async def fails_at_the_end(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            if event.type.name == "ENDING":
                raise BrainError("at the very end")
            await session.do_action(UInt32Value(value=1))


@BOTH
async def test_a_required_actor_that_fails_on_the_final_observation_is_told_of(transport: str) -> None:
    async with table(transport, bad=fails_at_the_end) as it:
        outcome = await it.play(it.params(max_steps=2))
    assert (outcome.cause, outcome.failed, outcome.failed_participant) == (EndCause.STEP_LIMIT, True, "bob")
    assert "BrainError: at the very end" in str(outcome)


@BOTH
async def test_orderly_ends_are_told_apart(transport: str) -> None:
    async with table(transport, environment=short_world) as it:
        outcome = await it.play(it.params())
        assert (outcome.cause, outcome.participant, outcome.ticks) == (EndCause.ENVIRONMENT, "env", 2)
        assert (outcome.failed, outcome.losses, outcome.reason) == (False, (), "")
    async with table(transport) as it:
        outcome = await it.play(it.params(max_steps=3))
        assert (outcome.cause, outcome.ticks, outcome.failed) == (EndCause.STEP_LIMIT, 5, False)
        for hard, cause in ((False, EndCause.SOFT_TERMINATION), (True, EndCause.HARD_TERMINATION)):
            trial_id = await it.controller.start_trial(it.params())
            await it.controller.terminate_trial(trial_id, hard=hard)
            with trio.fail_after(PATIENCE_SECONDS):
                outcome = await it.controller.wait_trial(trial_id)
            assert (outcome.cause, outcome.failed) == (cause, False)


async def test_an_unknown_trial_is_told_of() -> None:
    async with open_platform() as platform:
        with pytest.raises(NotFoundError, match="trial 'nobody'"):
            await platform.controller.wait_trial("nobody")


async def thinks_for_ever(session: ActorSession) -> None:
    async for _ in session.all_events():
        await trio.sleep_forever()


async def test_who_waits_while_the_orchestrator_stops_is_told_so() -> None:
    outcomes: list[TrialOutcome] = []

    async def wait(controller: Controller, trial_id: str, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        outcomes.append(await controller.wait_trial(trial_id, check=False))

    async with open_platform(store="memory:") as platform, trio.open_nursery() as nursery:
        platform.participants.register_environment(world)
        platform.participants.register_actor(thinks_for_ever, "player")
        params = trial_params([actor_params("ann", "player")], datalog_endpoint="cogment://discover")
        trial_id = await platform.controller.start_trial(params)
        await nursery.start(wait, platform.controller, trial_id)
        await trio.testing.wait_all_tasks_blocked()
        await platform.orchestrator.stop()
    [outcome] = outcomes
    assert (outcome.cause, outcome.failed) == (EndCause.SERVER_STOPPED, True)
