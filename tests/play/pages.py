"""Pages without a browser, and a game that they take part in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

from trio_cogment import actor_params, open_platform, trial_params
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.host import Host
from trio_cogment.platform import Platform
from trio_cogment.play.page import PageSocket
from trio_cogment.sdk import ActorSession, EnvironmentSession
from trio_cogment.sdk.spec import ActorClass, Spec

SPEC = Spec.of(ActorClass("player", observation=StringValue, action=Int64Value))


class Socket:
    """The server's end of a page's WebSocket, and the page's own end.

    Attributes:
        welcome: what the page was greeted with.
        form: the last form that it got.
        state: the last state.
        acted: the last tick that it acted for.
        reads: clear: the page does not read.
    """

    def __init__(self) -> None:
        self.welcome: dict[str, Any] = {}
        self.form: dict[str, Any] = {}
        self.state: dict[str, Any] = {}
        self.acted = -1
        self.reads = trio.Event()
        self.reads.set()
        self._from_page = trio.open_memory_channel[bytes](0)
        self._to_page = trio.open_memory_channel[bytes](0)

    async def send(self, data: bytes) -> None:
        await self.reads.wait()
        await self._to_page[0].send(data)

    async def receive(self) -> bytes:
        return await self._from_page[1].receive()

    async def say(self, **message: Any) -> None:
        await self.say_bytes(json.dumps(message).encode())

    async def say_bytes(self, data: bytes) -> None:
        await self._from_page[0].send(data)

    async def read(self) -> dict[str, Any]:
        """Return the next message to the page; with `blob` if it has bytes."""
        message = read_message(await self._to_page[1].receive())
        self.welcome = message.get("welcome", self.welcome)
        self.form = message.get("form", self.form)
        if message["type"] == "seat":
            self.state = message
        return message

    async def read_until(self, wanted: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Return the next message of which this is true."""
        while True:
            message = await self.read()
            if wanted(message):
                return message


def read_message(data: bytes) -> dict[str, Any]:
    """Return what a page reads of a message."""
    size = int.from_bytes(data[:4], "big")
    message: dict[str, Any] = json.loads(data[4 : 4 + size])
    blobs, at = [], 4 + size
    for blob in message.get("blobs", ()):
        blobs.append(data[at : at + blob["size"]])
        at += blob["size"]
    assert at == len(data)
    return {**message, "blob": blobs}


@asynccontextmanager
async def page(serve: Callable[[PageSocket], Awaitable[None]]) -> AsyncIterator[Socket]:
    """Have a page open for the time of the block."""
    socket = Socket()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, socket)
        yield socket
        nursery.cancel_scope.cancel()


class Counting:
    """An environment that counts ticks, and keeps what the actors have done and said.

    Args:
        ticks: after how many it ends.
    """

    def __init__(self, ticks: int = 5) -> None:
        self.ticks = ticks
        self.actions: list[list[int | None]] = []
        self.messages: list[tuple[str, str]] = []
        self.began = 0

    async def __call__(self, session: EnvironmentSession[Any, Any, Any]) -> None:
        self.began += 1
        tick = 0
        await session.start([("*", StringValue(value="tick 0"))])
        async for event in session.all_events():
            if event.message is not None:
                text = StringValue()
                event.message.payload.Unpack(text)
                self.messages.append((event.message.sender_name, text.value))
            if event.actions is not None:
                self.actions.append([None if each.payload is None else each.payload.value for each in event.actions])
                tick += 1
                send = session.end if tick == self.ticks else session.produce_observations
                await send([("*", StringValue(value=f"tick {tick}"))])


async def seven(session: ActorSession[Any, Any, Any]) -> None:
    """Act, always the same: a bot."""
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(Int64Value(value=7))


async def failing(session: ActorSession[Any, Any, Any]) -> None:
    """Fail when it is asked: a bot."""
    async for event in session.all_events():
        if event.observation is not None:
            raise ValueError("no idea")


async def leaving(session: ActorSession[Any, Any, Any]) -> None:
    """Leave when it is asked: a bot."""
    async for event in session.all_events():
        if event.observation is not None:
            return


def params(*people: str, agents: Sequence[str] = (), optional: bool = False) -> TrialParams:
    """Return the parameters of a trial with these people, and with agents."""
    seats = [
        actor_params(name, "player", endpoint=CLIENT, optional=optional, default_action=Int64Value(value=9), spec=SPEC)
        for name in people
    ]
    others = [actor_params(name, "player", implementation="seven", spec=SPEC) for name in agents]
    return trial_params([*seats, *others], spec=SPEC)


@asynccontextmanager
async def platform_of(environment: Counting, host: Host | None = None) -> AsyncIterator[Platform]:
    """Run a platform with an environment and bots."""
    async with open_platform(SPEC, host=host) as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(seven, "seven", ["player"])
        platform.participants.register_actor(failing, "failing", ["player"])
        platform.participants.register_actor(leaving, "leaving", ["player"])
        yield platform
