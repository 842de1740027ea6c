"""The environment: it draws the colours, passes the symbols on, and rewards the guesses."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from google.protobuf.wrappers_pb2 import UInt32Value

from trio_cogment.sdk import EnvironmentSession
from trio_cogment.sdk.spec import ActorClass, Spec

COLOURS = ("red", "green", "blue", "yellow", "purple")
SYMBOLS = ("ba", "do", "ki", "lu", "me")
#: What the listener sees in the first tick, when nothing has been said yet.
SILENCE = len(SYMBOLS)

SPEAKER = "speaker"
LISTENER = "listener"

#: Observations and actions are numbers, in a message type of the protobuf library.
SPEC = Spec.of(
    ActorClass(SPEAKER, observation=UInt32Value, action=UInt32Value),
    ActorClass(LISTENER, observation=UInt32Value, action=UInt32Value),
)

#: Called with the number of the tick and the rewards so far.
OnTick = Callable[[int, Sequence[float]], None]


class Game:
    """The rules of the game, independent of the trial.

    A guess answers the symbol of the previous tick, which stands for the colour of that tick.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.colour = self._deal()
        self.symbol = SILENCE
        self._wanted: int | None = None

    def _deal(self) -> int:
        return self._rng.randrange(len(COLOURS))

    def step(self, symbol: int, guess: int) -> float | None:
        """Apply the actions of a tick; return the reward of the guess, or None if there was nothing to guess."""
        reward = None if self._wanted is None else float(guess == self._wanted)
        self._wanted, self.symbol = self.colour, symbol
        self.colour = self._deal()
        return reward


class Environment:
    """The game as a trial's environment, for one trial of a fixed length.

    Attributes:
        rewards: the reward of each guess, in order.
        details: why the trial was ended hard; None if it was not.
    """

    def __init__(self, rng: random.Random, *, ticks: int, on_tick: OnTick) -> None:
        self._game = Game(rng)
        self._ticks = ticks
        self._on_tick = on_tick
        self.rewards: list[float] = []
        self.details: str | None = None

    async def __call__(self, session: EnvironmentSession) -> None:
        """Run the trial."""
        await session.start(self._observations())
        async for event in session.all_events():
            if event.actions is None:
                continue
            speaker, listener = (action.payload.value for action in event.actions)
            reward = self._game.step(speaker, listener)
            if reward is not None:
                self.rewards.append(reward)
                await session.add_reward(reward, 1.0, "*")
            self._on_tick(event.tick_id, self.rewards)
            if event.tick_id + 1 < self._ticks:
                await session.produce_observations(self._observations())
            else:
                await session.end(self._observations())
        self.details = session.details

    def _observations(self) -> list[tuple[str, UInt32Value]]:
        return [
            (SPEAKER, UInt32Value(value=self._game.colour)),
            (LISTENER, UInt32Value(value=self._game.symbol)),
        ]
