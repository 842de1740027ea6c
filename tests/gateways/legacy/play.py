"""A platform with old participants on a simulated network: they vanish, hang and repeat; a neighbour must not notice.

The neighbour is an old client in trials of its own, whose old agent and environment are on quiet hosts. The other old
clients come from hosts that crash and lose connections: they start trials and join them, act, repeat actions after
deadlines, end trials or not, and vanish. Their old agent and old environment crash, hang, and come back without a
memory.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio
from purerpc import Service

from tests.gateways.disturbing import is_loud, terminate_one
from tests.gateways.leftovers import trials_and_tasks, until_nothing_is_left
from tests.gateways.legacy.clients import OldClient
from tests.gateways.legacy.servers import AgentServer, EnvironmentServer, services
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.api.legacy.orchestrator_pb2 import TrialEndRequest
from trio_cogment.base.config import PlatformConfig, RpcConfig
from trio_cogment.base.errors import RpcError, UnavailableError
from trio_cogment.gateways.legacy import LegacyGateway, LegacyProfile
from trio_cogment.gateways.legacy.gateway import OpenedLegacyGateway
from trio_cogment.platform import Platform
from trio_cogment.rpc import CallOpener, serve
from trio_cogment.sdk import ActorSession, EnvironmentSession, Participants, actor_params, trial_params
from trio_cogment.testing import Link, Probe, World, record_states

PORT = 9000
FAULTS = ("reset", "dark", "partition", "crash", "power", "hang", "terminate")
CLIENTS = ("c0", "c1")
#: One that calls within the process: of its calls that it has left it is known what has become of them.
LOCAL = "local"
OLD = ("agents", "worlds")
QUIET = ("quiet-agents", "quiet-worlds")
#: When everybody who behaves badly stops.
CALM_SECONDS = 12.0
HASTY = RpcConfig(
    client_keepalive_seconds=4,
    keepalive_seconds=4,
    keepalive_timeout_seconds=3,
    connect_backoff_max_seconds=2,
    await_server_seconds=3,
)
#: After that nothing may be left: lost connections are found out, and trials without clients have ended.
END_SECONDS = CALM_SECONDS + 60
MAX_INACTIVITY_SECONDS = 15
CALL_TIMEOUT_SECONDS = 5.0
NEIGHBOUR_TRIALS = 3
NEIGHBOUR_TICKS = 4
#: How long the neighbour may wait for an answer.
ANSWER_SECONDS = 2.0


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
        draw = world.stream("scene")
        self.two_clients = draw.random() < 0.4
        self.old_environment = draw.random() < 0.6
        self.old_agent = draw.random() < 0.7
        self.every_tick = draw.random() < 0.3
        self.servers: dict[str, AgentServer | EnvironmentServer] = {}
        self.hanging: set[str] = set()
        self.hit: set[str] = set()
        self.visits = 0
        self.darkened = False
        self.platform: Platform
        self.gateway: OpenedLegacyGateway

    # The platform

    @property
    def _profile(self) -> LegacyProfile:
        return LegacyProfile(
            classes=("plane", "drone"),
            reward_every_tick=self.every_tick,
            call_timeout_seconds=CALL_TIMEOUT_SECONDS,
            end_timeout_seconds=3,
            params=self._params(*OLD, old_agent=self.old_agent, old_environment=self.old_environment),
        )

    def _params(self, agents: str, worlds: str, *, old_agent: bool = True, old_environment: bool = True) -> TrialParams:
        d2: dict[str, Any] = {"endpoint": "cogment://client"} if self.two_clients else {"implementation": "today"}
        if agents != OLD[0]:
            d2 = {"implementation": "today"}
        d1: dict[str, Any] = {"endpoint": f"legacy://{agents}:{PORT}"} if old_agent else {"implementation": "today"}
        params = trial_params(
            [
                actor_params("d1", "drone", **d1),
                actor_params("p", "plane", endpoint="cogment://client"),
                actor_params("d2", "drone", **d2),
            ],
            environment="today",
            max_inactivity_seconds=MAX_INACTIVITY_SECONDS,
        )
        if old_environment:
            params.environment.endpoint = f"legacy://{worlds}:{PORT}"
        return params

    @asynccontextmanager
    async def open(self, platform: Platform) -> AsyncIterator[OpenedLegacyGateway]:
        """See `platform.Extension`: the gateway, which is kept at hand."""
        async with LegacyGateway(self._profile, rpc_config=HASTY).open(platform) as self.gateway:
            yield self.gateway

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the platform on its host, and old servers on theirs."""
        async with trio.open_nursery() as outside:
            for name in (*OLD, *QUIET):
                await outside.start(self._run_server, name)
            here = self.world.host("platform")
            participants = Participants(host=here)
            participants.register_actor(_act, "today")
            participants.register_environment(self._field, "today")
            async with (
                self.world.open_platform(
                    participants, config=PlatformConfig(rpc=HASTY), extensions=[self]
                ) as self.platform,
                trio.open_nursery() as inside,
            ):
                machine = self.network.host("platform")
                await inside.start(partial(serve, self.platform.services, [machine.listen(PORT)], config=HASTY))
                inside.start_soon(record_states, self.platform.controller, self.world.history, "near")
                inside.start_soon(Probe(self.platform.orchestrator, self.world.history).run)
                await trio.sleep(0.1)
                yield
                inside.cancel_scope.cancel()
            self._check_servers()
            outside.cancel_scope.cancel()

    def _new_server(self, name: str) -> list[Service]:
        server: AgentServer | EnvironmentServer
        server = AgentServer() if "agents" in name else EnvironmentServer(ends_at=NEIGHBOUR_TICKS)
        server.before = partial(self._before, name)
        self.servers[name] = server
        return services(server)

    async def _before(self, name: str, method: str, request: Any) -> None:
        if name in self.hanging and method != "End":
            self.world.sometimes(f"hangs: {name}")
            await trio.sleep_forever()
        if method == "Update":
            self._note_actions(name, request.trial_id, list(request.action_set.actions))

    def _note_actions(self, name: str, trial_id: str, actions: list[bytes]) -> None:
        p = actions[0].decode()
        self.world.history.record(name, "updated", trial=trial_id, p=p)

    async def _run_server(self, name: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve on a host; a second after a crash again, without a memory."""
        host = self.network.host(name)
        while True:
            with host.running():
                async with trio.open_nursery() as nursery:
                    served = self._new_server(name)
                    await nursery.start(partial(serve, served, [host.listen(PORT)], config=HASTY))
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    await trio.sleep_forever()
            await trio.sleep(1)
            host.restart()

    async def _field(self, session: EnvironmentSession[Any, Any, Any]) -> None:
        await session.start([("*", b"see 0")])
        async for event in session.all_events():
            if event.actions is None:
                continue
            by_name = {actor.name: each.payload for actor, each in zip(session.actors, event.actions, strict=True)}
            self._note_actions("field", session.trial_id, [by_name["p"] or b""])
            tick_id = event.tick_id + 1
            seen = [("*", b"see %d" % tick_id)]
            if tick_id == NEIGHBOUR_TICKS or event.type.name != "ACTIVE":
                await session.end(seen)
            else:
                await session.produce_observations(seen)

    def _check_servers(self) -> None:
        """Look what trials have left with old servers; one that was cut off cannot have been told."""
        for name, server in self.servers.items():
            if name not in self.hit:
                assert not server.playing, f"{name}: {server.playing} are left"

    # Those who behave well

    async def neighbour(self) -> None:
        """Play trials, each to its end, with old participants."""
        draw = self.world.stream("neighbour")
        async with self.network.host("neighbour").channel("platform", PORT, config=HASTY) as channel:
            for number in range(NEIGHBOUR_TRIALS):
                trial_id = f"quiet-{number}"
                params = self._params(*QUIET)
                await self.platform.controller.start_trial(params, trial_id=trial_id)
                await self._play_well(channel, trial_id, draw)
        self.world.history.record("neighbour", "has noticed nothing")

    async def _play_well(
        self, channel: Any, trial_id: str, draw: random.Random, patience: float = ANSWER_SECONDS
    ) -> None:
        client = OldClient(channel)
        with trio.fail_after(patience):
            reply = await client.join(trial_id, 0)
        assert reply.observation.data.content == b"seen by 0 at 0"
        for tick_id in range(NEIGHBOUR_TICKS):
            await trio.sleep(draw.choice([0.0, 0.1, draw.uniform(0, 1)]))
            with trio.fail_after(ANSWER_SECONDS):
                answer = await client.act(b"%d" % tick_id)
            assert answer.observation.data.content == b"seen by 0 at %d" % (tick_id + 1)
            assert answer.trial_is_over == (tick_id + 1 == NEIGHBOUR_TICKS)
        with trio.fail_after(ANSWER_SECONDS):
            await client.end()

    async def afterwards(self) -> None:
        """Play a trial where the others have played."""
        for name in OLD:
            assert self.network.host(name).up
        params = self._params(*OLD)
        for actor in params.actors:
            if actor.name == "d2":
                actor.endpoint, actor.implementation = "cogment://discover", "today"
        draw = self.world.stream("afterwards")
        async with self.network.host("neighbour").channel("platform", PORT, config=HASTY) as channel:
            if self.darkened:
                # Whoever uses a connection first that has gone dark loses its trial: nobody asks idle servers.
                await self.platform.controller.start_trial(params, trial_id="afterwards-first")
                with suppress(RpcError):
                    await self._play_well(channel, "afterwards-first", draw, 10 * ANSWER_SECONDS)
            await self.platform.controller.start_trial(params, trial_id="afterwards")
            await self._play_well(channel, "afterwards", draw, 3 * ANSWER_SECONDS)

    # Those who behave badly

    async def client(self, name: str) -> None:
        """Come, play in some way, go in some way, and come back."""
        draw = self.world.stream(name)
        host = self.network.host(name)
        while True:
            await trio.sleep(draw.choice([0.0, draw.uniform(0, 2)]))
            if not host.up:
                host.restart()
            with host.running():
                self.visits += 1
                await self._visit(f"{name}.{self.visits}", name, draw)

    async def local_client(self) -> None:
        """Play without a network in between."""
        draw = self.world.stream(LOCAL)
        while True:
            await trio.sleep(draw.uniform(0.1, 2))
            self.visits += 1
            await self._visit(f"{LOCAL}.{self.visits}", LOCAL, draw)

    @asynccontextmanager
    async def _channel(self, name: str) -> AsyncIterator[CallOpener]:
        if name == LOCAL:
            yield self.platform.channel
            return
        async with self.network.host(name).channel("platform", PORT, config=HASTY) as channel:
            yield channel

    async def _visit(self, who: str, name: str, draw: random.Random) -> None:
        note = partial(self.world.history.record, who)
        try:
            async with self._channel(name) as channel:
                client = OldClient(channel, who)
                if not await self._enter(client, note, draw):
                    return
                knows = 0
                for _ in range(draw.randint(1, 10)):
                    patience = draw.choice([0.02, 0.3, 8.0])
                    if draw.random() < 0.1:
                        note("vanished")
                        self.world.sometimes("vanished")
                        return
                    found = await self._ask(client, note, draw, knows, patience)
                    if found is not None:
                        knows = found.observation.tick_id
                        if found.trial_is_over:
                            break
                    await trio.sleep(draw.choice([0.0, 0.05, draw.uniform(0, 1)]))
                if draw.random() < 0.7:
                    await client.call("End", TrialEndRequest(trial_id=client.trial_id), 8.0)
                    self.world.sometimes("ended")
                note("went")
        except (RpcError, UnavailableError) as error:
            self._note_error(note, "visit", error)

    async def _enter(self, client: OldClient, note: Any, draw: random.Random) -> bool:
        """Start a trial, or join one that somebody else has started."""
        theirs = [
            (trial_id, actor_id)
            for trial_id, trial in self.gateway.trials.running.items()
            for actor_id, seat in trial.seats.items()
            if not trial_id.startswith("quiet") and not seat.is_joined and not seat.is_over
        ]
        if theirs and draw.random() < 0.7:
            trial_id, actor_id = draw.choice(theirs)
            note("joins", trial=trial_id, actor=actor_id)
            await client.join(trial_id, actor_id, timeout=draw.choice([0.3, 8.0]))
            self.world.sometimes("joined")
        else:
            note("starts")
            await client.start(b"", timeout=draw.choice([0.05, 8.0, 8.0]))
            self.world.sometimes("started")
        note("plays", trial=client.trial_id, actor=client.actor_id)
        return True

    async def _ask(self, client: OldClient, note: Any, draw: random.Random, knows: int, patience: float) -> Any:
        kind = draw.choice(["feedback", "message", "heartbeat", *["action"] * 12])
        try:
            if kind == "feedback":
                feedback = legacy.Feedback(actor_id=draw.choice([0, 1, 9]), tick_id=-1, value=1, confidence=1)
                with trio.move_on_after(patience):
                    await client.feed_back(feedback)
            elif kind == "message":
                with trio.move_on_after(patience):
                    await client.send(legacy.Message(sender_id=client.actor_id, receiver_id=draw.choice([-1, 1, 9])))
            elif kind == "heartbeat":
                with trio.move_on_after(patience):
                    await client.heartbeat()
            else:
                note("acts", trial=client.trial_id, actor=client.actor_id, knows=knows)
                reply = await client.act(b"%d" % knows, timeout=patience)
                note("answered", tick=reply.observation.tick_id, over=reply.trial_is_over)
                self.world.sometimes("over" if reply.trial_is_over else "answered")
                return reply
        except RpcError as error:
            self._note_error(note, kind, error)
            if error.code.name not in ("DEADLINE_EXCEEDED", "INVALID_ARGUMENT"):
                raise
        return None

    def _note_error(self, note: Any, what: str, error: Exception) -> None:
        code = error.code.name if isinstance(error, RpcError) else "UNAVAILABLE"
        note("refused", asked=what, code=code, text=str(error))
        self.world.sometimes(f"refused: {what}: {code}")

    async def faults(self) -> None:
        """Hit hosts; not those of the platform and of the neighbour."""
        draw = self.world.stream("faults")
        for at in sorted(draw.uniform(0.5, CALM_SECONDS) for _ in range(draw.randint(0, 8))):
            await trio.sleep_until(at)
            what, target = draw.choice(FAULTS), draw.choice([*CLIENTS, *OLD, *OLD])
            seconds = draw.choice([0.2, 2.0, 8.0])
            self.world.history.record("world", "fault", name=what, target=target)
            self.world.sometimes(f"fault: {what} of {target if target in OLD else 'a client'}")
            if what != "terminate":
                self.hit.add(target)
            self.darkened |= target in OLD and what in ("dark", "power", "partition")
            if what == "reset":
                for connection in self.network.connections(target):
                    connection.reset()
            elif what == "dark":
                for connection in self.network.connections(target):
                    connection.go_dark()
            elif what == "terminate":
                await terminate_one(self.platform, draw, is_loud)
            elif what == "hang":
                self.hanging.add(target)
                await trio.sleep(seconds)
                self.hanging.discard(target)
            elif what == "partition":
                self.network.partition([target])
                await trio.sleep(seconds)
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
            if self.disturbed:
                # By then connections that went dark have been found out.
                await trio.sleep_until(CALM_SECONDS + 12)
            await self.afterwards()
            await until_nothing_is_left(self.world, self._left, END_SECONDS)

    async def _disturb(self) -> None:
        with trio.move_on_at(CALM_SECONDS):
            async with trio.open_nursery() as nursery:
                for name in CLIENTS:
                    nursery.start_soon(self.client, name, name=f"client {name}")
                nursery.start_soon(self.local_client, name="local client")
                nursery.start_soon(self.faults, name="faults")
                await trio.sleep_forever()
        self.network.heal()
        self.hanging.clear()

    async def _left(self) -> list[str]:
        """Return what is left of trials and their tasks."""
        return [
            *(f"client's trial {trial_id}" for trial_id in self.gateway.trials.running),
            *await trials_and_tasks(self.platform, "old client", "trial "),
        ]


async def _act(session: ActorSession[Any, Any, Any]) -> None:
    async for event in session.all_events():
        if event.observation is not None and event.type.name == "ACTIVE":
            await session.do_action(b"today")
