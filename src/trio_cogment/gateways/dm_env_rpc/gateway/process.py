"""One connection: the requests of a client, answered in order."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    NotFoundError,
    RemoteProtocolError,
    StatusCode,
    status_of,
)
from trio_cogment.gateways.callers import Caller
from trio_cogment.gateways.dm_env_rpc.gateway.connection_states import ConnectionState, Request, judge
from trio_cogment.gateways.dm_env_rpc.gateway.properties import answer_extension
from trio_cogment.gateways.dm_env_rpc.gateway.property_table import Place
from trio_cogment.gateways.dm_env_rpc.gateway.slot_states import SlotState
from trio_cogment.gateways.dm_env_rpc.gateway.slots import Reply, Slot
from trio_cogment.gateways.dm_env_rpc.gateway.worlds import World

_log = logging.getLogger(__name__)

#: Errors name what they are about, which may be as long as a request.
_LONGEST_TEXT = 1000


class Worlds(Protocol):
    """What a connection needs of its gateway."""

    #: Those that there are, by name.
    worlds: Mapping[str, World]

    async def create_world(self, settings: Mapping[str, pb.Tensor], caller: Caller) -> World:
        """Create a world.

        Raises:
            CogmentError: a setting makes no sense, or there are too many worlds.
        """

    def forget(self, world: World, why: CogmentError) -> None:
        """Destroy a world."""


class Connection:
    """See the module.

    Args:
        gateway: the worlds.
        caller: the client.
    """

    def __init__(self, gateway: Worlds, caller: Caller) -> None:
        self._gateway = gateway
        self._caller = caller
        self._world: World | None = None
        self._slot: Slot | None = None

    @property
    def state(self) -> ConnectionState:
        """What the client knows."""
        return ConnectionState.NOT_JOINED if self._slot is None else self._slot.connection_state

    def drop(self) -> None:
        """The client is gone: that is as if it had left the world."""
        if self._world is not None and self._slot is not None:
            world, slot, self._world, self._slot = self._world, self._slot, None, None
            world.leave(slot)

    async def answer(self, request: pb.EnvironmentRequest) -> pb.EnvironmentResponse:
        """Return the answer to a request; what it is refused for is an answer, too."""
        response = pb.EnvironmentResponse()
        name = request.WhichOneof("payload")
        try:
            kind = self._kind(name, request)
            if judge(self.state, kind):
                await _HANDLERS[kind](self, request, response)
            elif name is not None:
                getattr(response, name).SetInParent()
        except Exception as error:  # noqa: BLE001  the boundary of a request: the connection goes on
            _refuse(response, name, error)
        return response

    def answer_step(self, request: pb.EnvironmentRequest, send: Callable[[pb.EnvironmentResponse], None]) -> bool:
        """Answer a request without a task, if it is a step, which nobody has to look at a clock for.

        Args:
            request: the request.
            send: gets the response: now, if the trial has its next observation as soon as the action has been sent, or
                in the task that brings it. Not after `drop`.

        Returns:
            Whether that has been done; if not, nothing has.
        """
        world, slot = self._world, self._slot
        if world is None or slot is None or request.WhichOneof("payload") != "step":
            return False
        if world.template.step_timeout_seconds:
            return False
        step = request.step

        def finish(reply: Reply) -> None:
            response = pb.EnvironmentResponse()
            try:
                self._finish_step(step, response, world, slot, reply)
            except Exception as error:  # noqa: BLE001  the boundary of a request: the connection goes on
                _refuse(response, "step", error)
            send(response)

        try:
            self._begin_step(step, world, slot)
        except Exception as error:  # noqa: BLE001  the boundary of a request: the connection goes on
            response = pb.EnvironmentResponse()
            _refuse(response, "step", error)
            send(response)
        else:
            slot.take_answer(finish)
        return True

    def _kind(self, name: str | None, request: pb.EnvironmentRequest) -> Request:
        if name is None:
            return Request.UNKNOWN
        kind = Request(name)
        if kind is Request.DESTROY_WORLD and self._world is not None:
            return Request.DESTROY_OWN_WORLD if request.destroy_world.world_name == self._world.name else kind
        return kind

    def _named(self, name: str) -> World:
        world = self._gateway.worlds.get(name)
        if world is None:
            raise NotFoundError(f"world_name: there is no world {name[:200]!r}")
        return world

    @property
    def _joined(self) -> tuple[World, Slot]:
        assert self._world is not None
        assert self._slot is not None
        return self._world, self._slot

    # Requests

    async def _create_world(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        world = await self._gateway.create_world(request.create_world.settings, self._caller)
        response.create_world.world_name = world.name

    async def _join_world(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        world = self._named(request.join_world.world_name)
        slot = await world.join(request.join_world.settings, self._caller)
        self._world, self._slot = world, slot
        self._write_specs(response.join_world)

    def _write_specs(self, response: Any) -> None:
        mapping = self._joined[1].mapping
        assert mapping is not None
        response.specs.CopyFrom(mapping.specs)

    async def _step(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        world, slot = self._joined
        self._begin_step(request.step, world, slot)
        reply = await slot.answered(world.template.step_timeout_seconds, str(world))
        self._finish_step(request.step, response, world, slot, reply)

    def _begin_step(self, step: pb.StepRequest, world: World, slot: Slot) -> None:
        mapping, record = slot.mapping, slot.record
        assert mapping is not None
        mapping.check_requested(step.requested_observations)
        content = mapping.action(step.actions) if slot.state is SlotState.ACTING else None
        if record is not None:
            record.begin_step()
        world.step(slot, content)

    def _finish_step(
        self, step: pb.StepRequest, response: pb.EnvironmentResponse, world: World, slot: Slot, reply: Reply
    ) -> None:
        if reply.error is not None:
            world.give_up(slot)
            raise reply.error
        assert slot.mapping is not None
        made = response.step
        slot.mapping.fill(made, reply.content, step.requested_observations, reply.reward, reply.discount)
        made.state = reply.state

    async def _reset(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        world, slot = self._joined
        await world.reset(slot, request.reset.settings)
        self._write_specs(response.reset)

    async def _reset_world(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        world = self._named(request.reset_world.world_name)
        if world is not self._world:
            self._caller.check_owns(world.owner, str(world))
        await world.reset_world(self._slot if world is self._world else None, request.reset_world.settings)
        response.reset_world.SetInParent()

    async def _leave_world(self, _request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        self.drop()
        response.leave_world.SetInParent()

    async def _destroy_world(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        world = self._named(request.destroy_world.world_name)
        self._caller.check_owns(world.owner, str(world))
        others = sorted(slot.name for slot in world.slots.values() if slot.is_joined)
        if others and world.template.destroy == "refuse":
            names = ", ".join(map(repr, others))
            raise FailedPreconditionError(f"{world}: expected nobody in it, and clients have joined as {names}")
        self._gateway.forget(world, FailedPreconditionError(f"{world} was destroyed"))
        response.destroy_world.SetInParent()

    async def _extension(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        caller = self._caller
        worlds = {
            name: free
            for name, world in self._gateway.worlds.items()
            if (free := world.free_for(caller)) or caller.owns(world.owner) or world is self._world
        }
        place = Place(worlds, None if self._slot is None else self._slot.record)
        answer = answer_extension(request.extension, place)
        # By fields: the class of another descriptor pool is another class.
        response.extension.type_url, response.extension.value = answer.type_url, answer.value


def _refuse(response: pb.EnvironmentResponse, name: str | None, error: Exception) -> None:
    """Write into a response why a request is refused."""
    if not isinstance(error, CogmentError):
        _log.error("dm_env_rpc: %s failed", name, exc_info=error)
    code, text = status_of(error)
    if isinstance(error, RemoteProtocolError):
        code = StatusCode.INTERNAL  # it was the environment, not the client
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}..."
    response.error.code, response.error.message = code.value, text


_Handler = Callable[[Connection, pb.EnvironmentRequest, pb.EnvironmentResponse], Awaitable[None]]

_HANDLERS: Mapping[Request, _Handler] = {
    Request.CREATE_WORLD: Connection._create_world,
    Request.JOIN_WORLD: Connection._join_world,
    Request.STEP: Connection._step,
    Request.RESET: Connection._reset,
    Request.RESET_WORLD: Connection._reset_world,
    Request.LEAVE_WORLD: Connection._leave_world,
    Request.DESTROY_WORLD: Connection._destroy_world,
    # Allowed to one that has not joined it.
    Request.DESTROY_OWN_WORLD: Connection._destroy_world,
    Request.EXTENSION: Connection._extension,
}
