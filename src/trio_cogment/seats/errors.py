"""Errors of a seat: they name environment, actor and field."""

from __future__ import annotations

from trio_cogment.base.errors import InvalidArgumentError


class SeatError(InvalidArgumentError):
    """Whoever has a seat answered with what is no action there, or cannot play there.

    Attributes:
        environment: the name of the trial's environment.
        actor: the agent whose seat it is.
        reason: the field, what was expected there, and what came.
    """

    def __init__(self, environment: str, actor: str, reason: object) -> None:
        super().__init__(f"environment {environment!r}, actor {actor!r}: {reason}")
        self.environment = environment
        self.actor = actor
        self.reason = str(reason)
