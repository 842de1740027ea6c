"""Trials of `cartpole.py` without a view: an environment of the embedded platform and a policy as its actor."""

from __future__ import annotations

import struct
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import gymnasium
import trio

import trio_cogment
from trio_cogment import Reward

T = TypeVar("T")

WARM_TICKS = 64
ACTIONS = (b"\0", b"\1")


def run_apart(main: Callable[[], Awaitable[T]]) -> T:
    """Run Trio in a thread of its own: in the main one it belongs to the views."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(trio.run, main).result()


class Game:
    """CartPole, to which a pole that falls means nothing but a new start: what is measured are its steps."""

    def __init__(self) -> None:
        self._env = gymnasium.make("CartPole-v1")
        self._env.reset(seed=1)

    def step(self, action: bytes) -> tuple[bytes, float]:
        values, reward, terminated, truncated, _ = self._env.step(action[0])
        if terminated or truncated:
            values, _ = self._env.reset()
        return struct.pack("4f", *values), float(reward)


async def _run(
    environment: Callable[[Any], Any], actor: Callable[[Any], Any], done: trio.Event, trials: int, store: str
) -> None:
    async with trio_cogment.open_platform(store=store or None) as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(actor, "policy")
        params = trio_cogment.trial_params(
            [trio_cogment.actor_params("player_0", "player")], datalog_endpoint="cogment://discover" if store else ""
        )
        for _ in range(trials):
            await platform.controller.start_trial(params)
        await done.wait()


def inline_step(steps: int, *, store: str = "") -> float:
    """Processor seconds of a tick with a reward, where events are handled where they arrive."""
    seats: list[trio_cogment.ActorSession] = []

    async def environment(session: trio_cogment.EnvironmentSession) -> None:
        game = Game()

        def on_event(event: trio_cogment.Event) -> None:
            if event.actions:
                observation, reward = game.step(event.actions[0].payload)
                session.produce_observations_nowait([("*", observation)], [Reward("*", reward)])

        await session.start([("*", bytes(16))])
        await session.handle(on_event)

    async def actor(session: trio_cogment.ActorSession) -> None:
        seats.append(session)
        await session.handle(lambda event: None)

    async def main() -> float:
        done, spent = trio.Event(), 0.0

        async def drive() -> None:
            nonlocal spent
            while not seats or seats[0].tick_id < 0:
                await trio.lowlevel.checkpoint()
            (seat,) = seats
            for step in range(WARM_TICKS):
                seat.do_action_nowait(ACTIONS[step & 1])
            before = time.process_time()
            for step in range(steps):
                seat.do_action_nowait(ACTIONS[step & 1])
                if step % 16 == 0:
                    await trio.lowlevel.checkpoint()  # the samples have to go somewhere
            spent = time.process_time() - before
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drive)
            await _run(environment, actor, done, 1, store)
        return spent / steps

    return run_apart(main)


def ordinary_step(steps: int, *, trials: int) -> float:
    """Processor seconds of a tick with a reward, in trials with ordinary sessions side by side."""
    ticks = WARM_TICKS + max(1, steps // trials)

    async def main() -> float:
        done, warm, before = trio.Event(), trio.Event(), 0.0
        warmed = ended = 0

        async def environment(session: trio_cogment.EnvironmentSession) -> None:
            nonlocal warmed, ended, before
            game, tick = Game(), 0
            await session.start([("*", bytes(16))])
            async for event in session.all_events():
                if event.actions:
                    tick += 1
                    if tick == WARM_TICKS:
                        warmed += 1
                        if warmed == trials:
                            before = time.process_time()
                            warm.set()
                        await warm.wait()
                    elif tick == ticks:
                        ended += 1
                        if ended == trials:
                            done.set()
                        await trio.sleep_forever()
                    observation, reward = game.step(event.actions[0].payload)
                    await session.produce_observations([("*", observation)], [Reward("*", reward)])

        await _run(environment, _policy, done, trials, "")
        return (time.process_time() - before) / (trials * (ticks - WARM_TICKS))

    return run_apart(main)


async def _policy(session: trio_cogment.ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(ACTIONS[event.tick_id & 1])


def short_trial(trials: int) -> float:
    """Processor seconds of a trial of one tick, from its start to its end, one after the other."""

    async def environment(session: trio_cogment.EnvironmentSession) -> None:
        await session.start([("*", bytes(16))])
        async for event in session.all_events():
            if event.actions:
                await session.end([("*", bytes(16))])

    async def main() -> float:
        async with trio_cogment.open_platform() as platform:
            platform.participants.register_environment(environment)
            platform.participants.register_actor(_policy, "policy")
            params = trio_cogment.trial_params([trio_cogment.actor_params("player_0", "player")])
            before = time.process_time()
            for _ in range(trials):
                await platform.controller.wait_trial(await platform.controller.start_trial(params))
            return (time.process_time() - before) / trials

    return run_apart(main)
