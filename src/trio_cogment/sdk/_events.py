"""What a session tells its user, one event at a time."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage

from trio_cogment.api.common_pb2 import RewardSource


class EventType(enum.Enum):
    """Where in its life the trial is, as far as this participant was told."""

    ACTIVE = 1
    #: The trial is ending: an observation of this type is the last one, an action set of this type wants the final
    #: observations.
    ENDING = 2
    #: The trial has ended in an orderly way; no further event comes. A trial that is ended hard has no such event.
    FINAL = 3


@dataclass(slots=True)
class RecvObservation:
    """An observation. `payload` has the type that the spec declares, or is bytes; the timestamp is in nanoseconds."""

    tick_id: int
    timestamp: int
    payload: Any


@dataclass(slots=True)
class RecvAction:
    """An actor's action in an action set.

    Attributes:
        actor_index: the actor, in the order of the trial parameters.
        available: False when the actor gave none in time and has no default; then `payload` is None.
        payload: of the type that the spec declares, or bytes.
    """

    actor_index: int
    available: bool
    payload: Any


@dataclass(slots=True)
class RecvReward:
    """A tick's reward: the mean of its sources, weighted by confidence."""

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
class Event:
    """One thing that arrived. Exactly one of the attributes below `type` and `tick_id` is set, none in a FINAL event.

    Attributes:
        type: see `EventType`.
        tick_id: the tick it belongs to.
        observation: for actors.
        actions: for environments, one per actor.
        reward: for actors.
        message: for both.
    """

    type: EventType
    tick_id: int
    observation: RecvObservation | None = None
    actions: list[RecvAction] | None = None
    reward: RecvReward | None = None
    message: RecvMessage | None = None
