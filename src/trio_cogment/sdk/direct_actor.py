"""A client actor without a task: its events are handled where they arrive, and so is its end.

That is for what takes part in many short trials of its own process, as gateways do. A task for each of them would cost
more than the rest of an actor's beginning and end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import trio
from typing_extensions import override

from trio_cogment.api.common_pb2 import ActorInitialOutput, ActorRunTrialInput, ActorRunTrialOutput
from trio_cogment.base.errors import CogmentError, RemoteProtocolError
from trio_cogment.base.host import Host
from trio_cogment.base.log_context import bind_trial
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import CallOpener, DirectCall, RpcError, methods_of
from trio_cogment.sdk._actor import ActorSession
from trio_cogment.sdk._events import Event
from trio_cogment.sdk._failures import words_for
from trio_cogment.sdk._inline import InlineEvents, InlineSession
from trio_cogment.sdk._stream import END, HEARTBEAT, NORMAL, StreamLostError
from trio_cogment.sdk.spec import Spec

_RUN_TRIAL = methods_of(SERVICES[ServiceKind.CLIENT_ACTOR].descriptor())["RunTrial"]


class ActorHandler(Protocol):
    """What is told of an actor's part in a trial. Nothing here waits; what it raises ends the part."""

    def on_session(self, session: ActorSession[bytes, Any, Any]) -> None:
        """Learn that the actor takes part; the session's methods that end in `_nowait` can be used until its end."""

    def on_event(self, event: Event[bytes, None]) -> None:
        """Take an event; observations are bytes."""

    def on_over(self, error: Exception | None) -> None:
        """Learn that the trial is over for the actor, or why it could not take part any more. Must not raise."""


class _NotThere:
    """Stands for the session before it is there."""

    is_over = False


def _owe_nothing() -> bool:
    return False


class DirectActor(InlineEvents):
    """See the module; `join_trial_nowait` makes it."""

    def __init__(
        self,
        call: DirectCall,
        trial_id: str,
        handler: ActorHandler,
        *,
        spec: Spec,
        wall_clock: Callable[[], int],
        spawn: Callable[..., None],
        as_objects: bool = False,
    ) -> None:
        absent: InlineSession = _NotThere()
        who = f"trial {trial_id!r}, actor"
        super().__init__(absent, call, take=self._begin, on_event=handler.on_event, reply=_owe_nothing, who=who)
        self._direct = call
        self._trial_id = trial_id
        self._handler = handler
        self._spec = spec
        self._wall_clock = wall_clock
        self._spawn = spawn
        self._as_objects = as_objects
        self._part: ActorSession[Any, Any, Any] | None = None
        self._sending = False
        self._context.run(bind_trial, trial_id)

    def _begin(self, message: ActorRunTrialInput | None) -> None:
        """Take the first messages, up to the one that says what the actor needs to know."""
        if message is None or message.state == END:
            self._leave()
        elif message.state == HEARTBEAT:
            self.post(ActorRunTrialOutput(state=HEARTBEAT))
        elif message.state == NORMAL and message.HasField("init_input"):
            init = message.init_input
            session: ActorSession[Any, Any, Any] = ActorSession(
                self._call, self._trial_id, init, spec=self._spec, wall_clock=self._wall_clock, joined=True
            )
            self._session = self._part = session
            self._take, self._reply = session.taken_by(self, as_objects=self._as_objects)
            self._context.run(self._handler.on_session, session)
        else:
            raise RemoteProtocolError("expected NORMAL with init_input first")

    @override
    def on_end(self, error: RpcError | None) -> None:
        if self._left:
            return
        if error is not None and self._part is None:
            self._failure = RpcError(error.code, error.message, error.trailing_metadata)  # it could not take part
            self._leave()
        else:
            super().on_end(error)

    def leave(self, *, in_order: bool = False) -> None:
        """Leave the trial; nothing happens if it is over.

        Args:
            in_order: end the stream as an actor does whose part is done, so that the trial says that it has left;
                otherwise the call is cancelled, and the trial says that it was lost.
        """
        if in_order:
            self._leave()
        elif not self._left:
            self._quit()
            self._direct.cancel()
            self._handler.on_over(None)

    def _leave(self) -> None:
        if self._left:
            return
        self._quit()
        failure = self._failure
        with suppress(CogmentError, trio.WouldBlock):
            if failure is not None and not isinstance(failure, StreamLostError):
                # A client has no status to send: it says why it goes.
                self._direct.hand_over_nowait(ActorRunTrialOutput(state=END, details=words_for(failure)))
            self._direct.done_sending_nowait()
        self._handler.on_over(failure)

    def _quit(self) -> None:
        self._left = True
        self._waiting.clear()
        if self._part is not None:
            self._part.taken_by(None)

    def _wake(self) -> None:
        if not self._sending:
            self._sending = True
            self._spawn(self._send, name=f"trial {self._trial_id}: outbox of an actor")

    async def _send(self) -> None:
        try:
            await self._send_waiting()
        except RpcError as error:  # a message was too large
            self._failure = error
            self._leave()
        finally:
            self._sending = False


def join_trial_nowait(
    opener: CallOpener,
    trial_id: str,
    handler: ActorHandler,
    *,
    actor_name: str,
    spawn: Callable[..., None],
    spec: Spec | None = None,
    host: Host | None = None,
    as_objects: bool = False,
) -> DirectActor | None:
    """Take part in a trial as a client actor without a task, where that is possible: in process.

    Args:
        opener: of the orchestrator.
        trial_id: the trial.
        handler: is told of everything, and that may be before this returns.
        actor_name: the actor to be.
        spawn: `start_soon` of a nursery, for messages that the orchestrator does not take at once.
        spec: the types of the project.
        host: gives the wall clock.
        as_objects: observations that are sent in this process as objects come as such; see `Session.handle_contents`.

    Returns:
        The actor; None elsewhere, and where it would wait. The handler is told why the trial cannot be joined.
    """
    wanted = ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput(actor_name=actor_name))
    call = opener.call_nowait(_RUN_TRIAL, metadata=((TRIAL_ID, trial_id),), first=wanted)
    if call is None:
        return None
    wall_clock = (host or Host()).wall_clock
    actor = DirectActor(
        call, trial_id, handler, spec=spec or Spec(), wall_clock=wall_clock, spawn=spawn, as_objects=as_objects
    )
    call.set_consumer(actor)
    return actor
