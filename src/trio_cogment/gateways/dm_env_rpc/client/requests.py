"""The requests of a connection that wait for their replies, and what the replies say. Nothing here does I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.gateways.dm_env_rpc.client.errors import DmEnvRpcError
from trio_cogment.gateways.dm_env_rpc.client.specs import Specs
from trio_cogment.gateways.dm_env_rpc.client.states import Answer, State, after, begins_sequence, ends_sequence
from trio_cogment.spaces import SpaceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")

_ANSWERS = {
    "create_world": Answer.CREATED,
    "join_world": Answer.JOINED,
    "reset": Answer.RESET,
    "leave_world": Answer.LEFT,
    "destroy_world": Answer.DESTROYED,
    "extension": Answer.EXTENSION,
}
_STEPS = {
    pb.RUNNING: Answer.STEP_RUNNING,
    pb.TERMINATED: Answer.STEP_TERMINATED,
    pb.INTERRUPTED: Answer.STEP_INTERRUPTED,
}


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What came of a step.

    Attributes:
        state: RUNNING, or how the sequence has ended.
        observations: those that were requested, by name; arrays are read-only.
        first: the sequence has begun with it, and the actions were ignored.
        last: the sequence has ended with it; the next step begins another.
    """

    state: State
    observations: dict[str, NDArray[Any]]
    first: bool
    last: bool


@dataclass(frozen=True, slots=True, eq=False)
class Received:
    """A reply, the state that it came in and the one that it has led to, and the specifications that hold then."""

    response: Any
    before: State
    state: State
    specs: Specs | None


class Reply(Generic[T]):
    """The reply to a request that has been sent: `await reply.wait()`, or `await reply`.

    Replies come in the order of the requests. One that nobody waits for is taken all the same, so that who stops
    waiting, or is cancelled, loses this reply and no other.
    """

    def __init__(self, convert: Callable[[Received], T]) -> None:
        self._convert = convert
        self._event: trio.Event | None = None
        self._receiver: Callable[[Reply[T]], None] | None = None
        self._received: Received | None = None
        self._error: Exception | None = None

    @property
    def is_there(self) -> bool:
        """Whether `wait` would return or raise at once."""
        return self._received is not None or self._error is not None

    async def wait(self) -> T:
        """Wait for the reply, and return what it says. It may be called again, also after `Cancelled`.

        Raises:
            DmEnvRpcError: the server refuses the request.
            RemoteProtocolError: the server has broken the protocol, and the connection is of no use any more.
            UnavailableError: the connection was lost, or has been closed.
        """
        if self.is_there:
            await trio.lowlevel.checkpoint()
        else:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        return self.result()

    def result(self) -> T:
        """Return what the reply says, which is there; see `wait` for what is raised."""
        if self._error is not None:
            raise self._error
        assert self._received is not None
        return self._convert(self._received)

    def give_to(self, receiver: Callable[[Reply[T]], None]) -> None:
        """Have a function called with the reply, now or where it arrives, instead of waiting. It must not raise."""
        if self.is_there:
            receiver(self)
        else:
            self._receiver = receiver

    def __await__(self) -> Generator[Any, Any, T]:
        return self.wait().__await__()

    def settle(self, received: Received) -> None:
        """Take the reply."""
        self._received = received
        self._tell()

    def fail(self, error: Exception) -> None:
        """Take an error instead of the reply."""
        self._error = error
        self._tell()

    def _tell(self) -> None:
        if self._event is not None:
            self._event.set()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver(self)


@dataclass(frozen=True, slots=True)
class _Waiting:
    kind: str
    world: str
    reply: Reply[Any]


class Requests:
    """The requests under way on one connection.

    Attributes:
        server: for errors.
        state: where the last reply has led.
        specs: of the world that was joined; None while there is none.
        world: its name; None while there is none.
    """

    def __init__(self, server: str) -> None:
        self.server = server
        self.state = State.NOT_JOINED
        self.specs: Specs | None = None
        self.world: str | None = None
        self._specs_message = pb.ActionObservationSpecs()
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, kind: str, world: str, convert: Callable[[Received], T]) -> Reply[T]:
        """Note that a request is being sent.

        Args:
            kind: the name of its payload.
            world: that it names; may be empty.
            convert: makes of the reply what its receiver gets.
        """
        reply = Reply(convert)
        self._waiting.append(_Waiting(kind, world, reply))
        return reply

    def take(self, response: pb.EnvironmentResponse) -> None:
        """Take the next reply, which is that to the oldest request.

        Raises:
            RemoteProtocolError: it breaks the protocol; nothing was taken.
        """
        kind = response.WhichOneof("payload")
        if not self._waiting:
            raise RemoteProtocolError(f"{self.server}: expected no reply without a request, got {kind}")
        waiting = self._waiting[0]
        if kind == "error":
            self._waiting.popleft()
            waiting.reply.fail(DmEnvRpcError.of(self.server, waiting.kind, response.error))
            return
        if kind != waiting.kind:
            raise RemoteProtocolError(f"{self.server}: {waiting.kind}: expected a reply of that kind, got {kind}")
        content = getattr(response, kind)
        before = self.state
        try:
            state = after(before, self._answer(waiting, content))
            if kind in ("join_world", "reset"):
                self._take_specs(content.specs)
        except (RemoteProtocolError, SpaceError) as error:
            raise RemoteProtocolError(f"{self.server}: {kind}: {error}") from None
        self.state = state
        if kind == "join_world":
            self.world = waiting.world
        elif kind == "leave_world":
            self.world = self.specs = None
        self._waiting.popleft()
        waiting.reply.settle(Received(content, before, state, self.specs))

    def fail(self, error: Exception) -> None:
        """Answer all that wait with an error."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.reply.fail(error)

    def _answer(self, waiting: _Waiting, content: Any) -> Answer:
        if waiting.kind == "step":
            return _STEPS.get(content.state, Answer.STEP_INVALID)
        if waiting.kind == "reset_world":
            return Answer.WORLD_RESET if waiting.world == self.world else Answer.OTHER_WORLD_RESET
        return _ANSWERS[waiting.kind]

    def _take_specs(self, message: pb.ActionObservationSpecs) -> None:
        # They seldom change with a reset, and reading them takes time.
        if self.specs is None or message != self._specs_message:
            self.specs = Specs.of(message)
            self._specs_message = message


def step_of(server: str, received: Received) -> Step:
    """Return what the reply to a step says.

    Raises:
        RemoteProtocolError: an observation is not what its specification says.
    """
    assert received.specs is not None
    try:
        observations = received.specs.observations.unpacked(received.response.observations)
    except SpaceError as error:
        raise RemoteProtocolError(f"{server}: step: {error}") from None
    return Step(
        received.state,
        observations,
        first=begins_sequence(received.before, received.state),
        last=ends_sequence(received.before, received.state),
    )
