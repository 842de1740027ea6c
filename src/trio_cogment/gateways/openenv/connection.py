"""A client of the server: its session, whose effects are performed here, and the answers that wait to be sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import trio

from trio_cogment.gateways.openenv.messages import RefusedError, Request
from trio_cogment.gateways.openenv.session import (
    MAX_WAITING_MESSAGES,
    Act,
    Effect,
    HangUp,
    Join,
    Leave,
    Reply,
    Session,
)
from trio_cogment.gateways.openenv.trials import Episode, Trials

#: Answers that may wait to be sent. Each message has one; the rest is for what ends a session.
MAX_WAITING_ANSWERS = MAX_WAITING_MESSAGES + 4

#: What is to be sent, in order.
Answer: TypeAlias = Reply | HangUp


class Connection:
    """A client, whatever carries its messages.

    Attributes:
        answers: what is to be sent to the client; closed when there is nothing more to come.
        last_active: when it last asked for something, or was answered, by Trio's clock.
    """

    def __init__(self, trials: Trials, instance: str) -> None:
        """Begin a session.

        Args:
            trials: where seats are taken.
            instance: of the environment, for the client's own trials.
        """
        self._trials = trials
        self._instance = instance
        self._session = Session()
        self._seat: Episode | None = None
        self._sending, self.answers = trio.open_memory_channel[Answer](MAX_WAITING_ANSWERS)
        self.last_active = trio.current_time()

    @property
    def busy(self) -> bool:
        """Whether the client waits for an answer."""
        return self._session.busy

    def receive(self, text: str | bytes) -> None:
        """Take a message."""
        self.last_active = trio.current_time()
        self._perform(self._session.receive(text))

    def submit(self, request: Request | RefusedError) -> None:
        """Take a request that has come in another way."""
        self._perform(self._session.submit(request))

    def dismiss(self, text: str, code: int) -> None:
        """End the session, and say why."""
        self._perform(self._session.dismiss(text, code))

    def vanish(self) -> None:
        """Take note that the client is gone; its seat is given up."""
        for effect in self._session.vanish():
            if isinstance(effect, Leave):
                self._leave()
        self._sending.close()

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply | HangUp):
                self._send(effect)
            elif isinstance(effect, Leave):
                self._leave()
            elif isinstance(effect, Join):
                number, reset = effect.episode, effect.reset
                self._seat = self._trials.take(self._session, number, self._perform, reset, self._instance)
            elif isinstance(effect, Act) and self._seat is not None:
                # Nothing comes after it: the session waits for the next turn. That may have come when this returns.
                self._seat.act(effect.action)

    def _leave(self) -> None:
        if self._seat is not None:
            self._seat.leave()
            self._seat = None

    def _send(self, answer: Answer) -> None:
        self.last_active = trio.current_time()
        try:
            self._sending.send_nowait(answer)
        except trio.WouldBlock:
            # It asks, but does not read. What is waiting for it is sent, if it does, and then it is over.
            self.vanish()
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass  # it is gone already
