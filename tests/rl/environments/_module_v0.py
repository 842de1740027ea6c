"""A module as those of PettingZoo."""

from tests.rl.environments import _games

parallel_env = _games.Rps

__all__ = ["parallel_env"]
