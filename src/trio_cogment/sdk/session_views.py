"""Views of sessions for implementations that do not run in Trio: the attributes of the session behind each.

`trio_cogment.sync` and `trio_cogment.aio` add the methods, each in its own way of waiting.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from trio_cogment.api.common_pb2 import TakenUp, TrialParams
from trio_cogment.sdk._actor import ActorSession, ConfigT, SentActionT
from trio_cogment.sdk._datalog import DatalogSession
from trio_cogment.sdk._environment import ActorInfo, EnvironmentSession, SentObservationT
from trio_cogment.sdk._events import ActionT, ObservationT

#: The type arguments of sessions; see `ActorSession` and `EnvironmentSession` of the SDK.
__all__ = [
    "ActionT",
    "ActorSessionView",
    "CallerT",
    "ConfigT",
    "DatalogSessionView",
    "EnvironmentSessionView",
    "ObservationT",
    "SentActionT",
    "SentObservationT",
    "View",
]

CallerT = TypeVar("CallerT")
TargetT = TypeVar("TargetT")


class View(Generic[TargetT, CallerT]):
    """An object of the Trio program, seen from elsewhere.

    Args:
        target: the object.
        caller: calls its methods in Trio.
    """

    def __init__(self, target: TargetT, caller: CallerT) -> None:
        self._target = target
        self._caller = caller


_SessionT = TypeVar("_SessionT", bound=ActorSession[Any, Any, Any] | EnvironmentSession[Any, Any, Any])


class _SessionView(View[_SessionT, CallerT], Generic[_SessionT, CallerT, ConfigT]):
    @property
    def name(self) -> str:
        """The participant's name in the trial."""
        return self._target.name

    @property
    def trial_id(self) -> str:
        """The id of the trial."""
        return self._target.trial_id

    @property
    def tick_id(self) -> int:
        """The tick of the most recent data; -1 before the first."""
        return self._target.tick_id

    @property
    def details(self) -> str | None:
        """Why the trial was ended hard; None if it was not."""
        return self._target.details

    @property
    def is_over(self) -> bool:
        """True once the trial has ended for this participant."""
        return self._target.is_over

    @property
    def is_ending(self) -> bool:
        """True once the trial is ending, as far as this participant knows."""
        return self._target.is_ending

    @property
    def tick_hz(self) -> float:
        """Ticks a second, if the trial has ticks at a rate; 0: it has not."""
        return self._target.tick_hz

    @property
    def implementation(self) -> str:
        """The implementation that was requested; may be empty."""
        return self._target.implementation

    @property
    def config(self) -> ConfigT:
        """The configuration, of the type that the spec declares, or bytes; None if there is none."""
        config: ConfigT = self._target.config
        return config

    @property
    def required_config(self) -> Any:
        """`config`, for an implementation that cannot do without it; see `ActorSession.required_config`."""
        return self._target.required_config


class ActorSessionView(
    _SessionView[ActorSession[ObservationT, SentActionT, ConfigT], CallerT, ConfigT],
    Generic[CallerT, ObservationT, SentActionT, ConfigT],
):
    """The attributes of an `ActorSession`."""

    @property
    def actor_class(self) -> str:
        """The class of the actor."""
        return self._target.actor_class

    @property
    def environment_name(self) -> str:
        """The environment's name, for messages to it."""
        return self._target.environment_name

    @property
    def observe_every(self) -> int:
        """It is observed every n-th tick; 1: every tick."""
        return self._target.observe_every


class EnvironmentSessionView(
    _SessionView[EnvironmentSession[SentObservationT, ActionT, ConfigT], CallerT, ConfigT],
    Generic[CallerT, SentObservationT, ActionT, ConfigT],
):
    """The attributes of an `EnvironmentSession`."""

    @property
    def actors(self) -> list[ActorInfo]:
        """The actors of the trial, in the order of its parameters."""
        return self._target.actors

    def take_up(self) -> TakenUp | None:
        """Say that this environment can go on with a stored trial; see `EnvironmentSession.take_up`."""
        return self._target.take_up()

    @property
    def wants_checkpoint(self) -> bool:
        """Whether it is time for `checkpoint`; see `EnvironmentSession.wants_checkpoint`."""
        return self._target.wants_checkpoint

    def checkpoint(self, content: bytes) -> None:
        """Store the state with the observations that are sent next; see `EnvironmentSession.checkpoint`."""
        self._target.checkpoint(content)


class DatalogSessionView(View[DatalogSession, CallerT]):
    """The attributes of a `DatalogSession`."""

    @property
    def trial_id(self) -> str:
        """The id of the trial."""
        return self._target.trial_id

    @property
    def user_id(self) -> str:
        """The user who started the trial."""
        return self._target.user_id

    @property
    def params(self) -> TrialParams:
        """The parameters of the trial."""
        return self._target.params
