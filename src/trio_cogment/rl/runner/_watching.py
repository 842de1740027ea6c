"""Participants of this process whose observations are counted: sessions that show what passes through them.

The observations carry rewards in double precision and the flags of the episode's end, neither of which the rewards of
Cogment's API have. An environment's sets tell of all actors; an actor's observations of itself only.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from trio_cogment.api.spaces_pb2 import Observation
from trio_cogment.base.shared_message import ObjectPayload
from trio_cogment.rl.runner._score import Score, Told
from trio_cogment.sdk import ActorImplementation, ActorSession, EnvironmentImplementation, EnvironmentSession, Event

#: The methods of an environment's session that take an observation set.
_SENDING = ("start", "produce_observations", "end")

#: Gives the score of a trial; None for one that is not of interest.
ScoreOf = Callable[[str], Score | None]


def watched_actor(implementation: ActorImplementation, score_of: ScoreOf) -> ActorImplementation:
    """Return an actor that does the same, and whose observations are counted."""

    async def run(session: ActorSession[Any, Any, Any]) -> None:
        score = score_of(session.trial_id)
        watched: Any = session if score is None else _WatchedActor(session, score)
        await implementation(watched)

    return run


def watched_environment(implementation: EnvironmentImplementation, score_of: ScoreOf) -> EnvironmentImplementation:
    """Return an environment that does the same, and whose observation sets are counted."""

    async def run(session: EnvironmentSession[Any, Any, Any]) -> None:
        score = score_of(session.trial_id)
        watched: Any = session if score is None else _WatchedEnvironment(session, score)
        await implementation(watched)

    return run


class _WatchedActor:
    """An actor's session, with events that are counted on their way."""

    def __init__(self, session: ActorSession[Any, Any, Any], score: Score) -> None:
        self._session = session
        self._score = score

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def all_events(self) -> _Events:
        """See `Session.all_events`."""
        return _Events(self._session.all_events().__anext__, self._count)

    async def handle(self, on_event: Callable[[Event[Any, Any]], None], **arguments: Any) -> None:
        """See `ActorSession.handle`."""

        def counted(event: Event[Any, Any]) -> None:
            self._count(event)
            on_event(event)

        session: Any = self._session
        await session.handle(counted, **arguments)

    def _count(self, event: Event[Any, Any]) -> None:
        if event.observation is not None:
            self._score.add(self._session.name, _parsed(event.observation.payload))


class _Events:
    """The events of a session, each of which is shown to a function first."""

    def __init__(self, following: Callable[[], Awaitable[Event[Any, Any]]], show: Callable[[Event], None]) -> None:
        self._following = following
        self._show = show

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> Event[Any, Any]:
        event = await self._following()
        self._show(event)
        return event


class _WatchedEnvironment:
    """An environment's session, with observation sets that are counted before they are sent."""

    def __init__(self, session: EnvironmentSession[Any, Any, Any], score: Score) -> None:
        self._session = session
        self._score = score
        self._names = [actor.name for actor in session.actors]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        if name.removesuffix("_nowait") not in _SENDING:
            return found

        def send(observations: Any = None, *args: Any, **arguments: Any) -> Any:
            if observations is not None:
                self._count(observations)
            return found(observations, *args, **arguments)

        return send

    def _count(self, observations: Iterable[tuple[str | int, Any]]) -> None:
        for target, payload in observations:
            observation = _parsed(payload)
            for name in self._named(target):
                self._score.add(name, observation)

    def _named(self, target: str | int) -> Iterable[str]:
        if isinstance(target, int):
            return self._names[target : target + 1]
        if target in self._names:
            return (target,)
        # All actors of a trial of this kind have the same class.
        return self._names if target.endswith("*") else (target.rpartition(".")[2],)


def _parsed(payload: Any) -> Told:
    if isinstance(payload, ObjectPayload):
        told: Told = payload.value
        return told
    return Observation.FromString(payload) if isinstance(payload, bytes) else payload


def is_asynchronous(value: object) -> bool:
    """Whether a function's result has to be awaited."""
    return inspect.isawaitable(value)
