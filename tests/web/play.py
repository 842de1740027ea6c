"""A platform whose participants are in browsers, on a simulated network: they vanish, hang, and send rubbish.

A neighbour plays by native gRPC on the same port, and must notice nothing. The others come from hosts that crash and
lose connections. They start trials by gRPC-Web, join them over WebSockets, as one or as two, act or do not, watch
trials and stop to read, and leave in the middle; some send something that is not HTTP, or stop within a head, a body or
a frame.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

import h11
import trio
import wsproto.utilities

from tests.gateways.disturbing import is_loud, terminate_one
from tests.gateways.leftovers import trials_and_tasks, until_nothing_is_left
from tests.web.clients import Forward, channel_over, over_http, over_websocket
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.base.config import PlatformConfig, RpcConfig, WebConfig
from trio_cogment.base.errors import RpcError, StatusCode, UnavailableError
from trio_cogment.platform import Platform
from trio_cogment.rpc import CallOpener, ServerCall, serve
from trio_cogment.rpc.relay import Accepted, Served, WebRules
from trio_cogment.sdk import (
    ActorSession,
    Controller,
    EnvironmentSession,
    EventType,
    Participants,
    actor_params,
    join_trial,
    trial_params,
)
from trio_cogment.testing import Link, Probe, World, record_states
from trio_cogment.web import WebSide

PORT = 9000
FAULTS = ("reset", "dark", "partition", "crash", "power", "terminate")
BROWSERS = ("b0", "b1", "b2")
#: When everybody who behaves badly stops.
CALM_SECONDS = 12.0
HASTY = RpcConfig(keepalive_seconds=4, keepalive_timeout_seconds=3, client_keepalive_seconds=4)
HASTY_WEB = WebConfig(
    head_timeout_seconds=3,
    body_timeout_seconds=3,
    idle_timeout_seconds=3,
    write_stall_timeout_seconds=5,
    ping_seconds=4,
    ping_timeout_seconds=3,
)
#: After that nothing may be left: lost connections are found out, and trials without their actors have ended.
END_SECONDS = CALM_SECONDS + 60
NEIGHBOUR_TRIALS = 3
NEIGHBOUR_TICKS = 6
#: How long the neighbour may wait for an observation.
ANSWER_SECONDS = 2.0
RUBBISH = (
    b"GARBAGE\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: lo",
    b"GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"POST /cogmentAPI.TrialLifecycleSP/Version HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/grpc-web\r\ncontent-length: 7\r\n\r\n\0\0\0",
    b"POST /cogmentAPI.TrialLifecycleSP/Version HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/grpc-web\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"GET /cogmentAPI.ClientActorSP/RunTrial HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-protocol: grpc-websockets\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x82\x85abcd\x00\x01",
)


class Play:
    """One run.

    Args:
        world: of the simulation.
        disturbed: there is somebody besides the neighbour.
    """

    def __init__(self, world: World, *, disturbed: bool = True) -> None:
        self.world = world
        self.disturbed = disturbed
        self.network = world.network
        self.network.set_default_link(Link(fragments=0.1, loss=0.01))
        self.side = Counted(WebSide(config=HASTY_WEB))
        self.visits = 0
        self.platform: Platform

    # The platform

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the platform on its host."""
        participants = Participants(host=self.world.host("platform"))
        participants.register_environment(_field, "field")
        async with (
            self.world.open_platform(participants, config=PlatformConfig(rpc=HASTY)) as self.platform,
            trio.open_nursery() as inside,
        ):
            listener = self.network.host("platform").listen(PORT)
            await inside.start(partial(serve, self.platform.services, [listener], config=HASTY, web=self.side))
            inside.start_soon(record_states, self.platform.controller, self.world.history, "near")
            inside.start_soon(Probe(self.platform.orchestrator, self.world.history).run)
            await trio.sleep(0.1)
            yield
            inside.cancel_scope.cancel()

    # Who behaves well

    async def neighbour(self) -> None:
        """Play trials by native gRPC, each to its end and each step in time."""
        async with self.network.host("neighbour").channel("platform", PORT, config=HASTY) as channel:
            controller = Controller(channel)
            for number in range(NEIGHBOUR_TRIALS):
                trial_id = f"quiet-{number}"
                assert await controller.start_trial(_params("ann"), trial_id=trial_id) == trial_id
                ticks: list[int] = []
                with trio.fail_after(ANSWER_SECONDS * (NEIGHBOUR_TICKS + 3)):
                    await join_trial(channel, trial_id, partial(self._play_well, ticks), actor_name="ann")
                assert ticks == list(range(NEIGHBOUR_TICKS + 1)), ticks
        self.world.history.record("neighbour", "has noticed nothing")

    async def _play_well(self, ticks: list[int], session: ActorSession) -> None:
        draw = self.world.stream("neighbour")
        since = trio.current_time()
        async for event in session.all_events():
            if event.observation is None:
                continue
            assert trio.current_time() - since < ANSWER_SECONDS, f"tick {event.tick_id} took too long"
            ticks.append(event.tick_id)
            if event.type is EventType.ACTIVE:
                await trio.sleep(draw.choice([0.0, 0.1, draw.uniform(0, 0.8)]))
                await session.do_action(b"act")
                since = trio.current_time()

    # Who behaves badly

    async def browser(self, name: str) -> None:
        """Come, do something, go in some way, and come back."""
        draw = self.world.stream(name)
        host = self.network.host(name)
        while True:
            await trio.sleep(draw.choice([0.0, draw.uniform(0, 2)]))
            if not host.up:
                host.restart()
            with host.running():
                self.visits += 1
                what = draw.choice([self._play, self._play, self._play, self._watch, self._send_rubbish])
                with trio.move_on_after(draw.choice([0.3, 4.0, 20.0])) as patience:
                    with suppress(OSError, trio.BrokenResourceError):
                        await what(name, f"{name}.{self.visits}", draw)
                if patience.cancelled_caught:
                    self.world.sometimes("closes the page")

    @asynccontextmanager
    async def _channel(self, name: str, forward: Forward) -> AsyncIterator[CallOpener]:
        host = self.network.host(name)

        async def connect() -> trio.abc.Stream:
            return await host.connect("platform", PORT)

        async def told(connect: Any, path: str, call: ServerCall) -> None:
            with _as_status():
                await forward(connect, path, call)

        async with channel_over(connect, self.platform.services, told) as channel:
            yield channel

    async def _play(self, name: str, who: str, draw: random.Random) -> None:
        text = draw.random() < 0.5
        names = ["ann", "bob"] if draw.random() < 0.3 else ["ann"]
        note = partial(self.world.history.record, who)
        async with self._channel(name, partial(over_http, text=text)) as unary:
            try:
                await Controller(unary).start_trial(_params(*names), trial_id=who)
            except (RpcError, UnavailableError) as error:
                self._note_error(note, "start", error)
                return
        self.world.sometimes("starts a trial")
        async with trio.open_nursery() as nursery:
            for actor in names:
                nursery.start_soon(self._join, name, who, actor, draw)

    async def _join(self, name: str, trial_id: str, actor: str, draw: random.Random) -> None:
        note = partial(self.world.history.record, f"{trial_id}.{actor}")
        steps = draw.randint(0, 12)
        pauses = [draw.choice([0.0, 0.05, draw.uniform(0, 1)]) for _ in range(steps + 1)]

        async def play(session: ActorSession) -> None:
            expected = 0
            async for event in session.all_events():
                if event.observation is None:
                    continue
                assert event.tick_id == expected, f"{trial_id}: tick {event.tick_id}, not {expected}"
                expected += 1
                if event.tick_id >= steps:
                    note("leaves")
                    self.world.sometimes("leaves a trial")
                    return
                await trio.sleep(pauses[event.tick_id])
                if event.type is EventType.ACTIVE:
                    await session.do_action(b"act")
            self.world.sometimes("hears the end" if session.details is None else "hears of a hard end")

        async with self._channel(name, over_websocket) as channel:
            try:
                await join_trial(channel, trial_id, play, actor_name=actor)
            except (RpcError, UnavailableError) as error:
                self._note_error(note, "join", error)

    async def _watch(self, name: str, who: str, draw: random.Random) -> None:
        forward: Forward = over_websocket if draw.random() < 0.5 else over_http
        note = partial(self.world.history.record, who)
        async with self._channel(name, forward) as channel:
            try:
                async with Controller(channel).watch_trials() as watch:
                    async for entry in watch:
                        assert TrialState.INITIALIZING <= entry.state <= TrialState.ENDED
                        self.world.sometimes("watches")
                        if draw.random() < 0.2:
                            await trio.sleep(draw.uniform(0, 5))
            except (RpcError, UnavailableError) as error:
                self._note_error(note, "watch", error)

    async def _send_rubbish(self, name: str, who: str, draw: random.Random) -> None:
        data = draw.choice(RUBBISH)
        self.world.history.record(who, "sends rubbish")
        stream = await self.network.host(name).connect("platform", PORT)
        async with stream:
            await stream.send_all(data[: draw.choice([1, len(data) // 2, len(data)])])
            if draw.random() < 0.3:
                return  # and never reads
            while await stream.receive_some():
                pass
            self.world.sometimes("is refused")

    def _note_error(self, note: Any, what: str, error: Exception) -> None:
        code = error.code if isinstance(error, RpcError) else StatusCode.UNAVAILABLE
        # Only the server itself would say this, or the client here when no status came.
        assert code is not StatusCode.INTERNAL, f"{what}: {error}"
        note("refused", asked=what, code=code.name, text=str(error))
        self.world.sometimes(f"refused: {what}: {code.name}")

    async def faults(self) -> None:
        """Hit the hosts of browsers, and end trials."""
        draw = self.world.stream("faults")
        for at in sorted(draw.uniform(0.5, CALM_SECONDS) for _ in range(draw.randint(0, 12))):
            await trio.sleep_until(at)
            connected = [name for name in BROWSERS if self.network.connections(name)]
            what, target = draw.choice(FAULTS), draw.choice(connected or BROWSERS)
            self.world.history.record("world", "fault", name=what, target=target)
            self.world.sometimes(f"fault: {what}")
            connections = self.network.connections(target)
            if what == "reset":
                for connection in connections:
                    connection.reset()
            elif what == "dark":
                for connection in connections:
                    connection.go_dark()
            elif what == "terminate":
                await terminate_one(self.platform, draw, is_loud)
            elif what == "partition":
                self.network.partition([target])
                await trio.sleep(draw.choice([0.2, 2.0, 8.0]))
                self.network.heal([target])
            else:
                self.network.host(target).crash(power=what == "power")

    # The end

    async def run(self) -> None:
        """Play all of it, and look what is left."""
        async with self.running():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.neighbour, name="neighbour")
                if self.disturbed:
                    nursery.start_soon(self._disturb)
            await until_nothing_is_left(self.world, self._left, END_SECONDS)

    async def _disturb(self) -> None:
        with trio.move_on_at(CALM_SECONDS):
            async with trio.open_nursery() as nursery:
                for name in BROWSERS:
                    nursery.start_soon(self.browser, name, name=f"browser {name}")
                nursery.start_soon(self.faults, name="faults")
                await trio.sleep_forever()
        self.network.heal()

    async def _left(self) -> list[str]:
        """Return what is left of trials, their tasks, and connections of browsers."""
        return [
            *([f"{self.side.open} connections of browsers"] if self.side.open else []),
            *await trials_and_tasks(self.platform, "trial "),
        ]


class Counted:
    """A web side whose connections are counted: a `ServerSide`.

    Attributes:
        open: those that have not ended.
    """

    def __init__(self, side: WebSide) -> None:
        self.open = 0
        self._side = side

    def connection(self, accepted: Accepted) -> Served:
        """Return a connection to be run."""
        self.open += 1
        return _CountedConnection(self, self._side.connection(accepted))

    def grpc_web(self, *, secure: bool) -> WebRules | None:
        """Return what judges requests of gRPC-Web over HTTP/2."""
        return self._side.grpc_web(secure=secure)


class _CountedConnection:
    def __init__(self, side: Counted, served: Served) -> None:
        self._side = side
        self.drain = served.drain
        self.end_calls_of_others = served.end_calls_of_others
        self._run = served.run

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            await self._run(task_status)
        finally:
            self._side.open -= 1


#: What a client notices when the network or the server has ended a connection.
_LOST = (
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    h11.RemoteProtocolError,
    wsproto.utilities.RemoteProtocolError,
)


@contextmanager
def _as_status() -> Iterator[None]:
    """Say it with a status, as a client of a browser does."""
    lost = False
    try:
        yield
    except* _LOST:
        lost = True
    if lost:
        raise RpcError(StatusCode.UNAVAILABLE, "the connection was lost")


def _params(*names: str) -> TrialParams:
    actors = [actor_params(name, "player", endpoint="cogment://client") for name in names]
    for actor in actors:
        actor.initial_connection_timeout = 10
    return trial_params(actors, environment="field", max_inactivity_seconds=15)


async def _field(session: EnvironmentSession) -> None:
    await session.start([("*", b"see 0")])
    async for event in session.all_events():
        if event.actions is None:
            continue
        seen = [("*", b"see %d" % (event.tick_id + 1))]
        if event.tick_id + 1 >= NEIGHBOUR_TICKS or event.type is not EventType.ACTIVE:
            await session.end(seen)
        else:
            await session.produce_observations(seen)
