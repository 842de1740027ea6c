"""Helpers of several tests: an orchestrator with participants that do exactly what a test tells them."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio
from purerpc import Service

from trio_cogment.api import agent_pb2, datalog_pb2, environment_pb2, hooks_pb2
from trio_cogment.api.common_pb2 import (
    Action,
    ActorInitialOutput,
    ActorRunTrialOutput,
    CommunicationState,
    TrialParams,
    TrialState,
)
from trio_cogment.api.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput, ObservationSet
from trio_cogment.api.orchestrator_pb2 import TrialListEntry
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.host import Connect, Host
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import CallOpener, Channel, InProcessChannel, ServerCall, bind, serve_stream
from trio_cogment.sdk import Controller
from trio_cogment.servers.orchestrator import LocalSink, Orchestrator, SampleSink, orchestrator_services

NORMAL = CommunicationState.NORMAL
HEARTBEAT = CommunicationState.HEARTBEAT
LAST = CommunicationState.LAST
LAST_ACK = CommunicationState.LAST_ACK
END = CommunicationState.END

RunTrial = Callable[[ServerCall], Awaitable[None]]


class Script:
    """A participant's service whose `RunTrial` is whatever function it is given."""

    def __init__(self, run: RunTrial) -> None:
        self.RunTrial = run
        self.RunTrialDatalog = run

    def environment(self) -> Service:
        return bind(environment_pb2.DESCRIPTOR.services_by_name["EnvironmentSP"], self)

    def actor(self) -> Service:
        return bind(agent_pb2.DESCRIPTOR.services_by_name["ServiceActorSP"], self)

    def datalog(self) -> Service:
        return bind(datalog_pb2.DESCRIPTOR.services_by_name["DatalogSP"], self)


class HookScript:
    """A hook's service."""

    def __init__(self, on_pre_trial: Callable[[Any, ServerCall], Awaitable[Any]]) -> None:
        self.OnPreTrial = on_pre_trial

    def service(self) -> Service:
        return bind(hooks_pb2.DESCRIPTOR.services_by_name["TrialHooksSP"], self)


class Everything:
    """Local services that find everything in one channel, but for a sink of samples if there is one."""

    def __init__(self, channel: CallOpener, sink: SampleSink | None = None) -> None:
        self.channel = channel
        self.sink = sink

    def find(self, kind: ServiceKind, _properties: Mapping[str, str]) -> CallOpener:
        return LocalSink(self.sink) if self.sink is not None and kind is ServiceKind.DATALOG else self.channel

    def registered(self, _kind: ServiceKind) -> str:
        return "everything"


class Bench:
    """An orchestrator on a table, with its in-process channel and a controller."""

    def __init__(self, orchestrator: Orchestrator, channel: CallOpener) -> None:
        self.orchestrator = orchestrator
        self.channel = channel
        self.controller = Controller(channel)


@asynccontextmanager
async def wire_channel(services: Iterable[Service]) -> AsyncIterator[CallOpener]:
    """Serve over HTTP/2 on memory streams: the real engine on a virtual clock."""
    served = list(services)
    async with trio.open_nursery() as nursery:

        async def connect() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(serve_stream, served, theirs)
            return ours

        async with Channel.over(connect) as channel:
            yield channel
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def bench(
    *services: Service,
    wire: bool = False,
    sink: SampleSink | None = None,
    connect: Connect = trio.open_tcp_stream,
    **options: Any,
) -> AsyncIterator[Bench]:
    """Run an orchestrator whose `cogment://discover` leads to `services`, in process or over HTTP/2."""
    ids = itertools.count()
    host = Host(
        wall_clock=lambda: 1_000_000_000 + round(trio.current_time() * 1e9),
        new_id=lambda: f"trial-{next(ids)}",
        random=lambda _name: random.Random(0),
        connect=connect,
    )
    open_channel = wire_channel if wire else InProcessChannel
    async with open_channel(services) as local:
        orchestrator = Orchestrator(
            host=host,
            local=Everything(local, sink),
            **options,
        )
        own = orchestrator_services(orchestrator)
        async with orchestrator, open_channel(own) as channel:
            yield Bench(orchestrator, channel)


async def until_given_up(watch: AsyncIterator[TrialListEntry]) -> list[tuple[str, int]]:
    """Return the entries of a watch, until it ends for having been read too slowly."""
    seen: list[tuple[str, int]] = []
    try:
        async for entry in watch:
            seen.append((entry.trial_id, entry.state))
    except RpcError as error:
        if error.code is not StatusCode.RESOURCE_EXHAUSTED:
            raise
        return seen
    raise AssertionError("the watch has ended in good order")


def observation_set(actors: int, content: bytes = b"o", tick_id: int = -1) -> EnvRunTrialOutput:
    """Return one observation shown to everybody."""
    return EnvRunTrialOutput(
        state=NORMAL,
        observation_set=ObservationSet(tick_id=tick_id, timestamp=1, observations=[content], actors_map=[0] * actors),
    )


async def start_environment(call: ServerCall) -> int:
    """Answer the initial message; return the number of actors."""
    first = await call.receive()
    await call.send(EnvRunTrialOutput(state=NORMAL, init_output=EnvInitialOutput()))
    return len(first.init_input.actors_in_trial)


def environment_of(
    ticks: int | None = None, seen: list[Any] | None = None, *, seconds_per_tick: float | None = None
) -> RunTrial:
    """Return an environment that goes on for some ticks (indefinitely without) and plays a soft end by the book."""

    async def run(call: ServerCall) -> None:
        actors = await start_environment(call)
        await call.send(observation_set(actors, b"0"))
        ending = False
        async for message in call:
            if seen is not None:
                seen.append(message)
            if message.state == LAST:
                ending = True
            elif message.state == END:
                return
            elif message.HasField("action_set"):
                tick = message.action_set.tick_id + 1
                if seconds_per_tick is not None:
                    await trio.sleep(seconds_per_tick)
                if ticks is not None and tick >= ticks and not ending:
                    ending = True
                    await call.send(EnvRunTrialOutput(state=LAST))
                await call.send(observation_set(actors, b"%d" % tick))
                if ending:
                    await call.send(EnvRunTrialOutput(state=LAST_ACK))

    return run


def actor_that_acts(seen: list[Any] | None = None, *, start: bool = True) -> RunTrial:
    """Return an actor that answers every observation at once and plays a soft end by the book."""

    async def run(call: ServerCall) -> None:
        if start:
            await call.receive()
            await call.send(ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput()))
        ending = False
        async for message in call:
            if seen is not None:
                seen.append(message)
            if message.state == LAST:
                ending = True
            elif message.state == END:
                return
            elif message.HasField("observation"):
                if ending:
                    await call.send(ActorRunTrialOutput(state=LAST_ACK))
                else:
                    tick_id = message.observation.tick_id
                    await call.send(ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=tick_id, content=b"a")))

    return run


def params_of(*names: str, actor_class: str = "player", **options: Any) -> TrialParams:
    """Return parameters with service actors of these names."""
    from trio_cogment.sdk import actor_params, trial_params

    return trial_params([actor_params(name, actor_class) for name in names], **options)


class Rounds(trio.abc.Instrument):
    """Counts the rounds of Trio's scheduler."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, _timeout: float) -> None:
        self.count += 1


@contextmanager
def counted_rounds() -> Iterator[Rounds]:
    """Count the rounds in which other tasks have had a turn."""
    rounds = Rounds()
    trio.lowlevel.add_instrument(rounds)
    try:
        yield rounds
    finally:
        trio.lowlevel.remove_instrument(rounds)


async def wait_ended(orchestrator: Orchestrator, trial_id: str) -> None:
    """Wait until a trial has ended; it may have before."""
    present = [(trial.trial_id, trial.state, trial.info) for trial in orchestrator.trials]
    with orchestrator.watchers.subscribe([TrialState.ENDED], False, present) as watch:
        async for entry in watch:
            if entry.trial_id == trial_id:
                return
