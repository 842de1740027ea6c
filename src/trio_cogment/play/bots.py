"""A bot that acts for a person who is away: an implementation of actors, called as an orchestrator calls it.

The bot sees a trial that begins with the observation that it has to answer first, and gets the others that it has to
answer; it ends when the person is back. So any implementation of the actor's class will do, and none needs to know that
it stands in for somebody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from trio_cogment.api.common_pb2 import (
    ActorInitialInput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
    CommunicationState,
    Observation,
)
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import Call, CallOpener, RpcError, methods_of

_RUN_TRIAL = methods_of(SERVICES[ServiceKind.ACTOR].descriptor())["RunTrial"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a stand-in has to answer.

    Attributes:
        tick_id: of the observation.
        timestamp: likewise.
        content: likewise.
    """

    tick_id: int
    timestamp: int
    content: bytes


class Bot:
    """A bot at work in one seat.

    Args:
        opener: of the service that has the implementation.
        trial_id: of the trial.
        init: what the implementation is told about its part.
        on_action: takes its actions, with the tick.
    """

    def __init__(
        self,
        opener: CallOpener,
        trial_id: str,
        init: ActorInitialInput,
        on_action: Callable[[int, bytes], None],
    ) -> None:
        self._opener = opener
        self._trial_id = trial_id
        self._init = init
        self._on_action = on_action
        self._asked: Asked | None = None
        self._over = False
        self._more = trio.Event()

    def ask(self, asked: Asked) -> None:
        """Ask for an action; what was asked before counts no more."""
        self._asked = asked
        self._more.set()

    def dismiss(self) -> None:
        """Have `run` return soon, after the bot was told that it is over; it acts no more."""
        self._over = True
        self._more.set()

    async def run(self) -> None:
        """Have the bot act until it is dismissed, or cancelled.

        Raises:
            FailedPreconditionError: it failed, or left.
        """
        try:
            async with self._opener.call(_RUN_TRIAL, metadata=((TRIAL_ID, self._trial_id),)) as call:
                await call.send(ActorRunTrialInput(state=CommunicationState.NORMAL, init_input=self._init))
                await self._next(call, "init_output")
                while not self._over:
                    await self._more.wait()
                    self._more = trio.Event()
                    asked, self._asked = self._asked, None
                    if asked is not None and not self._over:
                        await self._answer(call, asked)
                await call.send(ActorRunTrialInput(state=CommunicationState.END))
                await call.done_sending()
                while await call.receive() is not None:
                    pass
        except RpcError as error:
            raise FailedPreconditionError(f"the bot failed: {error.message}") from error

    async def _answer(self, call: Call, asked: Asked) -> None:
        observation = Observation(tick_id=asked.tick_id, timestamp=asked.timestamp, content=asked.content)
        await call.send(ActorRunTrialInput(state=CommunicationState.NORMAL, observation=observation))
        found = await self._next(call, "action")
        if not self._over:
            self._on_action(asked.tick_id, found.action.content)

    async def _next(self, call: Call, kind: str) -> ActorRunTrialOutput:
        """Wait for data of a kind; what a bot says besides has no receiver."""
        while True:
            message: ActorRunTrialOutput | None = await call.receive()
            if message is None:
                raise FailedPreconditionError("the bot has left")
            if message.WhichOneof("data") == kind:
                return message


#: Makes a bot for a seat, of the trial's id, what the bot is told about its part, and what takes its actions.
BotFor = Callable[[str, ActorInitialInput, Callable[[int, bytes], None]], Bot]
