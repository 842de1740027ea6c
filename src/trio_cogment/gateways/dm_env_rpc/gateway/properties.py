"""Properties of a gateway, and the extension of dm_env_rpc by which clients list, read and write them.

`TABLE` is the tree of them, in which a name is below the one that it goes on from after a dot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.protobuf.wrappers_pb2 import StringValue

from trio_cogment._version import __version__
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2, properties_pb2
from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    LocalProtocolError,
    NotFoundError,
    RpcError,
    StatusCode,
    UnimplementedError,
)
from trio_cogment.gateways.dm_env_rpc.gateway import setting_values as values
from trio_cogment.gateways.dm_env_rpc.gateway.records import PlayerRecord, Sending
from trio_cogment.gateways.dm_env_rpc.gateway.setting_values import NotThatError, described
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensor_specs import TensorSpec
from trio_cogment.spaces.tensors import decode_tensor, fill_tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_LONGEST_SHOWN = 100
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


# The extension


def answer_extension(extension: AnyMessage, place: Place) -> AnyMessage:
    """Return the answer to an extension request.

    Args:
        extension: of the request.
        place: who asks.

    Raises:
        UnimplementedError: it is not about properties.
        InvalidArgumentError: it makes no sense, the property cannot be listed, or the value is not of its type.
        NotFoundError: there is no such property.
        RpcError: PERMISSION_DENIED: the property cannot be read, or not be written.
        FailedPreconditionError: it needs a trial, and there is none.
    """
    request = properties_pb2.PropertyRequest()
    kind = None
    try:
        if not extension.Unpack(request):
            name = extension.type_url.rpartition("/")[2][:_LONGEST_SHOWN]
            raise UnimplementedError(f"extension: expected {request.DESCRIPTOR.full_name}, got {name!r}")
        kind = request.WhichOneof("payload")
    except DecodeError:
        raise InvalidArgumentError("extension: expected a valid PropertyRequest") from None
    if kind is None:
        raise InvalidArgumentError(f"extension: expected one of {', '.join(_ANSWERS)}; got none")
    response = properties_pb2.PropertyResponse()
    _ANSWERS[kind](getattr(request, kind), getattr(response, kind), place)
    found = AnyMessage()
    found.Pack(response)
    return found


def _read(request: Any, response: Any, place: Place) -> None:
    row, place = _found(request.key, place)
    if row.read is None:
        raise _denied(request.key, "read")
    fill_tensor(response.value, row.read(place))


def _write(request: Any, response: Any, place: Place) -> None:
    row, place = _found(request.key, place)
    if row.write is None:
        raise _denied(request.key, "written")
    name = _shown(request.key)
    try:
        value = decode_tensor(request.value)
    except SpaceError as error:
        raise InvalidArgumentError(str(error.of(f"property {name!r}"))) from None
    try:
        row.write(place, value)
    except NotThatError as error:
        raise InvalidArgumentError(f"property {name!r}: expected {error}, got {described(value)}") from None
    response.SetInParent()


def _list(request: Any, response: Any, place: Place) -> None:
    if request.key:
        _found(request.key, place)
    below = list(_below(request.key, place))
    if not below and not _is_listable(request.key):
        raise InvalidArgumentError(f"property {_shown(request.key)!r}: there is nothing below it to list")
    response.SetInParent()
    for name, row in below:
        response.values.add(
            spec=_spec(name, row),
            is_readable=row.read is not None,
            is_writable=row.write is not None,
            is_listable=_is_listable(name),
            description=row.text,
        )


_ANSWERS: Mapping[str, Callable[[Any, Any, Place], None]] = {
    "read_property": _read,
    "write_property": _write,
    "list_property": _list,
}


def _found(name: str, place: Place) -> tuple[Row, Place]:
    """Return the row of a property, and the place with its item.

    Raises:
        NotFoundError: there is none.
    """
    row = TABLE.get(name) if not name.endswith(EACH) else None
    for pattern, each in _ITEMS.items():
        item = name[len(pattern) - 1 :]
        if row is None and name.startswith(pattern[:-1]) and _is_there(each, place) and item in _items(each, place):
            row, place = each, replace(place, item=item)
    if row is None or not _is_there(row, place):
        before = "" if row is None else "; it is there after JoinWorld"
        raise NotFoundError(f"there is no property {_shown(name)!r}{before}")
    return row, place


def _below(name: str, place: Place) -> Iterator[tuple[str, Row]]:
    """Yield the properties right below one."""
    for key, row in TABLE.items():
        if key.rpartition(".")[0] != name or not _is_there(row, place):
            continue
        if row.items is None:
            yield key, row
        else:
            yield from ((key.removesuffix(EACH) + item, row) for item in row.items(place))


def _is_listable(name: str) -> bool:
    return not name or any(key.rpartition(".")[0] == name for key in TABLE)


def _is_there(row: Row, place: Place) -> bool:
    return place.record is not None or not row.joined


def _items(row: Row, place: Place) -> set[str]:
    return set() if row.items is None else set(row.items(place))


def _spec(name: str, row: Row) -> dm_env_rpc_pb2.TensorSpec:
    return TensorSpec.of(name, row.dtype, row.shape).message() if row.dtype else dm_env_rpc_pb2.TensorSpec(name=name)


def _denied(name: str, doing: str) -> RpcError:
    return RpcError(StatusCode.PERMISSION_DENIED, f"property {_shown(name)!r}: it cannot be {doing}")


def _shown(name: str) -> str:
    return name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."


_ITEMS = {name: row for name, row in TABLE.items() if row.items is not None}
