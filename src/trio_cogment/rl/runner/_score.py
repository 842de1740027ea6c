"""Scores of a trial's actors, from its observations: returns, and how the episode ended for each."""

from __future__ import annotations

from collections.abc import Iterable

from trio_cogment.api.spaces_pb2 import Observation


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

    def add(self, actor: str, observation: Observation) -> None:
        """Count an observation of an actor; each of a trial is to be given once."""
        if actor not in self._actors:
            return
        reward = observation.reward if observation.HasField("reward") else 0.0
        self.returns[actor] = self.returns.get(actor, 0.0) + reward
        if observation.terminated:
            self.terminated.add(actor)
        if observation.truncated:
            self.truncated.add(actor)

    @property
    def complete(self) -> bool:
        """Whether observations of all actors were seen."""
        return self.returns.keys() == self._actors
