"""Runs the demo's trial, in process or over local sockets; only the connections differ."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import trio

from trio_cogment.base.endpoints import DISCOVER
from trio_cogment.base.errors import UnavailableError
from trio_cogment.cli.demonstration._game import COLOURS, LISTENER, SPEAKER, SPEC, SYMBOLS, Environment, OnTick
from trio_cogment.cli.demonstration._learners import Learner, Listener, Speaker
from trio_cogment.platform import open_platform
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.sdk import Controller, Participants, actor_params, serve_participants, trial_params

DEFAULT_TICKS = 6000
_LOOPBACK = "127.0.0.1"
_MAX_INACTIVITY_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The result. The same seed, length and learning give the same result, except for `seconds` and `grpc`.

    Attributes:
        seed: the seed of all random generators.
        ticks: the length of the trial.
        learning: whether the actors learned.
        grpc: whether it ran over sockets.
        rewards: one for each guess: 1 for right, 0 for wrong.
        symbols: for each colour, the symbol that the speaker sends.
        meanings: for each symbol, the colour that the listener names.
        seconds: how long the trial took.
    """

    seed: int
    ticks: int
    learning: bool
    grpc: bool
    rewards: tuple[float, ...]
    symbols: tuple[int, ...]
    meanings: tuple[int, ...]
    seconds: float

    @property
    def first(self) -> float:
        """The mean reward of the first tenth."""
        return _mean(self.rewards[: self._tenth])

    @property
    def last(self) -> float:
        """The mean reward of the last tenth."""
        return _mean(self.rewards[-self._tenth :])

    @property
    def _tenth(self) -> int:
        return self.ticks // 10

    def curve(self, points: int) -> list[float]:
        """Return the mean rewards of `points` equal parts of the trial."""
        count = len(self.rewards)
        bounds = [count * point // points for point in range(points + 1)]
        return [_mean(self.rewards[start:end]) for start, end in pairwise(bounds) if end > start]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _quiet(_tick_id: int, _rewards: Sequence[float]) -> None:
    pass


async def run_demo(
    *,
    seed: int = 0,
    ticks: int = DEFAULT_TICKS,
    learning: bool = True,
    grpc: bool = False,
    on_tick: OnTick = _quiet,
) -> DemoResult:
    """Run the trial and return the result.

    Args:
        seed: the seed of all random generators.
        ticks: the length of the trial, 20 or more.
        learning: False: the actors guess.
        grpc: use local sockets instead of the in-process channel.
        on_tick: called after each tick.

    Raises:
        UnavailableError: the trial ended early.

    After `Cancelled` nothing is left running.
    """
    # Each participant has a random generator of its own, so that they do not influence each other.
    environment = Environment(random.Random(f"{seed} environment"), ticks=ticks, on_tick=on_tick)
    speaker, listener = learners(seed, ticks=ticks, learning=learning)
    participants = Participants(SPEC)
    participants.register_environment(environment, "signalling game")
    participants.register_actor(Speaker(speaker), "speaker", [SPEAKER])
    participants.register_actor(Listener(listener), "listener", [LISTENER])
    async with (_over_sockets if grpc else _in_process)(participants) as (controller, endpoint):
        started = time.perf_counter()
        trial_id = await controller.start_trial(
            trial_params(
                [
                    actor_params("speaker", SPEAKER, endpoint=endpoint),
                    actor_params("listener", LISTENER, endpoint=endpoint),
                ],
                environment="signalling game",
                environment_endpoint=endpoint,
                max_inactivity_seconds=_MAX_INACTIVITY_SECONDS,
            )
        )
        await controller.wait_trial(trial_id)
        seconds = time.perf_counter() - started
    if len(environment.rewards) < ticks - 1:
        raise UnavailableError(f"the trial ended early: {environment.details or 'no reason given'}")
    return DemoResult(
        seed=seed,
        ticks=ticks,
        learning=learning,
        grpc=grpc,
        rewards=tuple(environment.rewards),
        symbols=tuple(map(speaker.best, range(len(COLOURS)))),
        meanings=tuple(map(listener.best, range(len(SYMBOLS)))),
        seconds=seconds,
    )


def learners(seed: int, *, ticks: int, learning: bool) -> tuple[Learner, Learner]:
    """Return the learners of the speaker and the listener."""
    speaking, listening = (random.Random(f"{seed} {name}") for name in (SPEAKER, LISTENER))
    return (
        Learner(len(COLOURS), len(SYMBOLS), speaking, ticks=ticks, learning=learning),
        Learner(len(SYMBOLS), len(COLOURS), listening, ticks=ticks, learning=learning),
    )


@asynccontextmanager
async def _in_process(participants: Participants) -> AsyncIterator[tuple[Controller, str]]:
    async with open_platform(participants=participants) as platform:
        yield platform.controller, DISCOVER


@asynccontextmanager
async def _over_sockets(participants: Participants) -> AsyncIterator[tuple[Controller, str]]:
    # The participants are not registered with this orchestrator: they and the controller use sockets.
    async with open_platform(SPEC) as platform, trio.open_nursery() as nursery:
        served = await nursery.start(partial(serve_participants, participants, address=_LOOPBACK))
        serving = await nursery.start(serve, platform.services, await open_listeners(_LOOPBACK))
        async with Channel(_LOOPBACK, serving.port) as channel:
            yield Controller(channel, spec=SPEC), f"grpc://{_LOOPBACK}:{served.port}"
        nursery.cancel_scope.cancel()
