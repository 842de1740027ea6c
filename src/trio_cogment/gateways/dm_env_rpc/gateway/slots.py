"""A slot of a world: its state, the request that waits in it, and what that is answered with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.gateways.dm_env_rpc.gateway.connection_states import ConnectionState
from trio_cogment.gateways.dm_env_rpc.gateway.slot_states import (
    CONNECTION_STATES,
    Answer,
    SlotInput,
    SlotState,
    after,
)

if TYPE_CHECKING:
    from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import SlotMapping
    from trio_cogment.gateways.dm_env_rpc.gateway.records import SlotRecord

RUNNING, TERMINATED, INTERRUPTED = pb.RUNNING, pb.TERMINATED, pb.INTERRUPTED

#: States between sequences, to which changes are told to those who wait for them.
_SETTLED = frozenset({SlotState.FREE, SlotState.READY, SlotState.OVER})
_WAITING_FOR = {
    SlotState.WAITING: "others to join and step, and for the first observation",
    SlotState.STEPPING: "the next observation",
    SlotState.RESETTING: "the end of the trial, in which others play",
}


def too_long(who: str, seconds: float, awaited: str) -> RpcError:
    """Return what a request is answered with that has waited too long."""
    return RpcError(StatusCode.DEADLINE_EXCEEDED, f"{who}: waited {seconds:g} s for {awaited}")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request is answered with.

    Attributes:
        state: of the sequence; INVALID_ENVIRONMENT_STATE for the answer to a reset.
        content: the payload of the observation.
        reward: since the last reply.
        error: why the request has failed; None if it has not.
    """

    state: pb.EnvironmentStateType = pb.INVALID_ENVIRONMENT_STATE
    content: bytes = b""
    reward: float = 0.0
    error: Exception | None = None

    @property
    def discount(self) -> float:
        """Of the rewards that would follow."""
        return 0.0 if self.state == TERMINATED else 1.0


class Slot:
    """An actor of a world that a client can be.

    Args:
        name: of the actor.
        actor_class: of the actor.
        on_settled: called when a sequence has ended for the slot, or its client has come, gone or been told.

    Attributes:
        state: where it is.
        mapping: of its payloads, once it is known; it stays for the life of the world.
        record: what its client can learn by properties; None while it is free.
    """

    def __init__(self, name: str, actor_class: str, on_settled: Callable[[], None]) -> None:
        self.name = name
        self.actor_class = actor_class
        self.state = SlotState.FREE
        self.mapping: SlotMapping | None = None
        self.record: SlotRecord | None = None
        self._on_settled = on_settled
        self._reply: Reply | None = None
        self._answered: trio.Event | None = None
        self._receiver: Callable[[Reply], None] | None = None
        #: The last observation of a running sequence.
        self._last = b""
        #: For a client that is still to be told of the end of a sequence.
        self._end = Reply()

    @property
    def connection_state(self) -> ConnectionState:
        """What the client knows."""
        return CONNECTION_STATES[self.state]

    @property
    def is_joined(self) -> bool:
        """Whether it has a client."""
        return self.state is not SlotState.FREE

    @property
    def is_described(self) -> bool:
        """Whether its specifications are known."""
        return self.mapping is not None

    def feed(self, happened: SlotInput, reply: Reply | None = None) -> None:
        """Let something happen to the slot; the request that waits is answered if that is what follows.

        Args:
            happened: what.
            reply: the answer to the request, if there is one; the end, if the client is told of it later.
        """
        self.state, answer = after(self.state, happened)
        if answer is not Answer.NOTHING:
            if happened is SlotInput.STEP:
                reply, self._end = self._end, Reply()
            elif answer is Answer.RUNNING and reply is not None:
                self._last = reply.content
            elif answer is Answer.ERROR and self.state is SlotState.OVER:
                self._end = Reply(INTERRUPTED, self._last)
            self._answer(reply or Reply())
        elif self.state is SlotState.OVER and happened is SlotInput.END and reply is not None:
            self._end = reply
        if self.state in _SETTLED:
            self._on_settled()

    def _answer(self, reply: Reply) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver(reply)
            return
        self._reply = reply
        if self._answered is not None:
            self._answered.set()

    def take_answer(self, receiver: Callable[[Reply], None]) -> None:
        """Give the answer to the request that waits to a function: now if it is there, or when it comes."""
        if self._reply is None:
            self._receiver = receiver
        else:
            reply, self._reply = self._reply, None
            receiver(reply)

    async def answered(self, seconds: float, who: str) -> Reply:
        """Wait for the answer to the request that waits.

        Args:
            seconds: how long; 0: no limit.
            who: the world, for errors.

        Returns:
            The answer. After the time that is an error, and nothing waits in the slot any more.
        """
        if self._reply is None:
            self._answered = trio.Event()
            try:
                with trio.move_on_after(seconds or float("inf")):
                    await self._answered.wait()
            finally:
                self._answered = None
            if self._reply is None:
                error = too_long(f"{who}, actor {self.name!r}", seconds, _WAITING_FOR[self.state])
                self.feed(SlotInput.TIMEOUT, Reply(error=error))
        assert self._reply is not None
        reply, self._reply = self._reply, None
        return reply

    def forget_request(self) -> None:
        """Answer nobody any more: the client is gone."""
        self._reply = self._receiver = None
