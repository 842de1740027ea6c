"""Sessions for implementations that are coroutines of asyncio, and how these run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeAlias

from trio_cogment.aio._awaited import awaited
from trio_cogment.aio._guest import Guest
from trio_cogment.sdk import ActorSession as TrioActorSession
from trio_cogment.sdk import EnvironmentSession as TrioEnvironmentSession
from trio_cogment.sdk import Event, EventStream
from trio_cogment.sdk.session_views import ActorSessionView, EnvironmentSessionView


class ActorSession(ActorSessionView[Guest[Any]]):
    """An actor's part in one trial, for a coroutine of asyncio; see `trio_cogment.ActorSession`."""

    start = awaited(TrioActorSession.start)
    do_action = awaited(TrioActorSession.do_action)
    add_reward = awaited(TrioActorSession.add_reward)
    send_message = awaited(TrioActorSession.send_message)
    sending_done = awaited(TrioActorSession.sending_done)

    def all_events(self) -> AsyncIterator[Event]:
        """Return the events of the trial, in order, until its end; see `trio_cogment.sdk.Session.all_events`."""
        return _events(self._target.all_events(), self._caller)


class EnvironmentSession(EnvironmentSessionView[Guest[Any]]):
    """An environment's part in one trial, for a coroutine of asyncio; see `trio_cogment.EnvironmentSession`."""

    start = awaited(TrioEnvironmentSession.start)
    produce_observations = awaited(TrioEnvironmentSession.produce_observations)
    end = awaited(TrioEnvironmentSession.end)
    add_reward = awaited(TrioEnvironmentSession.add_reward)
    send_message = awaited(TrioEnvironmentSession.send_message)
    sending_done = awaited(TrioEnvironmentSession.sending_done)

    def all_events(self) -> AsyncIterator[Event]:
        """Return the events of the trial, in order, until its end; see `trio_cogment.sdk.Session.all_events`."""
        return _events(self._target.all_events(), self._caller)


ActorCoroutine: TypeAlias = Callable[[ActorSession], Coroutine[Any, Any, None]]
EnvironmentCoroutine: TypeAlias = Callable[[EnvironmentSession], Coroutine[Any, Any, None]]


async def _events(stream: EventStream, guest: Guest[Any]) -> AsyncIterator[Event]:
    while (event := await guest.call(_next_event, stream)) is not None:
        yield event


async def _next_event(stream: EventStream) -> Event | None:
    return await anext(stream, None)
