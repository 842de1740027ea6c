"""A client of dm_env_rpc: `open_connection`, and the connection that it returns."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.any_pb2 import Any as AnyMessage

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.api.dm_env_rpc import properties_pb2
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import CogmentError, LocalProtocolError, RpcError, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.gateways.dm_env_rpc.client.addresses import parse_address
from trio_cogment.gateways.dm_env_rpc.client.pipeline import Pipeline
from trio_cogment.gateways.dm_env_rpc.client.properties import Property, answered, packed, properties_of, value_of
from trio_cogment.gateways.dm_env_rpc.client.requests import Received, Reply, Step, step_of
from trio_cogment.gateways.dm_env_rpc.client.specs import Specs, flattened
from trio_cogment.gateways.dm_env_rpc.client.states import State
from trio_cogment.rpc import CallOpener, MetadataLike, OwnNursery, methods_of, open_channel
from trio_cogment.spaces.tensors import encode_tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

T = TypeVar("T")

PROCESS = methods_of(pb.DESCRIPTOR.services_by_name["Environment"])["Process"]
#: Observations may be large; servers and clients of the published library have no limit.
DEFAULT_CONFIG = RpcConfig(max_receive_message_bytes=256 * 1024 * 1024)


@asynccontextmanager
async def open_connection(
    server: str | CallOpener,
    *,
    tls: ssl.SSLContext | None = None,
    metadata: MetadataLike = (),
    config: RpcConfig | None = None,
    host: Host | None = None,
    name: str = "",
) -> AsyncIterator[Connection]:
    """Connect to a server of dm_env_rpc.

    ```python
    async with open_connection("grpc://localhost:9000") as connection:
    ```

    Leaving the block, in whichever way, closes the connection, which for the server is the same as leaving its world.

    Args:
        server: `grpc://host:port` or `host:port`; or a channel that is open, also one within the process,
            which several connections may share.
        tls: encrypt; see `trio_cogment.rpc.client_tls`.
        metadata: sent when the connection is opened.
        config: limits and timeouts of the channel; by default replies may have 256 MiB.
        host: connects; by default the system.
        name: of the server, for errors; by default its endpoint.

    Raises:
        EndpointError: `server` is not an endpoint of a server.
        UnavailableError: the server cannot be reached.
    """
    async with AsyncExitStack() as stack:
        if isinstance(server, str):
            endpoint = parse_address(server)
            name = name or str(endpoint)
            opened = open_channel(
                host or Host(), endpoint.host, endpoint.port, tls=tls, config=config or DEFAULT_CONFIG
            )
            opener = await stack.enter_async_context(opened)
        else:
            name, opener = name or getattr(server, "authority", "") or "dm_env_rpc", server
        nursery = await stack.enter_async_context(OwnNursery())
        try:
            call = await stack.enter_async_context(opener.call(PROCESS, metadata=metadata))
        except RpcError as error:
            raise UnavailableError(f"{name}: {error}") from error
        pipeline = Pipeline(call, name)
        connection = Connection(pipeline, name)
        nursery.start_soon(pipeline.write)
        try:
            yield connection
        finally:
            connection.close()
            nursery.cancel_scope.cancel()


class Connection:
    """A connection with a server of dm_env_rpc, and thereby at most one agent in one of its worlds.

    Requests of several tasks go out in the order of the calls, and replies come in that order. Each method waits for
    the reply to its request; one that is cancelled before its request has gone out has done nothing, and after that the
    request is carried out, and its reply skipped. `begin_step` does not wait for the reply.

    Values are NumPy arrays, or anything that NumPy makes one of; names stand for the UIDs of the protocol. Settings
    within mappings are named by their keys, joined by dots.

    Every method that waits raises:
        DmEnvRpcError: the server refuses the request, which has had no effect.
        RemoteProtocolError: the server has broken the protocol; the connection is of no use any more.
        UnavailableError: the connection was lost, or has been closed.

    Attributes:
        server: its name, for errors.
    """

    def __init__(self, pipeline: Pipeline, server: str) -> None:
        """Use a call that is open; see `open_connection`."""
        self.server = server
        self._pipeline = pipeline
        self._requests = pipeline.requests
        self._begin = pipeline.begin

    @property
    def state(self) -> State:
        """Where the last reply has led; a connection that has joined a world is TERMINATED before its first step."""
        return self._requests.state

    @property
    def specs(self) -> Specs | None:
        """What the agent can do and see; None while no world is joined."""
        return self._requests.specs

    @property
    def world(self) -> str | None:
        """The name of the world that is joined, if there is one."""
        return self._requests.world

    @property
    def under_way(self) -> int:
        """How many requests wait for their replies."""
        return len(self._requests)

    @property
    def failure(self) -> CogmentError | None:
        """Why the connection is of no use any more; None while it is."""
        return self._pipeline.failure

    # Worlds

    async def create_world(self, settings: Mapping[str, Any] = {}) -> str:
        """Create a world, and return the name that the server gives it.

        Raises:
            SpaceError: a setting is nothing that a tensor can be.
            CogmentError: see the class.
        """
        request = pb.EnvironmentRequest(create_world=pb.CreateWorldRequest(settings=flattened(settings)))
        return await (await self._begin(request, lambda received: str(received.response.world_name)))

    async def join_world(self, name: str = "", settings: Mapping[str, Any] = {}) -> Specs:
        """Join a world, and return what the agent can do and see there.

        Raises:
            SpaceError: a setting is nothing that a tensor can be.
            CogmentError: see the class.
        """
        request = pb.JoinWorldRequest(world_name=name, settings=flattened(settings))
        return await (await self._begin(pb.EnvironmentRequest(join_world=request), _specs_of, name))

    async def leave_world(self) -> None:
        """Leave the world; without one nothing happens. See the class for what is raised."""
        request = pb.EnvironmentRequest(leave_world=pb.LeaveWorldRequest())
        await (await self._begin(request, _nothing))

    async def reset_world(self, name: str | None = None, settings: Mapping[str, Any] = {}) -> None:
        """Begin again for all who have joined a world. It waits until the others have made a step and know.

        Args:
            name: of the world; None: the one that is joined.
            settings: for the world.

        Raises:
            SpaceError: a setting is nothing that a tensor can be.
            LocalProtocolError: there is no name, and no world is joined.
            CogmentError: see the class.
        """
        world = self._required(self.world, "reset_world: expected a name") if name is None else name
        request = pb.ResetWorldRequest(world_name=world, settings=flattened(settings))
        await (await self._begin(pb.EnvironmentRequest(reset_world=request), _nothing, world))

    async def destroy_world(self, name: str = "") -> None:
        """Destroy a world that this connection has not joined. See the class for what is raised."""
        request = pb.EnvironmentRequest(destroy_world=pb.DestroyWorldRequest(world_name=name))
        await (await self._begin(request, _nothing, name))

    # The agent

    async def step(self, actions: Mapping[str, Any] = {}, observations: Collection[str] | None = None) -> Step:
        """Make a step. If no sequence is running, one begins, and the actions are ignored.

        Args:
            actions: by name; they may be some of them.
            observations: the names of those that the reply is to have; None: all.

        Raises:
            SpaceError: there is no action or observation of a name, or a value has not the type or shape that it needs.
            LocalProtocolError: no world is joined.
            CogmentError: see the class.
        """
        return await (await self.begin_step(actions, observations))

    async def begin_step(
        self, actions: Mapping[str, Any] = {}, observations: Collection[str] | None = None
    ) -> Reply[Step]:
        """Send the request for a step, and return its reply to wait for, so that more requests can follow meanwhile.

        It waits only while very many others are under way. The arguments and errors are those of `step`.
        """
        return await self._begin(self._step_request(actions, observations), partial(step_of, self.server))

    def begin_step_nowait(
        self, actions: Mapping[str, Any] = {}, observations: Collection[str] | None = None
    ) -> Reply[Step]:
        """As `begin_step`, without waiting.

        Raises:
            trio.WouldBlock: very many others are under way.
            SpaceError, LocalProtocolError: as `step`.
        """
        return self._pipeline.begin_nowait(self._step_request(actions, observations), partial(step_of, self.server))

    def _step_request(self, actions: Mapping[str, Any], observations: Collection[str] | None) -> pb.EnvironmentRequest:
        specs = self._required(self.specs, "step: expected a world that is joined")
        names = specs.observations.uids if observations is None else observations
        request = pb.StepRequest(
            actions=specs.actions.packed(actions),
            requested_observations=[specs.observations.uid(name) for name in names],
        )
        return pb.EnvironmentRequest(step=request)

    async def reset(self, settings: Mapping[str, Any] = {}) -> Specs:
        """End the agent's sequence, if one is running; the next step begins another.

        Returns:
            The specifications, which differ from those before at most if there are settings.

        Raises:
            SpaceError: a setting is nothing that a tensor can be.
            CogmentError: see the class.
        """
        request = pb.EnvironmentRequest(reset=pb.ResetRequest(settings=flattened(settings)))
        return await (await self._begin(request, _specs_of))

    # Extensions

    async def extension(self, request: AnyMessage) -> AnyMessage:
        """Send a message of an extension of the protocol, and return the answer. See the class for what is raised."""
        message = pb.EnvironmentRequest()
        message.extension.type_url, message.extension.value = request.type_url, request.value
        return await (await self._begin(message, _extension_of))

    async def read_property(self, key: str) -> NDArray[Any]:
        """Return the value of a property. See the class for what is raised."""
        request = properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key=key))
        return value_of(self.server, key, await self._ask("read_property", request))

    async def write_property(self, key: str, value: ArrayLike) -> None:
        """Write the value of a property.

        Raises:
            SpaceError: it is nothing that a tensor can be.
            CogmentError: see the class.
        """
        request = properties_pb2.WritePropertyRequest(key=key, value=encode_tensor(value))
        await self._ask("write_property", properties_pb2.PropertyRequest(write_property=request))

    async def list_properties(self, key: str = "") -> list[Property]:
        """Return the properties below another one, or the outermost. See the class for what is raised."""
        request = properties_pb2.PropertyRequest(list_property=properties_pb2.ListPropertyRequest(key=key))
        return properties_of(self.server, await self._ask("list_property", request))

    async def _ask(self, kind: str, request: properties_pb2.PropertyRequest) -> Any:
        return answered(self.server, kind, await self.extension(packed(request)))

    def _required(self, value: T | None, expected: str) -> T:
        if value is None:
            raise LocalProtocolError(f"{self.server}: {expected}; none is joined")
        return value

    def close(self) -> None:
        """Close the connection, without waiting; who waits for a reply gets UnavailableError."""
        self._pipeline.close()


def _specs_of(received: Received) -> Specs:
    assert received.specs is not None
    return received.specs


def _extension_of(received: Received) -> AnyMessage:
    # By fields: the class of another descriptor pool is another class.
    return AnyMessage(type_url=received.response.type_url, value=received.response.value)


def _nothing(_: Received) -> None:
    return None
