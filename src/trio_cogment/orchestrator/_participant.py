"""A participant's stream as its trial sees it: somewhere to post to, and a consumer that feeds the machine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

import trio

from trio_cogment.errors import CogmentError, ResourceExhaustedError, RpcError
from trio_cogment.orchestrator._connections import Connections, Target
from trio_cogment.rpc import Call, Method, ServerCall
from trio_cogment.trial import Event, HalfClosed, Lost, Received

_log = logging.getLogger(__name__)

Feed: TypeAlias = Callable[[Event], None]


class Link:
    """One participant's stream, whichever side opened it and whatever carries it.

    It is the call's consumer: a message goes straight into the trial's machine, in the task that brought it. Nothing
    here waits; a participant that does not read overflows its own outbox and is lost, and nobody else is.
    """

    def __init__(self, index: int, name: str, feed: Feed) -> None:
        self.index = index
        self.name = name
        self._feed = feed
        self._call: Call | None = None
        self._early: list[Any] = []
        self._paused = False
        self._error: CogmentError | None = None
        self._closing = trio.Event()
        self._ended = trio.Event()

    def attach(self, call: Call) -> None:
        """Use `call` from now on: what was posted before goes out first."""
        self._call = call
        early, self._early = self._early, []
        for message in early:
            self.post(message)
        if self._paused:
            call.pause()
        call.set_consumer(self)

    def post(self, message: Any) -> None:
        """Send a message, or keep it until there is a call (a machine sends little before that)."""
        if self._call is None:
            self._early.append(message)
            return
        try:
            self._call.send_nowait(message)
        except trio.WouldBlock:
            self._feed(Lost(self.index, "it does not read what it is sent"))
            self.close(ResourceExhaustedError("this participant does not read what it is sent"))
        except RpcError:
            # The call is over; its consumer has been told, or is about to be.
            pass

    def close(self, error: CogmentError | None) -> None:
        """Say that nothing more will be posted; an error becomes the stream's status where we serve it."""
        if not self._closing.is_set():
            self._error = error
            self._closing.set()

    def pause(self) -> None:
        """Stop taking messages from this participant; in the end it waits in its `send`."""
        self._paused = True
        if self._call is not None:
            self._call.pause()

    def resume(self) -> None:
        """Take messages again."""
        self._paused = False
        if self._call is not None:
            self._call.resume()

    def on_message(self, message: Any) -> None:
        """See `Consumer.on_message`."""
        self._feed(Received(self.index, message))  # the hot path: once per message of the trial

    def on_end(self, error: RpcError | None) -> None:
        """See `Consumer.on_end`."""
        self._ended.set()
        if error is not None:
            self._feed(Lost(self.index, f"its stream failed: {error}"))
        elif isinstance(self._call, ServerCall):
            # It has only finished sending: it can still be told how the trial ends.
            self._feed(HalfClosed(self.index))
        else:
            self._feed(Lost(self.index, "it closed its stream"))

    async def hold(
        self, connections: Connections, target: Target, method: Method, trial_id: str, *, farewell_seconds: float
    ) -> None:
        """Open the stream to a service actor or an environment, and keep it open until the trial is done with it."""
        try:
            async with (
                connections.open(target) as opener,
                opener.call(method, metadata=(("trial-id", trial_id),)) as call,
            ):
                self.attach(call)
                await self._closing.wait()
                if self._error is not None:
                    # Leaving now resets the stream: there is no status to send on a call of ours.
                    _log.warning("trial %s: the stream of %s is ended: %s", trial_id, self.name, self._error)
                    return
                # END is on its way. Leaving at once would reset the stream, and a reset may overtake it.
                with trio.move_on_after(farewell_seconds):
                    await call.done_sending()
                    await self._ended.wait()
        except RpcError as error:
            self._feed(Lost(self.index, f"it cannot be reached: {error}"))

    async def serve(self) -> None:
        """Stay in the handler of a client actor's call until the trial is done with it.

        Raises:
            CogmentError: the participant broke the protocol; this is the status it gets.
        """
        await self._closing.wait()
        if self._error is not None:
            raise self._error
