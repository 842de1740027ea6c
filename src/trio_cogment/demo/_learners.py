"""The actors: two tables that learn from rewards, and from nothing else.

The learning is Q-learning without a future: what a choice is worth is the mean of what it brought. Two things make two
such learners agree on a code every time. They begin as optimists, so that each choice is tried until it disappoints.
And they explore less and less: while the other still changes its mind, what it did long ago must not weigh too much.
"""

from __future__ import annotations

import random

from google.protobuf.wrappers_pb2 import UInt32Value

from trio_cogment.demo._game import SILENCE
from trio_cogment.sdk import ActorSession, EventType

LEARNING_RATE = 0.02
#: How often the first choices are made blindly, and after which part of the trial none is.
EXPLORATION = 1.0
EXPLORATION_ENDS = 0.8
#: The most a choice can bring.
OPTIMISM = 1.0


class Learner:
    """What somebody believes each choice to be worth in each situation.

    Args:
        situations: how many there are.
        choices: how many there are.
        rng: for exploring, and for choosing among equals.
        ticks: how long the trial will be.
        learning: False: guess, always.
    """

    def __init__(self, situations: int, choices: int, rng: random.Random, *, ticks: int, learning: bool = True) -> None:
        self._worth = [[OPTIMISM] * choices for _ in range(situations)]
        self._rng = rng
        self._exploration_ends = EXPLORATION_ENDS * ticks
        self._learning = learning

    def choose(self, situation: int, tick_id: int) -> int:
        """Make a choice, now and then a blind one."""
        worth = self._worth[situation]
        exploration = EXPLORATION * max(0.0, 1 - tick_id / self._exploration_ends)
        if not self._learning or self._rng.random() < exploration:
            return self._rng.randrange(len(worth))
        highest = max(worth)
        return self._rng.choice([choice for choice, value in enumerate(worth) if value == highest])

    def learn(self, situation: int, choice: int, reward: float) -> None:
        """Remember what a choice brought."""
        if self._learning:
            worth = self._worth[situation]
            worth[choice] += LEARNING_RATE * (reward - worth[choice])

    def best(self, situation: int) -> int:
        """Return the choice believed to be worth most."""
        worth = self._worth[situation]
        return worth.index(max(worth))


class Speaker:
    """Sees a colour, says a symbol. Whether the listener understood shows a tick later."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    async def __call__(self, session: ActorSession) -> None:
        """Take part in a trial."""
        said = before = (0, 0)
        async for event in session.all_events():
            if event.reward is not None:
                self._learner.learn(*before, event.reward.value)
            elif event.observation is not None and event.type is EventType.ACTIVE:
                colour = event.observation.payload.value
                before, said = said, (colour, self._learner.choose(colour, event.tick_id))
                await session.do_action(UInt32Value(value=said[1]))


class Listener:
    """Sees a symbol, names a colour."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    async def __call__(self, session: ActorSession) -> None:
        """Take part in a trial."""
        heard = (0, 0)
        async for event in session.all_events():
            if event.reward is not None:
                self._learner.learn(*heard, event.reward.value)
            elif event.observation is not None and event.type is EventType.ACTIVE:
                symbol = event.observation.payload.value
                if symbol != SILENCE:
                    heard = (symbol, self._learner.choose(symbol, event.tick_id))
                await session.do_action(UInt32Value(value=heard[1]))
