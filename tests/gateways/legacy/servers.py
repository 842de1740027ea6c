"""Old servers of agents and environments, on this package's own gRPC: they note what they are asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from trio_cogment.api.legacy import agent_pb2, environment_pb2
from trio_cogment.api.legacy.common_pb2 import Feedback, Message, VersionInfo
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import NotFoundError
from trio_cogment.gateways.legacy.profile import LegacyProfile
from trio_cogment.rpc import InProcessChannel, ServerCall, bind, open_listeners, serve

PROFILE = LegacyProfile(classes=("plane", "drone"))
Key = tuple[str, int]


@dataclass
class AgentServer:
    """Acts with the observation it gets, in capitals.

    Attributes:
        calls: (method, request) of each call, in the order in which they came.
        playing: the actors that it plays now.
        feedbacks, messages: sent with each decision.
        before: called before each answer, with the method and the request.
    """

    calls: list[tuple[str, Any]] = field(default_factory=list)
    playing: set[Key] = field(default_factory=set)
    feedbacks: Sequence[Feedback] = ()
    messages: Sequence[Message] = ()
    before: Callable[[str, Any], Any] | None = None

    async def _take(self, request: Any, method: str) -> None:
        self.calls.append((method, request))
        if self.before is not None:
            await self.before(method, request)
        key = request.trial_id, request.actor_id
        if method == "Start":
            assert key not in self.playing
            self.playing.add(key)
        elif key not in self.playing:
            raise NotFoundError(f"trial {request.trial_id} or actor {request.actor_id} do not exist")
        if method == "End":
            self.playing.remove(key)

    async def Start(self, request: Any, _: ServerCall) -> Any:
        await self._take(request, "Start")
        return agent_pb2.AgentStartReply()

    async def End(self, request: Any, _: ServerCall) -> Any:
        await self._take(request, "End")
        return agent_pb2.AgentEndReply()

    async def Decide(self, request: Any, _: ServerCall) -> Any:
        await self._take(request, "Decide")
        reply = agent_pb2.AgentDecideReply(feedbacks=self.feedbacks, messages=self.messages)
        reply.action.content = request.observation.data.content.upper()
        return reply

    async def Reward(self, request: Any, _: ServerCall) -> Any:
        await self._take(request, "Reward")
        return agent_pb2.AgentRewardReply()

    async def OnMessage(self, request: Any, _: ServerCall) -> Any:
        await self._take(request, "OnMessage")
        return agent_pb2.AgentOnMessageReply()

    async def Version(self, request: Any, _: ServerCall) -> Any:
        return VersionInfo()

    def requests(self, method: str) -> list[Any]:
        """Return the requests of a method."""
        return [request for name, request in self.calls if name == method]


@dataclass
class EnvironmentServer:
    """Shows to each actor its id and the tick.

    Attributes:
        calls: (method, request) of each call, in the order in which they came.
        playing: the trials that it plays now, each with its tick and its number of actors.
        ends_at: the tick with which it ends a trial; 0: it does not.
        alter: changes each reply before it is sent; it gets the id of the trial, too.
        before: called before each answer, with the method and the request.
    """

    calls: list[tuple[str, Any]] = field(default_factory=list)
    playing: dict[str, list[int]] = field(default_factory=dict)
    ends_at: int = 0
    alter: Callable[[Any, str], None] | None = None
    before: Callable[[str, Any], Any] | None = None

    async def _take(self, request: Any, method: str) -> None:
        self.calls.append((method, request))
        if self.before is not None:
            await self.before(method, request)
        if method == "Start":
            assert request.trial_id not in self.playing
            self.playing[request.trial_id] = [0, sum(request.actor_counts)]
        elif request.trial_id not in self.playing:
            raise NotFoundError(f"trial {request.trial_id} does not exist")
        if method == "End":
            del self.playing[request.trial_id]

    def _show(self, reply: Any, trial_id: str) -> Any:
        tick_id, actors = self.playing[trial_id]
        shown = reply.observation_set
        shown.tick_id = tick_id
        for actor_id in range(actors):
            shown.observations.add(content=b"seen by %d at %d" % (actor_id, tick_id), snapshot=True)
            shown.actors_map.append(actor_id)
        if self.alter is not None:
            self.alter(reply, trial_id)
        return reply

    async def Start(self, request: Any, _: ServerCall) -> Any:
        await self._take(request, "Start")
        return self._show(environment_pb2.EnvStartReply(), request.trial_id)

    async def Update(self, request: Any, _: ServerCall) -> Any:
        await self._take(request, "Update")
        trial = self.playing[request.trial_id]
        trial[0] += 1
        reply = environment_pb2.EnvUpdateReply(end_trial=0 < self.ends_at <= trial[0])
        return self._show(reply, request.trial_id)

    async def End(self, request: Any, _: ServerCall) -> Any:
        await self._take(request, "End")
        return environment_pb2.EnvEndReply()

    async def OnMessage(self, request: Any, _: ServerCall) -> Any:
        await self._take(request, "OnMessage")
        return environment_pb2.EnvOnMessageReply()

    async def Version(self, request: Any, _: ServerCall) -> Any:
        return VersionInfo()

    def requests(self, method: str) -> list[Any]:
        """Return the requests of a method."""
        return [request for name, request in self.calls if name == method]


def services(*servers: AgentServer | EnvironmentServer) -> list[Any]:
    """Return the services of servers."""
    return [
        bind(agent_pb2.DESCRIPTOR.services_by_name["Agent"], server)
        if isinstance(server, AgentServer)
        else bind(environment_pb2.DESCRIPTOR.services_by_name["Environment"], server)
        for server in servers
    ]


def channel(*servers: AgentServer | EnvironmentServer, config: RpcConfig | None = None) -> InProcessChannel:
    """Return a channel to servers of this process, to be entered."""
    return InProcessChannel(services(*servers), config=config)


@asynccontextmanager
async def served(*servers: AgentServer | EnvironmentServer) -> AsyncIterator[tuple[int, trio.CancelScope]]:
    """Serve on a port of this machine; yield the port, and the scope that ends the server when it is cancelled."""
    async with trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        running: Any = await nursery.start(serve, services(*servers), listeners)
        yield running.port, nursery.cancel_scope
        nursery.cancel_scope.cancel()
