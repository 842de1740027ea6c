"""The events of a session."""

from __future__ import annotations

import enum
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic

from google.protobuf.any_pb2 import Any as AnyMessage
from typing_extensions import TypeVar

from trio_cogment.api.common_pb2 import RewardSource

#: The types of what a participant receives; a session without type arguments takes anything.
ObservationT = TypeVar("ObservationT", default=Any)
ActionT = TypeVar("ActionT", default=Any)


class EventType(enum.Enum):
    """The phase of the trial, as far as this participant knows. The numbers are those of the published SDK."""

    ACTIVE = 1
    #: The trial is ending: an observation of this type is the last one; the environment answers an action set of this
    #: type with the final observations.
    ENDING = 2
    #: The trial has ended in an orderly way; there are no further events. A trial that is ended hard has no such event.
    FINAL = 3


@dataclass(slots=True)
class RecvObservation(Generic[ObservationT]):
    """An observation. `payload` has the type that the spec declares, or is bytes; the timestamp is in nanoseconds."""

    tick_id: int
    timestamp: int
    payload: ObservationT


class ActorStatus(enum.Enum):
    """Where an action comes from. Environments see ACTIVE and UNAVAILABLE only: a default action looks like any other.

    The numbers are those of the published SDK.
    """

    #: The actor has sent the action.
    ACTIVE = 1
    #: There is no action: the actor sent none in time, and has no default action.
    UNAVAILABLE = 2
    #: The actor's default action was used. Only data logs are told.
    DEFAULT = 3
    #: The actor's last action was taken again: it was late, or is observed every n-th tick only. Only data logs are
    #: told; the published SDK has no such status.
    HELD = 1001


@dataclass(slots=True)
class RecvAction(Generic[ActionT]):
    """An actor's action, in an action set or in a sample.

    Attributes:
        actor_index: the actor, in the order of the trial parameters.
        status: where the action comes from.
        payload: the action, of the type that the spec declares, or bytes; None if the actor was unavailable.
        tick_id: the tick of the observation that the action answers.
        timestamp: in nanoseconds since the epoch: when the action set was made; in a sample, when the actor acted (0
            for an action that the actor did not send).
    """

    actor_index: int
    status: ActorStatus
    payload: ActionT
    tick_id: int = -1
    timestamp: int = 0

    @property
    def available(self) -> bool:
        """Whether there is an action."""
        return self.status is not ActorStatus.UNAVAILABLE


@dataclass(slots=True)
class RecvReward:
    """The reward of a tick: the mean of its sources, weighted by confidence."""

    tick_id: int
    value: float
    sources: list[RewardSource]
    receiver_name: str = ""


@dataclass(slots=True)
class RecvMessage:
    """A message from another participant; unpack its payload with `message.payload.Unpack(...)`."""

    tick_id: int
    sender_name: str
    payload: AnyMessage
    receiver_name: str = ""


@dataclass(slots=True)
class Event(Generic[ObservationT, ActionT]):
    """One event. Exactly one of the attributes after `tick_id` is set; in a FINAL event none is.

    Attributes:
        type: see `EventType`.
        tick_id: the tick to which the event belongs.
        observation: for actors.
        actions: for environments, one per actor.
        reward: for actors.
        message: for both.
    """

    type: EventType
    tick_id: int
    observation: RecvObservation[ObservationT] | None = None
    actions: list[RecvAction[ActionT]] | None = None
    reward: RecvReward | None = None
    message: RecvMessage | None = None


class EventStream(Generic[ObservationT, ActionT]):
    """The events of a session, as an asynchronous iterator without state of its own.

    Args:
        next_event: returns the next event, or raises `StopAsyncIteration`.
    """

    __slots__ = ("_next_event",)

    def __init__(self, next_event: Callable[[], Coroutine[Any, Any, Event[ObservationT, ActionT]]]) -> None:
        self._next_event = next_event

    def __aiter__(self) -> EventStream[ObservationT, ActionT]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Event[ObservationT, ActionT]]:
        # The session's own coroutine without a wrapper: this runs once per message.
        return self._next_event()
