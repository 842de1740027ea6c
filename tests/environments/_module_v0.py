"""A module as those of PettingZoo."""

from tests.environments import _games

parallel_env = _games.Rps

__all__ = ["parallel_env"]
