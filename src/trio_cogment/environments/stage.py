"""The stage of an environment: called by its host, a thread, a process, or Trio's own thread. Nothing here waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trio_cogment.api.common_pb2 import TakenUp
from trio_cogment.base.shared_message import Content
from trio_cogment.base.taking_up import Past
from trio_cogment.environments.base import Environment
from trio_cogment.environments.episode import Episode, Turn
from trio_cogment.environments.errors import InvalidEnvironmentError
from trio_cogment.environments.making import Recipe
from trio_cogment.spaces import Space


@dataclass(frozen=True, slots=True)
class Opening:
    """How an episode begins.

    Attributes:
        actors: of the trial.
        frames_for: see `Episode`.
        seed, options: see `Environment.reset`.
        taken_up: the stored trial with which it goes on, if there is one; see `Episode.take_up`.
    """

    actors: tuple[str, ...]
    frames_for: frozenset[str] = frozenset()
    seed: int | None = None
    options: dict[str, Any] | None = None
    taken_up: TakenUp | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """What an environment says of itself before any episode; see `base.Environment`."""

    name: str
    agents: Sequence[str]
    observation_spaces: Mapping[str, Space]
    action_spaces: Mapping[str, Space]

    @classmethod
    def of(cls, environment: Environment) -> Description:
        """Return that of an environment."""
        return cls(
            environment.name,
            tuple(environment.agents),
            dict(environment.observation_spaces),
            dict(environment.action_spaces),
        )


class Stage:
    """An environment, and the episodes of the trials that use it one after the other."""

    def __init__(self, recipe: Recipe) -> None:
        """Make the environment; see `Recipe.make` for what is raised."""
        self.environment = recipe.make()
        self._episode: Episode | None = None
        self._key: Any = None

    def begin(self, opening: Opening) -> Turn:
        """Begin an episode; see `Episode` and `Episode.begin`."""
        key = opening.actors, opening.frames_for
        if self._episode is None or self._key != key:
            self._episode = Episode(self.environment, opening.actors, frames_for=opening.frames_for)
            self._key = key
        try:
            if opening.taken_up is not None:
                return self._episode.take_up(Past.of(opening.taken_up), opening.seed, opening.options)
            return self._episode.begin(opening.seed, opening.options)
        except SystemExit as error:
            raise self._exited(error) from error

    def advance(self, actions: Sequence[Content | None], cut: bool, save: bool = False) -> Turn:
        """Make a step; see `Episode.advance`."""
        assert self._episode is not None, "an episode has begun"
        try:
            return self._episode.advance(actions, cut=cut, save=save)
        except SystemExit as error:
            raise self._exited(error) from error

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()

    def _exited(self, error: SystemExit) -> InvalidEnvironmentError:
        # It must end its trial alone, not the program.
        return InvalidEnvironmentError(self.environment.name, "", f"expected no exit of the program, got {error!r}")
