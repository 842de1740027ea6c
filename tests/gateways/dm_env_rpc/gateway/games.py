"""A gateway in front of an environment that does what a test tells it, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from trio_cogment.api.common_pb2 import ActorParams, TrialParams
from trio_cogment.base.config import DmEnvRpcConfig, PlatformConfig
from trio_cogment.base.host import Host
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.gateways.dm_env_rpc import Connection, DmEnvRpcError, State, open_connection
from trio_cogment.gateways.dm_env_rpc.gateway.gateway import DmEnvRpcGateway
from trio_cogment.gateways.dm_env_rpc.gateway.profile import Profile
from trio_cogment.platform import Platform, open_platform
from trio_cogment.sdk import EnvironmentSession, Participants, RecvMessage, Reward, actor_params, trial_params
from trio_cogment.spaces import Discrete, Observation, Space, decode_action, encode_observation

CLIENT = "cogment://client"
SEEN = Discrete(1000)
DONE = Discrete(10)
#: What an actor has been told: the state, the number of steps so far, and the reward.
Told = tuple[State, int, float]


@dataclass
class Game:
    """An environment whose actors see how many steps there were, and give a number.

    Attributes:
        length: the step that ends it; 0: it has no end.
        flags: of the final observations, for who has none in `out`.
        out: after how many steps an actor is out, and whether it has terminated then (or was truncated).
        seen: the space of observations.
        opening: called before the first observations.
        turn: called with each step, before the observations go out.
        rewards: by the number of the step, those that go out with its observations.
        content: replaces the bytes of observations, by the number of the step, or by actor and step.
        actions: those that came with each step.
        messages: that came.
        sessions: the trials, in order.
    """

    length: int = 3
    flags: Mapping[str, bool] = field(default_factory=lambda: {"terminated": True})
    out: Mapping[str, tuple[int, bool]] = field(default_factory=dict)
    seen: Space = SEEN
    opening: Callable[[EnvironmentSession], Awaitable[None]] | None = None
    turn: Callable[[EnvironmentSession, int], Awaitable[None]] | None = None
    rewards: Mapping[int, Sequence[Reward]] = field(default_factory=dict)
    content: Mapping[int | tuple[str, int], bytes] = field(default_factory=dict)
    actions: list[list[int | None]] = field(default_factory=list)
    messages: list[RecvMessage] = field(default_factory=list)
    sessions: list[EnvironmentSession] = field(default_factory=list)

    async def __call__(self, session: EnvironmentSession) -> None:
        self.sessions.append(session)
        step = 0
        if self.opening is not None:
            await self.opening(session)
        await session.start(None if self.length < 0 else self._observations(session, 0))
        if self.length < 0:  # it is over at its first observation
            await session.end(self._observations(session, 0, {"terminated": True}))
        async for event in session.all_events():
            if event.message is not None:
                self.messages.append(event.message)
            if event.actions is None:
                continue
            step += 1
            self.actions.append([None if each.payload is None else given(each.payload) for each in event.actions])
            if self.turn is not None:
                await self.turn(session, step)
            rewards = self.rewards.get(step, ())
            if step == self.length:
                await session.end(self._observations(session, step, self.flags), rewards)
            else:
                await session.produce_observations(self._observations(session, step), rewards)

    def _observations(
        self, session: EnvironmentSession, step: int, flags: Mapping[str, bool] | None = None
    ) -> list[tuple[str | int, bytes]]:
        return [(actor.name, self._seen(actor.name, step, flags or {})) for actor in session.actors]

    def _seen(self, name: str, step: int, flags: Mapping[str, bool]) -> bytes:
        for key in ((name, step), step):
            if key in self.content:
                return self.content[key]
        last, terminated = self.out.get(name, (0, False))
        if last and step >= last:
            flags = {"alive": False, "active": False}
            if step == last:
                flags |= {"terminated": terminated, "truncated": not terminated}
        others: dict[str, Any] = dict(flags)
        if not step:
            others |= {"observation_space": self.seen, "action_space": DONE}
        found = encode_observation(Observation(self.seen.check(step), **others))
        return bytes(found.SerializeToString())


def given(action: Any) -> int | None:
    """Return the number in an action; None if it has none."""
    if not (action.HasField("value") or action.HasField("nested")):
        return None
    return int(decode_action(action, DONE))


def seat(name: str, **others: Any) -> ActorParams:
    """Return an actor that a client of the gateway can be."""
    return actor_params(name, PLAYER, endpoint=CLIENT, **others)


def params_of(*actors: str | ActorParams, **others: Any) -> TrialParams:
    """Return the parameters of trials with these actors, clients where there is just a name."""
    return trial_params([seat(each) if isinstance(each, str) else each for each in actors], **others)


@asynccontextmanager
async def playing(
    game: Callable[[EnvironmentSession], Awaitable[None]],
    params: TrialParams | Sequence[str] = ("ann",),
    *,
    config: DmEnvRpcConfig | None = None,
    platform_config: PlatformConfig | None = None,
    participants: Participants | None = None,
    host: Host | None = None,
    **policies: Any,
) -> AsyncIterator[Platform]:
    """Run a platform whose gateway has one template."""
    profile = Profile.of(params if isinstance(params, TrialParams) else params_of(*params), **policies)
    participants = participants or Participants(RL_SPEC)
    participants.register_environment(game)
    gateway = DmEnvRpcGateway(profile, config=config, host=host)
    async with open_platform(participants, config=platform_config, extensions=[gateway]) as platform:
        yield platform


@asynccontextmanager
async def joined(platform: Platform, *names: str, world: str = "w") -> AsyncIterator[list[Connection]]:
    """Open a connection for each name, which joins a world as this actor; the world is created."""
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(open_connection(platform.channel)) for _ in names]
        await connections[0].create_world({"world_name": world})
        for connection, name in zip(connections, names, strict=True):
            await connection.join_world(world, {"actor_name": name})
        yield connections


async def step(connection: Connection, number: int = 0) -> Told:
    """Make a step."""
    found = await connection.step({"action": number})
    return found.state, int(found.observations["observation"]), float(found.observations["reward"])


async def together(*connections: Connection, numbers: Sequence[int] = ()) -> list[Told]:
    """Make a step with each connection, side by side."""
    found: dict[int, Told] = {}

    async def one(index: int) -> None:
        found[index] = await step(connections[index], numbers[index] if numbers else 0)

    async with trio.open_nursery() as nursery:
        for index in range(len(connections)):
            nursery.start_soon(one, index)
    return [found[index] for index in range(len(connections))]


class Stepping:
    """A step that is under way in a task of its own."""

    def __init__(self, connection: Connection, number: int = 0) -> None:
        self._connection, self._number = connection, number
        self.told: Told | None = None
        self.error: DmEnvRpcError | None = None
        self.done = trio.Event()

    async def run(self) -> None:
        try:
            self.told = await step(self._connection, self._number)
        except DmEnvRpcError as error:
            self.error = error
        self.done.set()

    async def wait(self) -> Told:
        await self.done.wait()
        assert self.told is not None
        return self.told


async def begun(nursery: trio.Nursery, connection: Connection, number: int = 0) -> Stepping:
    """Begin a step, and let everything happen that can."""
    stepping = Stepping(connection, number)
    nursery.start_soon(stepping.run)
    await wait_all_tasks_blocked()
    return stepping
