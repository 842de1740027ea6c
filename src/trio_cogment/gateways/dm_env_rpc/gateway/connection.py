"""One connection of a client: a table of the requests that are allowed, and their answers in order.

Rule 1: a request is judged by `TABLE`, by what the answers before it have left, and by nothing else: that the
connection has joined a world, or not. A step and a reset are right whether a sequence runs or not. Whether there is
such a world, a free actor or a good action is judged afterwards, by whoever knows it.

Rule 2: a refused request has no effect.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    RemoteProtocolError,
    StatusCode,
    status_of,
)
from trio_cogment.base.shared_message import SharedMessage, field_tag, varint
from trio_cogment.budget.made_once import LARGE_BYTES
from trio_cogment.gateways.callers import Caller
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import SlotMapping
from trio_cogment.gateways.dm_env_rpc.gateway.properties import Place, answer_extension
from trio_cogment.gateways.dm_env_rpc.gateway.request_queue import Answer
from trio_cogment.gateways.dm_env_rpc.gateway.worlds import Player, Reply, World
from trio_cogment.rpc import ServerCall

_log = logging.getLogger(__name__)

#: What is held while large observations are made: a message, its value twice, the tensors, and their bytes.
_COPIES = 5
#: Errors name what they are about, which may be as long as a request.
_LONGEST_TEXT = 1000


class Request(enum.Enum):
    """A request; the values of the first eight are the names of the payloads."""

    CREATE_WORLD = "create_world"
    JOIN_WORLD = "join_world"
    STEP = "step"
    RESET = "reset"
    RESET_WORLD = "reset_world"
    LEAVE_WORLD = "leave_world"
    DESTROY_WORLD = "destroy_world"
    EXTENSION = "extension"
    #: `destroy_world` of the world that the connection has joined.
    DESTROY_OWN_WORLD = "destroy_world of the joined world"
    #: A request without a payload, or with one of a later version of the protocol.
    UNKNOWN = "a request without a payload that is known"


class Verdict(enum.Enum):
    """What becomes of a request."""

    #: It is carried out.
    CARRY_OUT = "carry out"
    #: It is answered, and changes nothing.
    NOTHING_TO_DO = "nothing to do"
    JOIN_FIRST = "expected it after join_world: the connection has not joined a world"
    LEAVE_FIRST = "expected it after leave_world: the connection has joined a world"
    LEAVE_BEFORE_DESTROYING = "expected it after leave_world: the connection has joined this world"
    NOT_A_REQUEST = "expected a request with one of the payloads that the protocol has"


_R, _V = Request, Verdict

#: Every request, before and after the connection has joined a world.
TABLE: Mapping[bool, Mapping[Request, Verdict]] = {
    False: {
        _R.CREATE_WORLD: _V.CARRY_OUT,
        _R.JOIN_WORLD: _V.CARRY_OUT,
        _R.STEP: _V.JOIN_FIRST,
        _R.RESET: _V.JOIN_FIRST,
        _R.RESET_WORLD: _V.CARRY_OUT,
        _R.LEAVE_WORLD: _V.NOTHING_TO_DO,
        _R.DESTROY_WORLD: _V.CARRY_OUT,
        _R.DESTROY_OWN_WORLD: _V.CARRY_OUT,
        _R.EXTENSION: _V.CARRY_OUT,
        _R.UNKNOWN: _V.NOT_A_REQUEST,
    },
    True: {
        _R.CREATE_WORLD: _V.CARRY_OUT,
        _R.JOIN_WORLD: _V.LEAVE_FIRST,
        _R.STEP: _V.CARRY_OUT,
        _R.RESET: _V.CARRY_OUT,
        _R.RESET_WORLD: _V.CARRY_OUT,
        _R.LEAVE_WORLD: _V.CARRY_OUT,
        _R.DESTROY_WORLD: _V.CARRY_OUT,
        _R.DESTROY_OWN_WORLD: _V.LEAVE_BEFORE_DESTROYING,
        _R.EXTENSION: _V.CARRY_OUT,
        _R.UNKNOWN: _V.NOT_A_REQUEST,
    },
}

_REFUSALS: Mapping[Verdict, type[Exception]] = {
    _V.JOIN_FIRST: FailedPreconditionError,
    _V.LEAVE_FIRST: FailedPreconditionError,
    _V.LEAVE_BEFORE_DESTROYING: FailedPreconditionError,
    _V.NOT_A_REQUEST: InvalidArgumentError,
}


def judge(request: Request, *, joined: bool) -> bool:
    """Return whether a request is to be carried out; False: it is answered at once.

    Args:
        request: the request.
        joined: the connection has joined a world.

    Raises:
        FailedPreconditionError: it is refused in this state; the text says what has to come first.
        InvalidArgumentError: it is not a request.
    """
    verdict = TABLE[joined][request]
    refusal = _REFUSALS.get(verdict)
    if refusal is not None:
        raise refusal(f"{request.value.partition(' of ')[0]}: {verdict.value}")
    return verdict is Verdict.CARRY_OUT


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
        self._player: Player | None = None

    def drop(self) -> None:
        """The client is gone: that is as if it had left the world."""
        if self._world is not None and self._player is not None:
            world, player, self._world, self._player = self._world, self._player, None, None
            world.leave(player)

    async def answer(self, request: pb.EnvironmentRequest) -> Answer:
        """Return the answer to a request; what it is refused for is an answer, too."""
        response = pb.EnvironmentResponse()
        name = request.WhichOneof("payload")
        try:
            kind = self._kind(name, request)
            if judge(kind, joined=self._player is not None):
                later = await _HANDLERS[kind](self, request, response)
                if later is not None:
                    return later
            elif name is not None:
                getattr(response, name).SetInParent()
        except Exception as error:  # noqa: BLE001  the boundary of a request: the connection goes on
            _refuse(response, name, error)
        return response

    def answer_step(self, request: pb.EnvironmentRequest, send: Callable[[Answer], None]) -> bool:
        """Answer a request without a task, if it is a step, which nobody has to look at a clock for.

        Args:
            request: the request.
            send: gets the response: now, if the trial has its next observation as soon as the action has been sent, or
                in the task that brings it. Not after `drop`.

        Returns:
            Whether that has been done; if not, nothing has.
        """
        world, player = self._world, self._player
        if world is None or player is None or request.WhichOneof("payload") != "step":
            return False
        if world.template.step_timeout_seconds:
            return False
        step = request.step

        def finish(reply: Reply) -> None:
            response = pb.EnvironmentResponse()
            try:
                answer = self._finish_step(step, response, world, player, reply) or response
            except Exception as error:  # noqa: BLE001  the boundary of a request: the connection goes on
                _refuse(response, "step", error)
                answer = response
            send(answer)

        try:
            self._begin_step(step, world, player)
        except Exception as error:  # noqa: BLE001  the boundary of a request: the connection goes on
            response = pb.EnvironmentResponse()
            _refuse(response, "step", error)
            send(response)
        else:
            player.take_answer(finish)
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
    def _joined(self) -> tuple[World, Player]:
        assert self._world is not None
        assert self._player is not None
        return self._world, self._player

    # Requests

    async def _create_world(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        world = await self._gateway.create_world(request.create_world.settings, self._caller)
        response.create_world.world_name = world.name

    async def _join_world(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        world = self._named(request.join_world.world_name)
        player = await world.join(request.join_world.settings, self._caller)
        self._world, self._player = world, player
        self._write_specs(response.join_world)

    def _write_specs(self, response: Any) -> None:
        mapping = self._joined[1].mapping
        assert mapping is not None
        response.specs.CopyFrom(mapping.specs)

    async def _step(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> Answer | None:
        world, player = self._joined
        self._begin_step(request.step, world, player)
        reply = await player.answered(world.template.step_timeout_seconds)
        return self._finish_step(request.step, response, world, player, reply)

    @staticmethod
    def _begin_step(step: pb.StepRequest, world: World, player: Player) -> None:
        mapping = player.mapping
        assert mapping is not None
        mapping.check_requested(step.requested_observations)
        content = mapping.action(step.actions) if player.is_to_act else None
        world.check_open()
        player.step(content)

    @staticmethod
    def _finish_step(
        step: pb.StepRequest, response: pb.EnvironmentResponse, world: World, player: Player, reply: Reply
    ) -> Answer | None:
        """Write the answer to a step; or return what sends it, if there is much in it."""
        if reply.error is not None:
            raise reply.error
        mapping = player.mapping
        assert mapping is not None
        wanted = frozenset(step.requested_observations)
        large = wanted - mapping.numbers if len(reply.content) >= LARGE_BYTES else frozenset()
        made = response.step
        mapping.fill(made, reply.content, wanted - large, reply.reward, reply.discount)
        made.state = reply.state
        return partial(_send_large, world, mapping, reply.content, large, made) if large else None

    async def _reset(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        world, player = self._joined
        await world.reset(player, request.reset.settings)
        self._write_specs(response.reset)

    async def _reset_world(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        world = self._named(request.reset_world.world_name)
        if world is not self._world:
            self._caller.check_owns(world.owner, str(world))
        await world.reset_world(self._player if world is self._world else None, request.reset_world.settings)
        response.reset_world.SetInParent()

    async def _leave_world(self, _request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        self.drop()
        response.leave_world.SetInParent()

    async def _destroy_world(self, request: pb.EnvironmentRequest, response: pb.EnvironmentResponse) -> None:
        world = self._named(request.destroy_world.world_name)
        self._caller.check_owns(world.owner, str(world))
        others = sorted(player.name for player in world.players.values() if player.is_joined)
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
        place = Place(worlds, None if self._player is None else self._player.record)
        answer = answer_extension(request.extension, place)
        # By fields: the class of another descriptor pool is another class.
        response.extension.type_url, response.extension.value = answer.type_url, answer.value


async def _send_large(
    world: World,
    mapping: SlotMapping,
    content: bytes,
    uids: frozenset[int],
    begun: pb.StepResponse,
    call: ServerCall,
) -> None:
    """Send the answer to a step with large observations, which are made once for all who want the same of a payload.

    Args:
        world: where the step was.
        mapping: of the payload.
        content: the payload.
        uids: of the observations in it that are wanted.
        begun: what else the answer says.
        call: of the client.
    """

    def make() -> bytes:
        rest = pb.StepResponse()
        mapping.fill(rest, content, uids, 0.0, 0.0)
        found: bytes = rest.SerializeToString()
        return found

    try:
        made = await world.large.get(content, (mapping, uids), _COPIES, make)
    except Exception as error:  # noqa: BLE001  the boundary of a request: the connection goes on
        response = pb.EnvironmentResponse()
        _refuse(response, "step", error)
        await call.send(response)
        return
    # Fields of a message may come in any order, and so the answer is its small ones, and then those that many get.
    small = begun.SerializeToString()
    head = field_tag(pb.EnvironmentResponse, "step") + varint(len(small) + len(made.data)) + small
    await call.send_shared(SharedMessage(pb.EnvironmentResponse, head, made.data))


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


_Handler = Callable[[Connection, pb.EnvironmentRequest, pb.EnvironmentResponse], Awaitable[Answer | None]]

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
