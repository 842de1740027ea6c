"""Sessions for implementations that are ordinary functions: `for event in session.all_events()`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic

from trio_cogment.sdk import ActorSession as AsyncActorSession
from trio_cogment.sdk import DatalogSession as AsyncDatalogSession
from trio_cogment.sdk import EnvironmentSession as AsyncEnvironmentSession
from trio_cogment.sdk import Event, EventStream, LogSample, Reward
from trio_cogment.sdk.bridges.thread import Caller, FromWorkerThread
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
from trio_cogment.sync._blocking import blocking


class ActorSession(
    ActorSessionView[Caller, ObservationT, SentActionT, ConfigT], Generic[ObservationT, SentActionT, ConfigT]
):
    """An actor's part in one trial; see `trio_cogment.ActorSession`, also for the type arguments.

    Its methods may be called in the thread that runs the implementation. If the trial is cancelled, they raise
    `trio.Cancelled`, which has to be let through.
    """

    start = blocking(AsyncActorSession.start)
    add_reward = blocking(AsyncActorSession.add_reward)
    send_message = blocking(AsyncActorSession.send_message)
    sending_done = blocking(AsyncActorSession.sending_done)

    def do_action(self, action: SentActionT, *, tick_id: int | None = None) -> None:
        """See `trio_cogment.ActorSession.do_action`."""
        self._caller.call(self._target.do_action, action, tick_id=tick_id)

    def all_events(self) -> Iterator[Event[ObservationT, None]]:
        """Return the events of the trial, in order, until its end; see `trio_cogment.sdk.Session.all_events`."""
        return _events(self._target.all_events(), self._caller)


class EnvironmentSession(
    EnvironmentSessionView[Caller, SentObservationT, ActionT, ConfigT], Generic[SentObservationT, ActionT, ConfigT]
):
    """An environment's part in one trial; see `trio_cogment.EnvironmentSession`, and `ActorSession` here."""

    add_reward = blocking(AsyncEnvironmentSession.add_reward)
    send_message = blocking(AsyncEnvironmentSession.send_message)
    sending_done = blocking(AsyncEnvironmentSession.sending_done)

    def start(
        self,
        observations: Sequence[tuple[str | int, SentObservationT]] | None = None,
        rewards: Iterable[Reward] = (),
        *,
        auto_done_sending: bool = True,
    ) -> None:
        """See `trio_cogment.EnvironmentSession.start`."""
        self._caller.call(self._target.start, observations, rewards, auto_done_sending=auto_done_sending)

    def produce_observations(
        self, observations: Sequence[tuple[str | int, SentObservationT]], rewards: Iterable[Reward] = ()
    ) -> None:
        """See `trio_cogment.EnvironmentSession.produce_observations`."""
        self._caller.call(self._target.produce_observations, observations, rewards)

    def end(
        self, final_observations: Sequence[tuple[str | int, SentObservationT]], rewards: Iterable[Reward] = ()
    ) -> None:
        """See `trio_cogment.EnvironmentSession.end`."""
        self._caller.call(self._target.end, final_observations, rewards)

    def all_events(self) -> Iterator[Event[None, ActionT]]:
        """Return the events of the trial, in order, until its end; see `trio_cogment.sdk.Session.all_events`."""
        return _events(self._target.all_events(), self._caller)


class DatalogSession(DatalogSessionView[Caller]):
    """The log of one trial, as an iterator over its samples; see `trio_cogment.DatalogSession`."""

    def __iter__(self) -> Iterator[LogSample]:
        while (sample := self._caller.call(_next, self._target)) is not None:
            yield sample


def actor_session(session: AsyncActorSession[Any, Any, Any]) -> ActorSession[Any, Any, Any]:
    """Return a session for an actor that runs in a worker thread."""
    return ActorSession(session, FromWorkerThread())


def environment_session(session: AsyncEnvironmentSession[Any, Any, Any]) -> EnvironmentSession[Any, Any, Any]:
    """Return a session for an environment that runs in a worker thread."""
    return EnvironmentSession(session, FromWorkerThread())


def datalog_session(session: AsyncDatalogSession) -> DatalogSession:
    """Return a session for a data log that runs in a worker thread."""
    return DatalogSession(session, FromWorkerThread())


def _events(stream: EventStream[ObservationT, ActionT], caller: Caller) -> Iterator[Event[ObservationT, ActionT]]:
    while (event := caller.call(_next_event, stream)) is not None:
        yield event


async def _next_event(stream: EventStream[ObservationT, ActionT]) -> Event[ObservationT, ActionT] | None:
    return await anext(stream, None)


async def _next(session: AsyncDatalogSession) -> LogSample | None:
    return await anext(session, None)
