"""Deltas of players, as the old programs apply them."""

from typing import Any


def add(observation: Any, delta: Any) -> Any:
    """Add the step of a delta to that of the observation."""
    observation.step += delta.step
    return observation
