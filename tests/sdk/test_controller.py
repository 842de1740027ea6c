"""Joining a trial as an actor: what is told, and how it ends, at an orchestrator that does what a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from purerpc import Cardinality, RPCSignature, Service

from trio_cogment.api.common_pb2 import ActorInitialInput, ActorRunTrialInput, ActorRunTrialOutput, CommunicationState
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.services import TRIAL_RESUMES
from trio_cogment.rpc import CallOpener, InProcessChannel, ServerCall
from trio_cogment.sdk import ActorSession, join_trial

NORMAL, END, HEARTBEAT = CommunicationState.NORMAL, CommunicationState.END, CommunicationState.HEARTBEAT


@asynccontextmanager
async def orchestrator(handler: Callable[[ServerCall], Awaitable[None]]) -> AsyncIterator[CallOpener]:
    service = Service("cogmentAPI.ClientActorSP")
    signature = RPCSignature(Cardinality.STREAM_STREAM, ActorRunTrialOutput, ActorRunTrialInput)
    service.add_method("RunTrial", handler, signature)
    async with InProcessChannel([service]) as channel:
        yield channel


async def let_in(call: ServerCall) -> str:
    """Give an actor its part; return who it wants to be."""
    asked = await call.receive()
    init = ActorInitialInput(actor_name="ann", actor_class="player")
    await call.send(ActorRunTrialInput(state=NORMAL, init_input=init))
    wanted: str = asked.init_output.actor_name or asked.init_output.actor_class
    return wanted


async def idle(session: ActorSession[Any, Any, Any]) -> None:
    async for _ in session.all_events():
        pass


async def test_an_actor_whose_connection_is_lost_is_told() -> None:
    async def lose(call: ServerCall) -> None:
        await let_in(call)
        raise RpcError(StatusCode.UNAVAILABLE, "it went away")

    async with orchestrator(lose) as channel:
        with pytest.raises(RpcError, match="it went away"):
            await join_trial(channel, "t", idle, actor_name="ann")


async def test_a_heartbeat_is_answered() -> None:
    heard: list[Any] = []

    async def beat(call: ServerCall) -> None:
        await let_in(call)
        for _ in range(2):
            await call.send(ActorRunTrialInput(state=HEARTBEAT))
            while (output := await call.receive()).state != HEARTBEAT:
                pass
            heard.append(output)
        await call.send(ActorRunTrialInput(state=END))

    async with orchestrator(beat) as channel:
        with trio.fail_after(60):
            await join_trial(channel, "t", idle, actor_name="ann")
    assert heard == [ActorRunTrialOutput(state=HEARTBEAT)] * 2


@pytest.mark.parametrize("resumes", [True, False])
async def test_an_actor_comes_back_where_trials_go_on(resumes: bool, autojump_clock: object) -> None:
    """By the name that it was given, whatever it asked for; once more, until the trial is over."""
    wanted: list[str] = []

    async def lose_first(call: ServerCall) -> None:
        if resumes:
            call.set_initial_metadata([(TRIAL_RESUMES, "true")])
        if len(wanted) == 1:  # it is not back yet
            await call.receive()
            wanted.append("")
            raise RpcError(StatusCode.UNAVAILABLE, "not yet")
        wanted.append(await let_in(call))
        if len(wanted) == 1:
            raise RpcError(StatusCode.UNAVAILABLE, "it went away")
        await call.send(ActorRunTrialInput(state=END))

    async with orchestrator(lose_first) as channel:
        joining = join_trial(channel, "t", idle, actor_class="player")
        if resumes:
            await joining
        else:
            with pytest.raises(RpcError, match="it went away"):
                await joining
    assert wanted == (["player", "", "ann"] if resumes else ["player"])
