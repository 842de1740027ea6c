"""The turns that connections of this run take, noted."""

from __future__ import annotations

from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import turns_of_run


def noted_turns() -> list[tuple[Lane, int]]:
    """Return a list that gets the lane and the units of everything that is taken at once, or tried to, from now on."""
    turns = turns_of_run()
    take = turns.take
    taken: list[tuple[Lane, int]] = []

    def noting_take(lane: Lane, units: int = 1) -> bool:
        taken.append((lane, units))
        return take(lane, units)

    turns.take = noting_take
    return taken
