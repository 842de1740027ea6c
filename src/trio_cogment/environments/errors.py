"""Errors of an environment, or of an action that it gets: they name environment, actor and field."""

from __future__ import annotations

from trio_cogment.base.errors import CogmentError, InvalidArgumentError


def _text(environment: str, actor: str, reason: object) -> str:
    return f"environment {environment!r}, {f'actor {actor!r}: ' if actor else ''}{reason}"


class InvalidEnvironmentError(CogmentError):
    """An environment has returned what its interface does not allow, or what its own spaces do not have.

    Attributes:
        environment: its name.
        actor: the agent whom it concerns; empty if that is none, or all.
        reason: the field, what was expected there, and what came.
    """

    def __init__(self, environment: str, actor: str, reason: object) -> None:
        super().__init__(_text(environment, actor, reason))
        self.environment = environment
        self.actor = actor
        self.reason = str(reason)


class InvalidActionError(InvalidArgumentError):
    """An agent whose turn it is gave no action, or one that is not in its action space; no step was made.

    Attributes:
        environment: the environment's name.
        actor: the agent.
        reason: what was expected, and what came.
    """

    def __init__(self, environment: str, actor: str, reason: object) -> None:
        super().__init__(_text(environment, actor, reason))
        self.environment = environment
        self.actor = actor
        self.reason = str(reason)


class TakingUpError(CogmentError):
    """An environment cannot go on with a stored trial: it does not come to the same observations again, for example.

    Attributes:
        environment: its name.
        actor: whose observation it is about; empty: nobody's.
        tick: of the stored trial.
        reason: the field, what was expected there, and what came.
    """

    def __init__(self, environment: str, actor: str, tick: int, reason: object) -> None:
        super().__init__(f"environment {environment!r}, tick {tick}, {f'actor {actor!r}: ' if actor else ''}{reason}")
        self.environment = environment
        self.actor = actor
        self.tick = tick
        self.reason = str(reason)


class EnvironmentFailedError(CogmentError):
    """An environment could not be made, or one in a process of its own has raised.

    What it raised is the cause of this error; of a process, its traceback is a note of this error.
    """


class EnvironmentLostError(CogmentError):
    """The process of an environment has ended while a trial needed it; the text says how."""
