"""Scores of a trial's actors, from its observations: returns, and how the episode ended for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Told(Protocol):
    """What an observation tells, the message or the object."""

    @property
    def reward(self) -> float | None:
        """Of the step that led here."""

    @property
    def terminated(self) -> bool:
        """The task has ended for the actor."""

    @property
    def truncated(self) -> bool:
        """It has been cut off."""


class Score:
    """The sums of the rewards of one trial, and the flags, by actor.

    Args:
        actors: the actors to count; the observations of others are ignored.

    Attributes:
        returns: the undiscounted return of each actor of which an observation was seen.
        terminated: the actors for whom the task ended by its own rules.
        truncated: those for whom it was cut off.
    """

    def __init__(self, actors: Iterable[str]) -> None:
        self._actors = frozenset(actors)
        self.returns: dict[str, float] = {}
        self.terminated: set[str] = set()
        self.truncated: set[str] = set()

    def add(self, actor: str, observation: Told) -> None:
        """Count an observation of an actor; each of a trial is to be given once."""
        if actor not in self._actors:
            return
        self.returns[actor] = self.returns.get(actor, 0.0) + (observation.reward or 0.0)
        if observation.terminated:
            self.terminated.add(actor)
        if observation.truncated:
            self.truncated.add(actor)

    @property
    def complete(self) -> bool:
        """Whether observations of all actors were seen."""
        return self.returns.keys() == self._actors
