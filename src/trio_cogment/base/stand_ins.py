"""Notes of who acted for a person who was away: from the actor to itself, so that they are stored with the action.

To the trial, whatever comes from a person's seat is that actor's. The note is a message of the tick whose sender is its
only receiver, a `google.protobuf.StringValue`: "stand-in: bot" or "stand-in: default".
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import StringValue

_BEGIN = "stand-in: "


class StandIn(enum.Enum):
    """What acted."""

    #: A bot did.
    BOT = "bot"
    #: The default action of the trial's parameters was taken.
    DEFAULT = "default"


_NOTES = {f"{_BEGIN}{one.value}": one for one in StandIn}


def stand_in_note(stand_in: StandIn) -> StringValue:
    """Return the message that an actor sends to itself before it acts."""
    return StringValue(value=f"{_BEGIN}{stand_in.value}")


def stand_in_of(sent_to_itself: Iterable[AnyMessage]) -> StandIn | None:
    """Return what acted in a tick, from what the actor has sent to itself; None: the actor did."""
    for payload in sent_to_itself:
        text = StringValue()
        try:
            found = _NOTES.get(text.value) if payload.Unpack(text) else None
        except DecodeError:
            continue
        if found is not None:
            return found
    return None
