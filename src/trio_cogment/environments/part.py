"""The environment's part in a trial, over a host that runs the environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import trio

from trio_cogment.base.shared_message import Content
from trio_cogment.environments.episode import Turn
from trio_cogment.environments.hosts import Host, InlineHost, SteppedHost
from trio_cogment.environments.pool import Key, Pool
from trio_cogment.environments.stage import Opening
from trio_cogment.sdk import EnvironmentSession, Reward

#: The next actions come when the observations of the last ones have been sent.
_STEPS_AHEAD = 1
#: The bytes of the actors' actions, whether the trial ends with them, and whether the environment is to save itself.
_Asked: TypeAlias = tuple[list[Content | None], bool, bool]


class Part:
    """The environment's part in one trial."""

    def __init__(self, session: EnvironmentSession[Any, Any, Any], opening: Opening) -> None:
        """Prepare for a trial whose episode begins in this way."""
        self._session = session
        self._opening = opening
        self._stepped: SteppedHost | None = None

    async def play_inline(self, host: InlineHost) -> None:
        """Play with an environment on this thread: the answer to an event is sent while the event is handled."""
        session = self._session

        def on_actions(actions: list[Content | None]) -> None:
            self._tell(host.advance_now(actions, session.is_ending, session.wants_checkpoint))

        turn = host.begin_now(self._opening)
        await session.start(list(enumerate(turn.observations)))
        await session.handle_contents(on_actions)

    async def play_hosted(self, pool: Pool, key: Key, open_host: Callable[[], Awaitable[Host]]) -> None:
        """Play with an environment elsewhere, until the end of the trial; meanwhile heartbeats are answered.

        Args:
            pool: where the environment comes from, and is given back to.
            key: of the environment.
            open_host: makes one if none is idle.
        """
        session = self._session
        await session.start()
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[_Asked](_STEPS_AHEAD)
            nursery.start_soon(self._play_in_task, pool, key, open_host, receive)
            await session.handle_contents(
                lambda actions: send.send_nowait((actions, session.is_ending, session.wants_checkpoint))
            )
            nursery.cancel_scope.cancel()

    async def _play_in_task(
        self,
        pool: Pool,
        key: Key,
        open_host: Callable[[], Awaitable[Host]],
        receive: trio.MemoryReceiveChannel[_Asked],
    ) -> None:
        host = await pool.acquire(key, open_host)
        try:
            turn = await host.begin(self._opening)
            self._tell(turn)
            while not turn.over:
                actions, cut, save = await receive.receive()
                turn = await host.advance(actions, cut, save)
                self._tell(turn)
        finally:
            await pool.release(key, host)

    async def play_stepped(self, pool: Pool, key: Key, open_host: Callable[[], Awaitable[SteppedHost]]) -> None:
        """As `play_hosted`, with an environment that tells its turns where they arrive: no task is in between.

        Args:
            pool: see `play_hosted`.
            key: of the environment.
            open_host: makes one if none is idle.
        """
        session = self._session

        def on_actions(actions: list[Content | None]) -> None:
            assert self._stepped is not None, "actions answer observations"
            self._stepped.step(actions, session.is_ending, self._tell)

        await session.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._step_in_task, pool, key, open_host)
            await session.handle_contents(on_actions)
            nursery.cancel_scope.cancel()

    async def _step_in_task(self, pool: Pool, key: Key, open_host: Callable[[], Awaitable[SteppedHost]]) -> None:
        host = await pool.acquire(key, open_host)
        try:
            turn = await host.begin(self._opening)
            self._stepped = host
            self._tell(turn)
            if not turn.over:
                await host.wait_over()
        finally:
            await pool.release(key, host)

    def _tell(self, turn: Turn) -> None:
        session = self._session
        if session.is_over:
            return
        rewards = [
            Reward(actor.name, reward)
            for actor, reward in zip(session.actors, turn.rewards, strict=True)
            if reward is not None
        ]
        observations = list(enumerate(turn.observations))
        if turn.saved is not None:
            session.checkpoint(turn.saved)
        if turn.over:
            session.end_nowait(observations, rewards)
        else:
            session.produce_observations_nowait(observations, rewards)
