"""Actions as bytes and observations from messages, near the least that has to be done.

What has the form that its space leads to expect is coded here; everything else takes the way of `trio_cogment.spaces`,
and the result is the same.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.base.shared_message import Content
from trio_cogment.environments.encoding import ActionPayload
from trio_cogment.spaces import (
    ArraySpace,
    Discrete,
    Observation,
    Space,
    SpaceError,
    check_action,
    decode_observation,
    encode_action,
    encode_array,
)

# isort: split
import numpy as np

#: What is answered by who is not asked.
NO_ACTION: bytes = pb.Action().SerializeToString()
#: This many encoded numbers are remembered for each actor.
_REMEMBERED = 1024


class ActionEncoder:
    """Encodes the actions of one actor, rounded as by `check_action`."""

    def __init__(self, space: Space) -> None:
        """Prepare for actions of a space."""
        self._space = space
        #: All arrays of a space take as many bytes.
        self._array_size: int | None = None
        if isinstance(space, ArraySpace):
            self._array_size = encode_action(np.zeros(space.shape, space.dtype)).ByteSize()
        # Only these two types: others are equal to an int, too, and not all of them are actions.
        self._known: dict[type[Any], dict[Any, ActionPayload]] = (
            {int: {}, np.int64: {}} if isinstance(space, Discrete) else {}
        )

    def encode(self, action: Any) -> Content:
        """Return an action as a payload: a number of the type that it was given as, an array that is a copy, or bytes.

        Raises:
            SpaceError: the action is not in the space.
        """
        known = self._known.get(type(action))
        if known is not None and action in known:
            return known[action]
        value = check_action(action, self._space)
        if type(value) is np.ndarray:
            return ActionPayload(value.copy(), self._space, size=self._array_size)
        content = encode_action(value).SerializeToString()
        if known is None:
            return content
        payload = ActionPayload(action, self._space, content)
        if len(known) < _REMEMBERED:
            known[action] = payload
        return payload


def observation_message(content: bytes) -> pb.Observation:
    """Parse an observation.

    Raises:
        SpaceError: the bytes are none.
    """
    try:
        return pb.Observation.FromString(content)
    except DecodeError:
        raise SpaceError("expected an Observation, got bytes that are none", root="observation") from None


class ObservationDecoder:
    """Decodes the observations of one actor; their arrays belong to whoever gets them."""

    def __init__(self, space: Space) -> None:
        """Prepare for values of a space."""
        self._dtype: Any = None
        self._shape: tuple[int, ...] = ()
        self._size = self._number = 0
        self._scalar = isinstance(space, Discrete)
        if isinstance(space, ArraySpace) and 0 not in space.shape:
            example = np.zeros(space.shape, space.dtype)
            if example.dtype.kind in "iuf":  # a bool can be wrong
                self._dtype, self._shape, self._size = example.dtype, space.shape, example.nbytes
                self._number = encode_array(example).dtype
        self._dimensions = list(self._shape)

    def decode(self, content: bytes) -> Observation:
        """Return an observation without the spaces that may be with it.

        Raises:
            SpaceError: the bytes are not a message, or a part of it makes no sense.
        """
        message = observation_message(content)
        array = message.value
        raw = array.raw_data
        if (
            self._dtype is None
            or len(raw) != self._size
            or array.dtype != self._number
            or array.scalar != self._scalar
            or list(array.shape) != self._dimensions
            or message.HasField("info")
            or message.HasField("action_mask")
            or message.HasField("rendered_frame")
        ):
            message.ClearField("observation_space")
            message.ClearField("action_space")
            return decode_observation(message, copy=True)
        value: Any = np.frombuffer(raw, self._dtype)
        value = value[0] if self._scalar else value.reshape(self._shape).copy()
        reward = message.reward
        if reward != reward:
            raise SpaceError("expected a number, got NaN", root="reward")
        return Observation(
            value,
            reward if reward or message.HasField("reward") else None,
            message.terminated,
            message.truncated,
            None,
            {},
            None,
            message.active,
            message.alive,
        )
