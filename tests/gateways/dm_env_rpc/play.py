"""A gateway on a simulated network: clients that behave badly, faults, and a neighbour who must not notice.

The neighbour plays two parts in a world of its own, in which nobody else has a share but the platform. The others come
from hosts that crash and lose connections; they create and destroy worlds of a few names, so that they meet in them,
step, reset, leave, and vanish at any time. Behind the gateway is the game itself or, in some runs, a bridge to a server
of it on another host; the second part may be a service actor's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import trio
from purerpc import Service

from tests.gateways.disturbing import terminate_one
from tests.gateways.dm_env_rpc.duels import BOTH, DuelHere, duel
from tests.gateways.dm_env_rpc.servers import Server
from tests.gateways.leftovers import trials_and_tasks, until_nothing_is_left
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.api.dm_env_rpc_bridge_pb2 import BridgeConfig
from trio_cogment.base.config import DmEnvRpcConfig, PlatformConfig, RpcConfig
from trio_cogment.base.errors import UnavailableError
from trio_cogment.environments.serving import environment
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.gateways.dm_env_rpc import (
    DM_ENV_RPC_SPEC,
    Connection,
    DmEnvRpcError,
    Reply,
    Step,
    dm_env_rpc_environment,
)
from trio_cogment.gateways.dm_env_rpc import open_connection as connect
from trio_cogment.gateways.dm_env_rpc.gateway.gateway import DmEnvRpcGateway, OpenedGateway
from trio_cogment.gateways.dm_env_rpc.gateway.profile import Profile
from trio_cogment.gateways.dm_env_rpc.gateway.templates import WorldTemplate
from trio_cogment.gateways.dm_env_rpc.gateway.worlds import World as GatewayWorld
from trio_cogment.platform import OpenedExtension, Platform
from trio_cogment.rpc import bind, serve
from trio_cogment.sdk import ActorSession, Participants, actor_params, trial_params
from trio_cogment.spaces import decode_observation, encode_action
from trio_cogment.spaces.values import fill_fields
from trio_cogment.testing import Link, Probe, World, record_states

PORT = 9000
FAULTS = ("reset", "dark", "partition", "crash", "power", "terminate")
CLIENTS = ("c0", "c1", "c2")
NAMES = ("yard", "field")
#: When everybody who behaves badly stops.
CALM_SECONDS = 12.0
#: Connections that went dark have to be found out by their owners before they can do anything again.
HASTY = RpcConfig(
    client_keepalive_seconds=4, keepalive_seconds=4, keepalive_timeout_seconds=3, connect_backoff_max_seconds=2
)
GATEWAY = DmEnvRpcConfig(leave_seconds=2)
MOST_IDLE_SECONDS = 6.0
#: After that nothing may be left: connections are found to be lost, the trial ends, and the world has been idle.
END_SECONDS = CALM_SECONDS + 60
NEIGHBOUR_SEQUENCES = 4
#: How long the neighbour may wait for the answer to a step.
ANSWER_SECONDS = 2.0
#: After that the platform has found out which of its connections are dark.
NOTICED_SECONDS = 12.0
LENGTH = 3

Act = Callable[[Connection], Awaitable[Any]]
#: The state, what was seen, and the reward.
Seen = tuple[str, list[int], float]
Told = dict[str, list[Seen]]


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
        self.bridged = draw.random() < 0.3
        self.mixed = draw.random() < 0.3
        self.optional = draw.random() < 0.5
        self.servers = {"games": Server(), "quiet-games": Server()} if self.bridged else {}
        self.spec = DM_ENV_RPC_SPEC if self.bridged else RL_SPEC
        self.platform: Platform
        self.gateway: OpenedGateway
        self.connections: Counter[str] = Counter()
        self.games_hit = False

    # The platform

    def open(self, platform: Platform) -> AbstractAsyncContextManager[OpenedExtension]:
        """See `platform.Extension`: the gateway, which is kept at hand."""
        return self._opened(platform)

    @asynccontextmanager
    async def _opened(self, platform: Platform) -> AsyncIterator[OpenedExtension]:
        profile = Profile(
            templates={
                "default": WorldTemplate(params=self._params("games", mixed=self.mixed, optional=self.optional)),
                "quiet": WorldTemplate(params=self._params("quiet-games")),
            },
            spec=self.spec,
        )
        gateway = DmEnvRpcGateway(profile, config=GATEWAY)
        async with gateway.opened(platform.channel, host=self.world.host("platform"), spec=self.spec) as self.gateway:
            yield self.gateway

    def _params(self, games: str, *, mixed: bool = False, optional: bool = False) -> TrialParams:
        waits: dict[str, Any] = {"response_timeout_seconds": 5.0, "initial_connection_timeout_seconds": 5.0}
        ann = actor_params("ann", PLAYER, endpoint="cogment://client", optional=optional, spec=self.spec)
        bob = actor_params("bob", PLAYER, endpoint="cogment://client", optional=optional, spec=self.spec)
        if mixed:
            bob = actor_params(
                "bob", PLAYER, endpoint=f"grpc://actors:{PORT}", optional=optional, spec=self.spec, **waits
            )
        config = None
        if self.bridged:
            config = BridgeConfig(server=f"grpc://{games}:{PORT}")
            fill_fields(config.create_settings, {"game": "duel", "options.length": LENGTH})
            for slot, name in enumerate(BOTH):
                fill_fields(config.actor_join_settings[name], {"slot": slot})
        return trial_params([ann, bob], environment_config=config, spec=self.spec)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the platform on its host, and those that it calls on theirs."""
        async with trio.open_nursery() as outside:
            for name, server in self.servers.items():
                service = bind(pb.DESCRIPTOR.services_by_name["Environment"], server)
                await outside.start(self._run_host, name, [service])
            if self.mixed:
                actors = Participants(self.spec, host=self.world.host("actors"))
                actors.register_actor(self._service_actor, "friend")
                await outside.start(self._run_host, "actors", actors.services())
            async with self._platform(), trio.open_nursery() as inside:
                machine = self.network.host("platform")
                await inside.start(partial(serve, self.platform.services, [machine.listen(PORT)], config=HASTY))
                inside.start_soon(record_states, self.platform.controller, self.world.history, "near")
                inside.start_soon(Probe(self.platform.orchestrator, self.world.history).run)
                inside.start_soon(self._watch_worlds)
                await trio.sleep(0.1)
                yield
                inside.cancel_scope.cancel()
            outside.cancel_scope.cancel()

    @asynccontextmanager
    async def _platform(self) -> AsyncIterator[None]:
        here = self.world.host("platform")
        participants = Participants(self.spec, host=here)
        if self.bridged:
            found: Any = dm_env_rpc_environment(
                config=HASTY, host=here, connect_timeout_seconds=5, step_timeout_seconds=5, idle_seconds=1000
            )
        else:
            found = environment(lambda: DuelHere(LENGTH))
        participants.register_environment(found)
        async with self.world.open_platform(
            participants, config=PlatformConfig(rpc=HASTY), extensions=[self]
        ) as self.platform:
            yield
            await found.aclose()
            await trio.sleep(1)
            self.check_servers()

    async def _run_host(
        self, name: str, services: list[Service], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve on a host; a second after a crash, again."""
        host = self.network.host(name)
        while True:
            with host.running():
                async with trio.open_nursery() as nursery:
                    await nursery.start(partial(serve, services, [host.listen(PORT)], config=HASTY))
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    await trio.sleep_forever()
            await trio.sleep(1)
            host.restart()

    async def _service_actor(self, session: ActorSession[Any, Any, Any]) -> None:
        async for event in session.all_events():
            if event.observation is not None and event.type.name != "ENDING":
                decode_observation(event.observation.payload)
                await session.do_action(encode_action({"number": np.int32(1)}))

    # Those who behave well

    async def neighbour(self) -> None:
        """Play sequences in a world of its own, one part beside the other."""
        draw = self.world.stream("neighbour")
        pauses = [draw.choice([0.0, 0.1, draw.uniform(0, 1.5)]) for _ in range(40)]
        told = await self._play_well({"template": "quiet"}, BOTH, pauses, NEIGHBOUR_SEQUENCES, ANSWER_SECONDS)
        for name, expected in transcript(NEIGHBOUR_SEQUENCES).items():
            assert told[name] == expected, f"{name} of the neighbour was told {told[name]}, not {expected}"
        self.world.history.record("neighbour", "has noticed nothing")

    async def afterwards(self) -> None:
        """Play one sequence where the others have played."""
        names = BOTH[:1] if self.mixed else BOTH
        # With such a name it is the same environment object, or world of the server behind the bridge.
        told = await self._play_well({"world_name": NAMES[0]}, names, [0.1], 1, 3 * ANSWER_SECONDS)
        friend = (lambda _: 1) if self.mixed else None
        expected = transcript(1, friend)
        assert told == {name: expected[name] for name in names}, f"afterwards: {told}, not {expected}"

    async def _play_well(
        self, settings: dict[str, str], names: Sequence[str], pauses: list[float], sequences: int, patience: float
    ) -> Told:
        """Create a world, play parts in it side by side, and destroy it; return what each of them was told."""
        told: Told = {name: [] for name in names}
        async with AsyncExitStack() as stack:
            machine = self.network.host("neighbour")
            channel = await stack.enter_async_context(machine.channel("platform", PORT))
            connections = [await stack.enter_async_context(connect(channel)) for _ in names]
            world = await connections[0].create_world(settings)
            async with trio.open_nursery() as nursery:
                for name, connection in zip(names, connections, strict=True):
                    await connection.join_world(world, {"actor_name": name})
                    nursery.start_soon(self._play_part, told[name], name, connection, pauses, sequences, patience)
            for connection in connections:
                await connection.leave_world()
            await connections[0].destroy_world(world)
        return told

    async def _play_part(
        self, told: list[Seen], name: str, connection: Connection, pauses: list[float], sequences: int, patience: float
    ) -> None:
        while sequences:
            # All pause for as long, so that none waits for the others.
            await trio.sleep(pauses[len(told) % len(pauses)])
            with trio.fail_after(patience):
                step = await connection.step({"number": number(name, len(told))})
            values = step.observations
            told.append((step.state.name, values["last"].tolist(), float(values["reward"])))
            sequences -= step.last

    # Those who behave badly

    async def client(self, name: str) -> None:
        """Connect, do this and that, go in some way, and come back."""
        draw = self.world.stream(name)
        host = self.network.host(name)
        while True:
            await trio.sleep(draw.choice([0.0, draw.uniform(0, 2)]))
            if not host.up:
                host.restart()
            with host.running():
                await self._visit(name, draw)

    async def _visit(self, name: str, draw: random.Random) -> None:
        self.connections[name] += 1
        who = f"{name}.{self.connections[name]}"
        note = partial(self.world.history.record, who)
        try:
            async with (
                self.network.host(name).channel("platform", PORT, config=HASTY) as channel,
                connect(channel, name="gateway") as connection,
            ):
                for _ in range(draw.randint(2, 25)):
                    what, act, given = self._choose(draw, connection)
                    note("asks", request=what, **given)
                    if draw.random() < 0.06:
                        # It vanishes in the middle of a request, or while it waits for the answer.
                        with trio.move_on_after(draw.choice([0.0, 0.01, 0.05, 0.3])):
                            await self._ask(who, what, act, connection)
                        note("vanished", during=what)
                        self.world.sometimes(f"vanished: {what}")
                        return
                    with trio.move_on_after(draw.choice([1.0, 8.0])) as patience:
                        await self._ask(who, what, act, connection)
                    if patience.cancelled_caught:
                        note("lost patience", during=what)
                        self.world.sometimes("lost patience")
                        return
                    await trio.sleep(draw.choice([0.0, 0.0, 0.05, draw.uniform(0, 1)]))
                note("went", state=connection.state.name)
        except UnavailableError as error:
            # Its connection is lost, or it cannot connect.
            note("lost", error=str(error))
            self.world.sometimes("connection lost")

    async def _ask(self, who: str, what: str, act: Act, connection: Connection) -> None:
        if what == "burst":
            for reply in await act(connection):
                await self._ask(who, "step", partial(_reply, reply), connection)
            return
        history = self.world.history
        try:
            found = await act(connection)
        except DmEnvRpcError as error:
            history.record(who, "refused", request=what, code=error.code.name, text=error.message)
            self.world.sometimes(f"refused: {what}: {error.code.name}")
            return
        state = found.state.name if what == "step" else ""
        more = {"saw": found.observations["last"].tolist()} if state else {}
        history.record(who, "answered", request=what, state=state, knows=state or connection.state.name, **more)
        self.world.sometimes(f"answered: {what} {state}".strip())

    def _choose(self, draw: random.Random, connection: Connection) -> tuple[str, Act, dict[str, Any]]:
        """Return what to do, how, and with what; steps most of the time, where they are possible."""
        name, settings = draw.choice(NAMES), self._settings(draw)
        given = {"number": draw.choice([0, 3, 9, 9, 10])}  # one of them is refused, where actions are looked at
        part = {"actor_name": draw.choice(BOTH)} if draw.random() < 0.7 else {}
        acts: dict[str, tuple[int, Act]] = {
            "create_world": (2, lambda each: each.create_world(settings)),
            "reset_world": (1, lambda each: each.reset_world(name)),
            "destroy_world": (1, lambda each: each.destroy_world(name)),
            "leave_world": (1, lambda each: each.leave_world()),
        }
        if connection.world is None:
            acts["join_world"] = (8, lambda each: each.join_world(name, part))
        else:
            acts["step"] = (30, lambda each: each.step(given))
            acts["burst"] = (3, partial(_burst, given))
            acts["reset"] = (3, lambda each: each.reset())
            acts["read_property"] = (1, lambda each: each.read_property("trial.id"))
        (what,) = draw.choices(list(acts), [weight for weight, _ in acts.values()])
        told: dict[str, dict[str, Any]] = {"step": given, "burst": given, "join_world": part}
        return what, acts[what][1], told.get(what, {})

    def _settings(self, draw: random.Random) -> dict[str, Any]:
        found: dict[str, Any] = {
            "on_leave": draw.choice(["end", "autopilot", "vacate"]),
            "reset": draw.choice(["wait", "world"]),
            "destroy": draw.choice(["refuse", "force", "force"]),
            "start_when": draw.choice(["all", "first", 1]),
            "step_timeout_seconds": draw.choice([0.0, 0.5, 4.0]),
            "reset_world_timeout_seconds": draw.choice([1.0, 5.0]),
            "world_idle_seconds": draw.choice([0.5, MOST_IDLE_SECONDS]),
            "max_steps": draw.choice([0, 0, 2]),
        }
        if draw.random() < 0.8:
            found["world_name"] = draw.choice(NAMES)
        return found

    async def faults(self) -> None:
        """Hit hosts; not those of the platform and of the neighbour."""
        draw = self.world.stream("faults")
        hosts = [*CLIENTS, *CLIENTS, *(["games"] * 2 if self.bridged else []), *(["actors"] * 2 if self.mixed else [])]
        for at in sorted(draw.uniform(0.5, CALM_SECONDS) for _ in range(draw.randint(0, 8))):
            await trio.sleep_until(at)
            what, target = draw.choice(FAULTS), draw.choice(hosts)
            if target == "actors" and what in ("dark", "power"):
                continue  # who calls it afterwards finds out first, and loses the actor of that trial
            seconds = draw.choice([0.2, 2.0, 8.0])
            self.world.history.record("world", "fault", name=what, target=target)
            self.games_hit |= target == "games" and what != "terminate"
            hit = self.network.connections(target)
            if hit and what != "terminate":
                self.world.sometimes(f"fault: {what} of {target if target not in CLIENTS else 'a client'}")
            if what == "reset":
                for connection in hit:
                    connection.reset()
            elif what == "dark":
                for connection in hit:
                    connection.go_dark()
            elif what == "terminate":
                await self._terminate(draw)
            elif what == "partition":
                self.network.partition([target])
                await trio.sleep(seconds)
                self.network.heal([target])
            else:
                self.network.host(target).crash(power=what == "power")

    async def _watch_worlds(self) -> None:
        """See that nothing is played in a world that is gone, and nobody waits in one, once it has had its time."""
        gone: dict[GatewayWorld, float] = {}
        known: dict[GatewayWorld, None] = {}
        while True:
            now = trio.current_time()
            there = set(self.gateway.worlds.values())
            for world in known:
                if world not in there and now - gone.setdefault(world, now) > GATEWAY.leave_seconds + 1:
                    assert world.sequence is None, f"{world} is gone, and its trial goes on"
                    waiting = [name for name, player in world.players.items() if player.awaits is not None]
                    assert not waiting, f"{world} is gone, and {', '.join(waiting)} waits in it"
            known = {world: None for world in known if now - gone.get(world, now) <= GATEWAY.leave_seconds + 1}
            known.update(dict.fromkeys(self.gateway.worlds.values()))
            await trio.sleep(0.25)

    async def _terminate(self, draw: random.Random) -> None:
        """End a trial of theirs from outside."""
        if await terminate_one(self.platform, draw, lambda trial_id: trial_id.partition(".")[0] in NAMES):
            self.world.sometimes("a trial terminated")

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
                await trio.sleep_until(CALM_SECONDS + NOTICED_SECONDS)
            await self.afterwards()
            await until_nothing_is_left(self.world, self._left, END_SECONDS)

    async def _disturb(self) -> None:
        with trio.move_on_at(CALM_SECONDS):
            async with trio.open_nursery() as nursery:
                for name in CLIENTS:
                    nursery.start_soon(self.client, name, name=f"client {name}")
                nursery.start_soon(self.faults, name="faults")
                await trio.sleep_forever()
        self.network.heal()

    async def _left(self) -> list[str]:
        """Return what is left of worlds, trials, their tasks and connections."""
        return [
            *(f"world {name}" for name in self.gateway.worlds),
            *([f"{self.gateway.connections} connections"] if self.gateway.connections else []),
            *await trials_and_tasks(self.platform, "world ", "trial ", "start of trial ", "end of trial "),
        ]

    def check_servers(self) -> None:
        """Look what the bridge has left behind; of a server that was cut off it cannot know."""
        for name, server in self.servers.items():
            if name != "games" or not self.games_hit:
                assert not server.open, f"{name}: {server.open} connections are left"
                assert not server.worlds, f"{name}: worlds are left: {', '.join(server.worlds)}"


async def _reply(reply: Reply[Step], _: Connection) -> Step:
    return await reply


async def _burst(numbers: dict[str, int], connection: Connection) -> list[Reply[Step]]:
    """Make steps without waiting for the answers in between."""
    return [await connection.begin_step(numbers) for _ in range(3)]


def number(name: str, count: int) -> int:
    """Return what a part of the neighbour gives."""
    return (7 * count + 2 * len(name) + ord(name[0])) % 10


def transcript(sequences: int, friend: Callable[[int], int] | None = None) -> Told:
    """Return what those who behave well have to be told, by the game itself; `friend` may give the second numbers."""
    told: Told = {name: [] for name in BOTH}
    game = duel(LENGTH)
    for _ in range(sequences):
        states: list[Any] = [pb.RUNNING] * 2
        seen = game.begin()
        while True:
            for name, state, own in zip(BOTH, states, seen, strict=True):
                told[name].append((pb.EnvironmentStateType.Name(state), own["last"].tolist(), float(own["reward"])))
            if pb.RUNNING not in states:
                break
            count = len(told["ann"])
            numbers = [number("ann", count), number("bob", count) if friend is None else friend(count)]
            states, seen = game.advance([{"number": each} for each in numbers])
    return told
