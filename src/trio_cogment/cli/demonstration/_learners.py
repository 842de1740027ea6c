"""The actors: two tables that learn from rewards only.

They use Q-learning without discounted future rewards: the value of a choice is a running mean of its rewards. Two
things let the learners agree on a code every time. The initial values are optimistic, so that each choice is tried
until it disappoints. And exploration decreases over time, so that both settle on one code.
"""

from __future__ import annotations

import random

from google.protobuf.wrappers_pb2 import UInt32Value

from trio_cogment.cli.demonstration._game import SILENCE
from trio_cogment.sdk import ActorSession, EventType

LEARNING_RATE = 0.02
#: The initial share of random choices, and the part of the trial after which there are none.
EXPLORATION = 1.0
EXPLORATION_ENDS = 0.8
#: The initial value of each choice: the highest possible reward.
OPTIMISM = 1.0


class Learner:
    """The estimated value of each choice in each situation.

    Args:
        situations: the number of situations.
        choices: the number of choices.
        rng: the source of randomness for exploring and for ties.
        ticks: the length of the trial.
        learning: False: always choose at random.
    """

    def __init__(self, situations: int, choices: int, rng: random.Random, *, ticks: int, learning: bool = True) -> None:
        self._worth = [[OPTIMISM] * choices for _ in range(situations)]
        self._rng = rng
        self._exploration_ends = EXPLORATION_ENDS * ticks
        self._learning = learning

    def choose(self, situation: int, tick_id: int) -> int:
        """Choose: at random while exploring, otherwise the best choice."""
        worth = self._worth[situation]
        exploration = EXPLORATION * max(0.0, 1 - tick_id / self._exploration_ends)
        if not self._learning or self._rng.random() < exploration:
            return self._rng.randrange(len(worth))
        highest = max(worth)
        return self._rng.choice([choice for choice, value in enumerate(worth) if value == highest])

    def learn(self, situation: int, choice: int, reward: float) -> None:
        """Update the value of a choice with its reward."""
        if self._learning:
            worth = self._worth[situation]
            worth[choice] += LEARNING_RATE * (reward - worth[choice])

    def best(self, situation: int) -> int:
        """Return the choice with the highest value."""
        worth = self._worth[situation]
        return worth.index(max(worth))


class Speaker:
    """Sees a colour and sends a symbol. The reward for it arrives one tick later."""

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
    """Sees a symbol and names a colour."""

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
