"""The events of a session."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Generic

from google.protobuf.any_pb2 import Any as AnyMessage
from typing_extensions import TypeVar

from trio_cogment.api.common_pb2 import RewardSource

#: The types of what a participant receives; a session without type arguments takes anything.
ObservationT = TypeVar("ObservationT", default=Any)
ActionT = TypeVar("ActionT", default=Any)


class EventType(enum.Enum):
    """The phase of the trial, as far as this participant knows."""

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


@dataclass(slots=True)
class RecvAction(Generic[ActionT]):
    """An actor's action in an action set.

    Attributes:
        actor_index: the actor, in the order of the trial parameters.
        available: False if the actor sent none in time and has no default action; then `payload` is None.
        payload: the action, of the type that the spec declares, or bytes.
    """

    actor_index: int
    available: bool
    payload: ActionT


@dataclass(slots=True)
class RecvReward:
    """The reward of a tick: the mean of its sources, weighted by confidence."""

    tick_id: int
    value: float
    sources: list[RewardSource]


@dataclass(slots=True)
class RecvMessage:
    """A message from another participant; unpack its payload with `message.payload.Unpack(...)`."""

    tick_id: int
    sender_name: str
    payload: AnyMessage


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
