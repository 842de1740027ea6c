"""Environments and actors over sessions, whose trials are short and known in advance."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import trio

from trio_cogment.api import rl_pb2
from trio_cogment.api.spaces_pb2 import Action, Observation
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.sdk import ActorSession, EnvironmentSession, EventType, Participants

#: No 32-bit float is equal to it.
REWARD = 0.1


def countdown(ticks: int = 3, *, reward: float = REWARD) -> Callable[[Any], Awaitable[None]]:
    """An environment of this many steps, each rewarded; the first actor gets what its seed says on top, at the end."""

    async def run(session: EnvironmentSession[Any, Any, Any]) -> None:
        config: rl_pb2.EnvironmentConfig = session.config
        names = [actor.name for actor in session.actors]

        def all_get(*, last: bool = False, **of: Any) -> list[tuple[str, Observation]]:
            observations = [(name, Observation(active=True, alive=True, **of)) for name in names]
            if last:
                observations[0][1].reward += config.seed
            return observations

        await session.start(all_get())
        left = ticks
        async for event in session.all_events():
            if event.actions is None:
                continue
            left -= 1
            if event.type is EventType.ENDING:
                await session.produce_observations(all_get(reward=reward))
            elif left == 0:
                await session.end(all_get(reward=reward, terminated=True, last=True))
            else:
                await session.produce_observations(all_get(reward=reward))

    return run


async def answering(session: ActorSession[Any, Any, Any]) -> None:
    """Answers every observation."""
    async for event in session.all_events():
        if event.observation is not None and event.type is EventType.ACTIVE:
            await session.do_action(Action())


def gated(gate: trio.Event) -> Callable[[Any], Awaitable[None]]:
    """An actor that answers when a gate has opened."""

    async def run(session: ActorSession[Any, Any, Any]) -> None:
        async for event in session.all_events():
            if event.observation is not None and event.type is EventType.ACTIVE:
                await gate.wait()
                await session.do_action(Action())

    return run


def participants(ticks: int = 3) -> Participants:
    """The participants of a platform where everybody is registered."""
    found = Participants(RL_SPEC)
    found.register_environment(countdown(ticks))
    found.register_actor(answering, "answering", [PLAYER])
    return found


def failing_at(*numbers: int, wrapped: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """A participant that raises in the trials of these numbers, by their order."""
    count: Iterator[int] = itertools.count()

    async def run(session: Any) -> None:
        if next(count) in numbers:
            raise RuntimeError("out of luck")
        await wrapped(session)

    return run
