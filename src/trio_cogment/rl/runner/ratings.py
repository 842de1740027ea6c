"""Ratings of players from the results of their games: Elo's, and counts of games with a prior."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: A player who is this much stronger is expected to score ten times as much as the other.
_SCALE = 400.0


def expected_score(rating: float, other: float) -> float:
    """Return what a player scores on average against another by Elo's model, from 0 to 1; a draw counts one half."""
    return 1.0 / (1.0 + math.pow(10.0, (other - rating) / _SCALE))


def updated(rating: float, other: float, score: float, *, step: float = 32.0) -> tuple[float, float]:
    """Return the ratings of two players after a game; their sum stays.

    Args:
        rating: of the first player.
        other: of the second one.
        score: of the first player: 1 for a win, 0.5 for a draw, 0 for a loss.
        step: how much a surprise counts (Elo's K).
    """
    change = step * (score - expected_score(rating, other))
    return rating + change, other - change


@dataclass(slots=True)
class Record:
    """Games against one opponent.

    Attributes:
        games: how many there were.
        score: the sum of their scores, from the learner's point of view.
    """

    games: int = 0
    score: float = 0.0

    def add(self, score: float) -> None:
        """Count a game."""
        self.games += 1
        self.score += score

    @property
    def win_rate(self) -> float:
        """The mean score, with one drawn game added, so that a few games do not say too much."""
        return (self.score + 0.5) / (self.games + 1)
