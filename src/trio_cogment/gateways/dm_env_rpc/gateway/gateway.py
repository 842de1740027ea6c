"""`DmEnvRpcGateway`: trials as worlds of dm_env_rpc, with a platform or in front of an orchestrator elsewhere."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from weakref import WeakValueDictionary

import trio
from purerpc import Service
from trio_util import AsyncValue

from trio_cogment.access import AccessControl
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.config import DmEnvRpcConfig
from trio_cogment.base.errors import AlreadyExistsError, CogmentError, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.budget.shares import Shares, share_of
from trio_cogment.gateways.callers import Caller, Callers, callers_elsewhere, callers_in_process
from trio_cogment.gateways.dm_env_rpc.gateway.connection import Connection
from trio_cogment.gateways.dm_env_rpc.gateway.profile import Profile
from trio_cogment.gateways.dm_env_rpc.gateway.request_queue import Requests
from trio_cogment.gateways.dm_env_rpc.gateway.worlds import World
from trio_cogment.platform import OpenedExtension, Platform
from trio_cogment.rpc import CallOpener, OwnNursery, ServerCall, bind
from trio_cogment.sdk.spec import Spec

_log = logging.getLogger(__name__)

_STOPPING = "the gateway is stopping"


class DmEnvRpcGateway:
    """A gateway for clients of dm_env_rpc, to be opened.

    As an extension it is served with a platform: `open_platform(participants, extensions=[DmEnvRpcGateway(profile)])`.

    Args:
        profile: which worlds clients can create; see `Profile.of` for one template.
        config: limits.
        host: makes names of worlds; the platform's unless given.
    """

    def __init__(self, profile: Profile, *, config: DmEnvRpcConfig | None = None, host: Host | None = None) -> None:
        self._profile = profile
        self._config = config or DmEnvRpcConfig()
        self._host = host

    def open(self, platform: Platform) -> AbstractAsyncContextManager[OpenedExtension]:
        """See `trio_cogment.platform.Extension`."""
        participants = platform.participants
        callers = callers_in_process(platform.channel)
        return self._opened(callers, participants.host, participants.spec)

    def opened(
        self,
        opener: CallOpener,
        *,
        host: Host | None = None,
        spec: Spec | None = None,
        access: AccessControl | None = None,
    ) -> AbstractAsyncContextManager[OpenedGateway]:
        """Open it in front of an orchestrator, for the time of a block.

        Args:
            opener: a channel to the orchestrator's services for the lifecycle of trials and for client actors.
            host: makes names of worlds.
            spec: the types of the project, if the profile has none.
            access: makes the tokens with which the orchestrator is called in the names of clients, whose trials these
                are then; None: all calls are the gateway's.

        Raises:
            InvalidArgumentError: a configuration in the profile is not of its type.
        """
        return self._opened(callers_elsewhere(opener, access), host, spec)

    @asynccontextmanager
    async def _opened(self, callers: Callers, host: Host | None, spec: Spec | None) -> AsyncIterator[OpenedGateway]:
        profile = self._profile.typed(spec or Spec())
        if profile.spec == Spec():
            _log.info("dm_env_rpc: the profile names no spec: observations and actions are tensors of bytes")
        async with OwnNursery() as nursery:
            gateway = OpenedGateway(nursery, callers, profile, self._config, self._host or host or Host())
            yield gateway
            await gateway.stop()
            nursery.cancel_scope.cancel()


class OpenedGateway:
    """A gateway that is open; it is also the implementation of the service `dm_env_rpc.v1.Environment`.

    Attributes:
        services: the one service.
        worlds: those that there are, by name.
        connections: how many are open.
    """

    def __init__(
        self, nursery: trio.Nursery, callers: Callers, profile: Profile, config: DmEnvRpcConfig, host: Host
    ) -> None:
        self.services: Sequence[Service] = [bind(pb.DESCRIPTOR.services_by_name["Environment"], self)]
        self._worlds: dict[str, World] = {}
        self.worlds: Mapping[str, World] = self._worlds
        #: The names of those that are being created.
        self._coming: set[str] = set()
        #: Whose share each world uses.
        self._accounts: dict[World, str] = {}
        self._callers = callers
        self._profile = profile
        self._host = host
        self._config = config
        self._nursery = nursery
        self._stopping = False
        #: Of the connections.
        self._requests: set[Requests] = set()
        self._connection_shares = Shares(
            "connections",
            ("max_connections", config.max_connections),
            ("max_peer_connections", config.max_peer_connections),
        )
        self._world_shares = Shares(
            "worlds", ("max_worlds", config.max_worlds), ("max_peer_worlds", config.max_peer_worlds)
        )
        #: How many connections each account has, for as long as somebody wants to know.
        self._present: WeakValueDictionary[str, AsyncValue[int]] = WeakValueDictionary()
        self._gone = trio.Event()

    @property
    def connections(self) -> int:
        """See the class."""
        return self._connection_shares.used

    async def stop(self) -> None:
        """See `trio_cogment.platform.OpenedExtension`: requests in hand are answered and trials end in good order.

        Both take `leave_seconds` at most.
        """
        self._stopping = True
        for world in list(self._worlds.values()):
            world.stop()
        for requests in self._requests:
            requests.stop()
        with trio.move_on_after(self._config.leave_seconds):
            if self.connections:
                await self._gone.wait()
            for world in list(self._worlds.values()):
                await world.wait_unplayed()

    # The service

    async def Process(self, call: ServerCall) -> None:
        """Answer the requests of one client, in order."""
        present = self._connections_of(call.identity.account)
        present.value += 1
        try:
            with self._connection_shares.taken(share_of(call.identity)):
                await self._serve(call)
        finally:
            present.value -= 1
            if self._stopping and not self.connections:
                self._gone.set()

    async def _serve(self, call: ServerCall) -> None:
        connection = Connection(self, self._callers(call))
        requests = Requests(call, connection.answer_step)
        if self._stopping:
            requests.stop()
        self._requests.add(requests)
        try:
            call.set_consumer(requests)
            while (request := await requests.next()) is not None:
                await requests.send(await connection.answer(request))
        finally:
            self._requests.discard(requests)
            connection.drop()

    def _connections_of(self, account: str) -> AsyncValue[int]:
        """Return how many connections an account has: the same value for as long as somebody holds it."""
        return self._present.setdefault(account, AsyncValue(0))

    # Worlds

    async def create_world(self, settings: Mapping[str, pb.Tensor], caller: Caller) -> World:
        """See `connection.Worlds`."""
        if self._stopping:
            raise UnavailableError(_STOPPING)
        template = self._profile.create_world(settings)
        name = template.name or self._host.new_id()
        if name in self._worlds or name in self._coming:
            raise AlreadyExistsError(f"setting 'world_name': there is a world {name!r} already")
        account = share_of(caller.identity)
        self._world_shares.take(account)
        world = World(
            name,
            template,
            caller,
            self._connections_of(caller.identity.account),
            self._profile,
            self._config,
            self._host,
        )
        self._accounts[world] = account
        self._coming.add(name)
        try:
            await self._nursery.start(self._run, world)
        finally:
            self._coming.discard(name)
        if world.destroyed is None:
            self._worlds[name] = world
        return world

    async def _run(self, world: World, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            await world.run(task_status)
        finally:
            self._remove(world)

    def _remove(self, world: World) -> None:
        if self._worlds.get(world.name) is world:
            del self._worlds[world.name]
        account = self._accounts.pop(world, None)
        if account is not None:
            self._world_shares.count(account, -1)

    def forget(self, world: World, why: CogmentError) -> None:
        """See `connection.Worlds`."""
        self._remove(world)
        world.close(why)
