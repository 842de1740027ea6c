"""Observations and actions as payloads, and actions from payloads, near the least that has to be done.

Within the process the objects themselves travel (`ObjectPayload`), and what is made here of bytes is only for those
who need bytes. Of an array, a copy is kept from which the bytes can be made later: whoever has the array may change it.

What is the same at every step of one actor, the beginning of a message and its flags, is serialised once and joined
with the bytes of the array. The result is, byte for byte, what `encode_observation` and protobuf write. Everything
that does not have the form that its space leads to expect takes the way of `trio_cogment.spaces`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from typing_extensions import override

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.base.shared_message import ObjectPayload
from trio_cogment.spaces import (
    ArraySpace,
    Discrete,
    Frame,
    Observation,
    Space,
    SpaceError,
    decode_action,
    encode_action,
    encode_array,
    encode_observation,
    encode_space,
)
from trio_cogment.spaces.envelopes import DEFAULT_MEDIA_TYPE, action_form, fill_mask_and_info
from trio_cogment.spaces.forms import Form
from trio_cogment.spaces.values import fill_value

_DOUBLE = struct.Struct("<d")
_REWARD_TAG = pb.Observation(reward=1.0).SerializeToString()[: -_DOUBLE.size]
_SCALAR = pb.Array(scalar=True).SerializeToString()
#: By (active, alive): what comes before the reward. By (terminated, truncated): what comes after it.
_HEADS = {
    flags: pb.Observation(active=flags[0], alive=flags[1]).SerializeToString()
    for flags in itertools.product((False, True), repeat=2)
}
_TAILS = {
    flags: pb.Observation(terminated=flags[0], truncated=flags[1]).SerializeToString()
    for flags in itertools.product((False, True), repeat=2)
}
#: The same of an agent that goes on.
_GOES_ON, _NO_END = _HEADS[True, True] + _REWARD_TAG, _TAILS[False, False]
#: This many forms of actions are remembered for each actor whose actions are numbers.
_REMEMBERED = 1024


class ObservationPayload(ObjectPayload):
    """An observation, and the parts of its message: all that can be changed of it is kept as bytes."""

    __slots__ = ("_array", "_head", "_tail")

    def __init__(self, value: Observation, head: bytes, array: bytes, tail: bytes) -> None:
        self.value = value
        self._content = None
        self._head = head
        self._array = array
        self._tail = tail

    def __len__(self) -> int:
        return len(self._head) + len(self._array) + len(self._tail)

    @override
    def encode(self) -> bytes:
        return b"".join((self._head, self._array, self._tail))


class ObservationEncoder:
    """Makes the observations of one actor payloads."""

    def __init__(self, space: Space) -> None:
        """Prepare for values of a space."""
        self._dtype: Any = None
        self._shape: tuple[int, ...] = ()
        self._type: type[Any] = np.ndarray
        self._prefix = self._suffix = b""
        self._form = None if isinstance(space, ArraySpace) else Form.of(space, _nested)
        if isinstance(space, ArraySpace) and 0 not in space.shape:
            self._shape, self._dtype = space.shape, space.dtype
            self._prefix = _prefix_of(np.zeros(space.shape, space.dtype), isinstance(space, Discrete))
            if isinstance(space, Discrete):
                self._type, self._suffix = space.dtype.type, _SCALAR

    def encode(self, observation: Observation) -> ObjectPayload:
        """Return an observation, whose frame and spaces are not looked at, as a payload.

        Raises:
            SpaceError: a part of it cannot be encoded.
        """
        value: Any = observation.value
        form, nested = self._form, b""
        if form is not None and (encoded := form.encode(value)) is not None:
            array, nested = b"", encoded
        elif type(value) is not self._type or value.dtype != self._dtype or value.shape != self._shape:
            return ObjectPayload(observation, encode_observation(observation).SerializeToString())
        else:
            array = value.tobytes()
        reward = observation.reward
        # In the order of the message's fields: an array comes first, any other value behind the flags.
        tail = b"".join(
            (
                self._suffix,
                _HEADS[observation.active, observation.alive],
                nested,
                b"" if reward is None else _REWARD_TAG + _DOUBLE.pack(reward),
                _TAILS[observation.terminated, observation.truncated],
            )
        )
        if observation.info or observation.action_mask is not None:
            tail += _further(observation)
        return ObservationPayload(observation, self._prefix, array, tail)

    def make_steps(
        self, step: Callable[[Any], Any], actions: Sequence[Any], elements: list[bytes], rewards: list[float]
    ) -> Any:
        """Make steps of an environment of Gymnasium while they return an array that an agent sees who goes on.

        Args:
            step: makes one.
            actions: of the steps.
            elements: are added the bytes of each array.
            rewards: are added the rewards.

        Returns:
            What the first step has returned that brought anything else; None: there was no such step.
        """
        kind, dtype, shape = self._type, self._dtype, self._shape
        add, add_reward = elements.append, rewards.append
        for action in actions:
            result = step(action)
            if type(result) is not tuple or len(result) != 5:
                return result
            value, reward, terminated, truncated, info = result
            if terminated is not False or truncated is not False or info or type(reward) is not float:
                return result
            if type(value) is not kind or value.dtype != dtype or value.shape != shape:
                return result
            add(value.tobytes())
            add_reward(reward)
        return None

    def plain(self, elements: Sequence[bytes], rewards: Sequence[float]) -> bytes:
        """Return the bytes of the observations of such steps, one after the other.

        They are what `encode` returns of the same without mask and information, in a fraction of the time.
        """
        count, width = len(elements), len(elements[0])
        head = np.frombuffer(self._prefix, np.uint8)
        middle = np.frombuffer(self._suffix + _GOES_ON, np.uint8)
        table = np.empty((count, len(head) + width + len(middle) + _DOUBLE.size + len(_NO_END)), np.uint8)
        at = 0
        for part in (
            head,
            np.frombuffer(b"".join(elements), np.uint8).reshape(count, width),
            middle,
            np.array(rewards, "<f8").view(np.uint8).reshape(count, _DOUBLE.size),
            np.frombuffer(_NO_END, np.uint8),
        ):
            table[:, at : at + part.shape[-1]] = part
            at += part.shape[-1]
        return table.tobytes()


def _nested(value: Any) -> bytes:
    message = pb.Observation()
    fill_value(message.nested, value)
    return message.SerializeToString()


def _prefix_of(array: np.ndarray[Any, Any], scalar: bool) -> bytes:
    message = encode_array(array)
    message.scalar = scalar
    suffix = len(_SCALAR) if scalar else 0
    return pb.Observation(value=message).SerializeToString()[: -array.nbytes - suffix]


def _further(observation: Observation) -> bytes:
    message = pb.Observation()
    fill_mask_and_info(message, observation)
    return message.SerializeToString()


def encoded_spaces(observation_space: Space, action_space: Space) -> bytes:
    """Return what the bytes of an actor's first observation are followed by: its spaces."""
    message = pb.Observation(observation_space=encode_space(observation_space), action_space=encode_space(action_space))
    return message.SerializeToString()


def encoded_frame(frame: Frame) -> bytes:
    """Return what the bytes of an observation are followed by: a frame."""
    message = pb.Observation(rendered_frame=frame.data)
    if frame.media_type != DEFAULT_MEDIA_TYPE:
        message.frame_media_type = frame.media_type
    return message.SerializeToString()


def followed(payload: ObjectPayload, more: bytes) -> ObjectPayload:
    """Return a payload whose bytes are followed by others; its object does not have what they say."""
    return ObjectPayload(payload.value, bytes(payload) + more)


class ActionPayload(ObjectPayload):
    """An action that is known to be in its space: an environment of this process need not decode it.

    Args:
        value: a number, or an array that is nobody else's.
        space: the action space.
        content: its bytes, if they are known.
        size: how many bytes they are, if that is known.

    Attributes:
        space: see above.
    """

    __slots__ = ("_size", "space")

    def __init__(self, value: Any, space: Space, content: bytes | None = None, size: int | None = None) -> None:
        super().__init__(value, content)
        self.space = space
        self._size = size

    def __len__(self) -> int:
        return len(self.__bytes__()) if self._size is None else self._size

    @override
    def encode(self) -> bytes:
        return encode_action(self.value).SerializeToString()

    def copy(self) -> Any:
        """Return the action for an environment, which may change it."""
        value = self.value
        return value.copy() if type(value) is np.ndarray else value


class ActionDecoder:
    """Makes the payloads of one actor actions."""

    def __init__(self, space: Space) -> None:
        """Prepare for actions of a space."""
        self._space = space
        self._known: dict[bytes, Any] | None = {} if isinstance(space, Discrete) else None
        self._form = None if isinstance(space, ArraySpace) else action_form(space)

    def decode(self, payload: bytes | ObjectPayload) -> Any:
        """Return the action that a payload is; arrays can be written to.

        Raises:
            SpaceError: there is none, it makes no sense, or it is not in the space.
        """
        if type(payload) is ActionPayload and payload.space is self._space:
            return payload.copy()
        content = bytes(payload)
        known = self._known
        if known is not None and content in known:
            return known[content]
        if self._form is not None:
            try:
                value = self._form.decode(content)
            except SpaceError:
                value = None  # the other way says which part it is
            if value is not None:
                return value
        try:
            message = pb.Action.FromString(content)
        except DecodeError:
            raise SpaceError("expected an Action, got bytes that are none", root="action") from None
        if not message.HasField("value") and not message.HasField("nested"):
            raise SpaceError(f"expected a value of {self._space!r}, got none", root="action")
        # A copy, because environments may change what they get.
        action = decode_action(message, self._space, copy=True)
        if known is not None and len(known) < _REMEMBERED:
            known[content] = action
        return action

    def decode_all(self, payloads: Sequence[bytes]) -> list[Any]:
        """Do the same with several.

        Raises:
            SpaceError: one of them is no action of the space.
        """
        if self._known is None:
            return [self.decode(payload) for payload in payloads]
        values = {payload: self.decode(payload) for payload in set(payloads)}
        return [values[payload] for payload in payloads]
