"""The properties that a gateway has: a tree, in which a name is below the one that it goes on from after a dot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue

from trio_cogment._version import __version__
from trio_cogment.base.errors import FailedPreconditionError, LocalProtocolError
from trio_cogment.gateways.dm_env_rpc.gateway import setting_values as values
from trio_cogment.gateways.dm_env_rpc.gateway.records import PlayerRecord, Sending
from trio_cogment.gateways.dm_env_rpc.gateway.setting_values import NotThatError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


_NO_TRIAL = "there is no trial: it begins with the first step, and has not, or has ended"


@dataclass(frozen=True, slots=True)
class Place:
    """Who asks, and of what.

    Attributes:
        worlds: the worlds that there are, with the names of their free actors.
        record: the client's; None before JoinWorld.
        item: the last part of the name, for a property that is one of several alike.
    """

    worlds: Mapping[str, Collection[str]]
    record: PlayerRecord | None = None
    item: str = ""

    @property
    def joined(self) -> PlayerRecord:
        """The client's record, for properties that are there only after JoinWorld."""
        assert self.record is not None
        return self.record

    @property
    def sending(self) -> Sending:
        """How the client reaches others.

        Raises:
            FailedPreconditionError: there is no trial.
        """
        if self.joined.sending is None:
            raise FailedPreconditionError(_NO_TRIAL)
        return self.joined.sending

    def others(self) -> Iterator[str]:
        """Yield the names of the other actors."""
        return (name for name, _ in self.joined.actors if name != self.joined.actor_name)


@dataclass(frozen=True, slots=True)
class Row:
    """A property, or all that are below another one.

    Attributes:
        text: its description.
        dtype: the type of its value, as of specifications; empty: it has no value.
        shape: of its value.
        read: returns the value.
        write: takes the value; it raises `NotThatError`.
        items: the last parts of the names, if there are several alike.
        joined: it is there only after JoinWorld.
    """

    text: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    read: Callable[[Place], ArrayLike] | None = None
    write: Callable[[Place, NDArray[Any]], None] | None = None
    items: Callable[[Place], Iterable[str]] | None = None
    joined: bool = True


#: The last part of a name in the table that stands for each of `Row.items`.
EACH = "*"


def _packed(messages: Iterable[Message]) -> NDArray[Any]:
    found = []
    for message in messages:
        packed = AnyMessage()
        packed.Pack(message)
        found.append(packed)
    array = np.empty(len(found), object)
    array[:] = found
    return array


def _strings(texts: Iterable[str]) -> NDArray[Any]:
    return np.array(list(texts), np.str_)


def _send_message(place: Place, value: NDArray[Any]) -> None:
    if value.ndim or value.dtype.kind not in "OU":
        raise NotThatError("a message in a scalar of the type PROTO, or a string")
    payload = value.item()
    if isinstance(payload, str):
        text, payload = payload, AnyMessage()
        payload.Pack(StringValue(value=text))
    sending = place.sending
    with _in_trial():
        sending.message(place.item, payload)


def _send_reward(place: Place, value: NDArray[Any]) -> None:
    sending, number = place.sending, values.number(value, bits=32)
    with _in_trial():
        sending.reward(place.item, number)


@contextmanager
def _in_trial() -> Iterator[None]:
    """Tell of a trial that has just ended as of any that has."""
    try:
        yield
    except LocalProtocolError:
        raise FailedPreconditionError(_NO_TRIAL) from None


def _receivers(place: Place) -> Iterator[str]:
    yield place.joined.environment_name
    yield from place.others()


TABLE: Mapping[str, Row] = {
    "server": Row("The gateway.", joined=False),
    "server.version": Row("The version of trio-cogment.", "str", read=lambda _: __version__, joined=False),
    "worlds": Row("The worlds there are.", "str", (-1,), read=lambda place: _strings(place.worlds), joined=False),
    "worlds.*": Row(
        "The actors of this world that nobody has joined as.",
        "str",
        (-1,),
        read=lambda place: _strings(place.worlds[place.item]),
        items=lambda place: place.worlds,
        joined=False,
    ),
    "trial": Row("The trial of the last sequence."),
    "trial.id": Row("Its id; empty before the first step.", "str", read=lambda place: place.joined.trial_id),
    "trial.state": Row("Its state.", "str", read=lambda place: place.joined.state),
    "trial.tick": Row("The tick of the last observation.", "int64", read=lambda place: np.int64(place.joined.tick)),
    "trial.actors": Row(
        "The names of all actors.",
        "str",
        (-1,),
        read=lambda place: _strings(name for name, _ in place.joined.actors),
    ),
    "trial.actors.*": Row(
        "The class of this actor.",
        "str",
        read=lambda place: dict(place.joined.actors)[place.item],
        items=lambda place: (name for name, _ in place.joined.actors),
    ),
    "trial.env": Row("The name of the environment.", "str", read=lambda place: place.joined.environment_name),
    "trial.last_error": Row(
        "Why the last trial could not start, or has ended early.", "str", read=lambda place: place.joined.last_error
    ),
    "reward": Row("The rewards since the last step."),
    "reward.sources": Row(
        "Where they come from: messages cogmentAPI.RewardSource.",
        "object",
        (-1,),
        read=lambda place: _packed(place.joined.reward_sources),
    ),
    "reward.late": Row(
        "How many rewards of this trial came for an earlier tick.",
        "int64",
        read=lambda place: np.int64(place.joined.late_rewards),
    ),
    "messages": Row("Messages from and to others in the trial."),
    "messages.in": Row(
        "Those that have come: messages cogmentAPI.Message. They are read once.",
        "object",
        (-1,),
        read=lambda place: _packed(place.joined.drain_messages()),
    ),
    "messages.out": Row("Those who can be sent messages."),
    "messages.out.*": Row(
        "Sends a message to this participant; a string goes as google.protobuf.StringValue.",
        "object",
        write=_send_message,
        items=_receivers,
    ),
    "feedback": Row("Those who can be sent rewards."),
    "feedback.*": Row(
        "Sends a reward to this actor, for the current tick.", "float32", write=_send_reward, items=Place.others
    ),
}
