"""Sessions for implementations that are coroutines of asyncio, and how these run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any, Generic, TypeAlias

from trio_cogment.aio._awaited import awaited
from trio_cogment.aio._guest import Guest
from trio_cogment.sdk import ActorSession as TrioActorSession
from trio_cogment.sdk import DatalogSession as TrioDatalogSession
from trio_cogment.sdk import EnvironmentSession as TrioEnvironmentSession
from trio_cogment.sdk import Event, EventStream, LogSample, PreTrialSession, Reward
from trio_cogment.sdk.session_views import (
    ActionT,
    ActorSessionView,
    ConfigT,
    DatalogSessionView,
    EnvironmentSessionView,
    ObservationT,
    SentActionT,
    SentObservationT,
)


class ActorSession(
    ActorSessionView[Guest[Any], ObservationT, SentActionT, ConfigT], Generic[ObservationT, SentActionT, ConfigT]
):
    """An actor's part in one trial, for a coroutine of asyncio.

    See `trio_cogment.ActorSession`, also for the type arguments.
    """

    start = awaited(TrioActorSession.start)
    add_reward = awaited(TrioActorSession.add_reward)
    send_message = awaited(TrioActorSession.send_message)
    sending_done = awaited(TrioActorSession.sending_done)

    async def do_action(self, action: SentActionT, *, tick_id: int | None = None) -> None:
        """See `trio_cogment.ActorSession.do_action`."""
        await self._caller.call(self._target.do_action, action, tick_id=tick_id)

    def all_events(self) -> AsyncIterator[Event[ObservationT, None]]:
        """Return the events of the trial, in order, until its end; see `trio_cogment.sdk.Session.all_events`."""
        return _events(self._target.all_events(), self._caller)


class EnvironmentSession(
    EnvironmentSessionView[Guest[Any], SentObservationT, ActionT, ConfigT], Generic[SentObservationT, ActionT, ConfigT]
):
    """An environment's part in one trial, for a coroutine of asyncio.

    See `trio_cogment.EnvironmentSession`, also for the type arguments.
    """

    add_reward = awaited(TrioEnvironmentSession.add_reward)
    send_message = awaited(TrioEnvironmentSession.send_message)
    sending_done = awaited(TrioEnvironmentSession.sending_done)

    async def start(
        self,
        observations: Sequence[tuple[str | int, SentObservationT]] | None = None,
        rewards: Iterable[Reward] = (),
        *,
        auto_done_sending: bool = True,
    ) -> None:
        """See `trio_cogment.EnvironmentSession.start`."""
        await self._caller.call(self._target.start, observations, rewards, auto_done_sending=auto_done_sending)

    async def produce_observations(
        self, observations: Sequence[tuple[str | int, SentObservationT]], rewards: Iterable[Reward] = ()
    ) -> None:
        """See `trio_cogment.EnvironmentSession.produce_observations`."""
        await self._caller.call(self._target.produce_observations, observations, rewards)

    async def end(
        self, final_observations: Sequence[tuple[str | int, SentObservationT]], rewards: Iterable[Reward] = ()
    ) -> None:
        """See `trio_cogment.EnvironmentSession.end`."""
        await self._caller.call(self._target.end, final_observations, rewards)

    def all_events(self) -> AsyncIterator[Event[None, ActionT]]:
        """Return the events of the trial, in order, until its end; see `trio_cogment.sdk.Session.all_events`."""
        return _events(self._target.all_events(), self._caller)


class DatalogSession(DatalogSessionView[Guest[Any]]):
    """The log of one trial, for a coroutine of asyncio: `async for sample in session`."""

    def __aiter__(self) -> DatalogSession:
        return self

    async def __anext__(self) -> LogSample:
        sample = await self._caller.call(_next_sample, self._target)
        if sample is None:
            raise StopAsyncIteration
        return sample


ActorCoroutine: TypeAlias = Callable[[ActorSession[Any, Any, Any]], Coroutine[Any, Any, None]]
EnvironmentCoroutine: TypeAlias = Callable[[EnvironmentSession[Any, Any, Any]], Coroutine[Any, Any, None]]
PreTrialCoroutine: TypeAlias = Callable[[PreTrialSession], Coroutine[Any, Any, None]]
DatalogCoroutine: TypeAlias = Callable[[DatalogSession], Coroutine[Any, Any, None]]


async def _events(
    stream: EventStream[ObservationT, ActionT], guest: Guest[Any]
) -> AsyncIterator[Event[ObservationT, ActionT]]:
    while (event := await guest.call(_next_event, stream)) is not None:
        yield event


async def _next_event(stream: EventStream[ObservationT, ActionT]) -> Event[ObservationT, ActionT] | None:
    return await anext(stream, None)


async def _next_sample(session: TrioDatalogSession) -> LogSample | None:
    return await anext(session, None)
