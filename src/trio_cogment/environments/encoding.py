"""Observations as bytes and actions from bytes, near the least that has to be done.

What is the same at every step of one actor, the beginning of a message and its flags, is serialised once and joined
with the bytes of the array. The result is, byte for byte, what `encode_observation` and protobuf write. Everything
that does not have the form that its space leads to expect takes the way of `trio_cogment.spaces`.
"""

from __future__ import annotations

import itertools
import struct
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces import (
    ArraySpace,
    Discrete,
    Frame,
    Observation,
    Space,
    SpaceError,
    decode_action,
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
#: So many forms of actions are remembered for each actor whose actions are numbers.
_REMEMBERED = 1024


class ObservationEncoder:
    """Encodes the observations of one actor."""

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

    def encode(self, observation: Observation) -> bytes:
        """Return an observation, whose frame and spaces are not looked at, as the bytes of its message.

        Raises:
            SpaceError: a part of it cannot be encoded.
        """
        value: Any = observation.value
        form = self._form
        if form is not None and (nested := form.encode(value)) is not None:
            return self._joined(b"", nested, observation)
        if type(value) is not self._type or value.dtype != self._dtype or value.shape != self._shape:
            return encode_observation(observation).SerializeToString()
        return self._joined(self._prefix + value.tobytes() + self._suffix, b"", observation)

    @staticmethod
    def _joined(array: bytes, nested: bytes, observation: Observation) -> bytes:
        """Return a message in the order of its fields: an array comes first, any other value behind the flags."""
        reward = observation.reward
        content: bytes = b"".join(
            (
                array,
                _HEADS[observation.active, observation.alive],
                nested,
                b"" if reward is None else _REWARD_TAG + _DOUBLE.pack(reward),
                _TAILS[observation.terminated, observation.truncated],
            )
        )
        if observation.info or observation.action_mask is not None:
            content += _further(observation)
        return content


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


class CheckedAction(NamedTuple):
    """An action whose sender is in the process of the environment, which so need not decode it.

    Attributes:
        content: the bytes of its message.
        action: the same as a value of the action space, the environment's from now on; None: it is to be decoded.
    """

    content: bytes
    action: Any = None


class ActionDecoder:
    """Decodes the actions of one actor."""

    def __init__(self, space: Space) -> None:
        """Prepare for actions of a space."""
        self._space = space
        self._known: dict[bytes, Any] | None = {} if isinstance(space, Discrete) else None
        self._form = None if isinstance(space, ArraySpace) else action_form(space)

    def decode(self, content: bytes) -> Any:
        """Return the action in the bytes of a message; arrays can be written to.

        Raises:
            SpaceError: there is none, it makes no sense, or it is not in the space.
        """
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
