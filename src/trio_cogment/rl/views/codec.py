"""Actions as bytes and observations from messages, near the least that has to be done.

What has the form that its space leads to expect is coded here; everything else takes the way of `trio_cogment.spaces`,
and the result is the same.
"""

from __future__ import annotations

from typing import Any

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces import (
    ArraySpace,
    Discrete,
    Observation,
    Space,
    SpaceError,
    decode_observation,
    encode_action,
    encode_array,
)

# isort: split
import numpy as np

#: What is answered by who is not asked.
NO_ACTION = pb.Action().SerializeToString()
#: So many encoded numbers are remembered for each actor.
_REMEMBERED = 1024


class ActionEncoder:
    """Encodes the actions of one actor.

    Besides what `Space.check` accepts, floating-point numbers are rounded to the precision of the space: actions are
    computed in any.
    """

    def __init__(self, space: Space) -> None:
        """Prepare for actions of a space."""
        self._space = space
        self._known: dict[Any, bytes] | None = {} if isinstance(space, Discrete) else None
        self._real: Any = None
        if isinstance(space, ArraySpace) and self._known is None and np.dtype(space.dtype).kind == "f":
            self._real = np.dtype(space.dtype)

    def encode(self, action: Any) -> bytes:
        """Return the bytes of a message `Action`.

        Raises:
            SpaceError: the action is not in the space.
        """
        known = self._known
        # Only these two types: others are equal to an int, too, and not all of them are actions.
        is_usual = known is not None and (type(action) is int or type(action) is np.int64)
        if is_usual and known is not None and action in known:
            return known[action]
        if self._real is not None and type(action) is np.ndarray and action.dtype.kind == "f":
            action = action.astype(self._real, copy=False)
        content = encode_action(action, self._space).SerializeToString()
        if is_usual and known is not None and len(known) < _REMEMBERED:
            known[action] = content
        return content


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

    def decode(self, message: pb.Observation) -> Observation:
        """Return an observation without the spaces that may be with it.

        Raises:
            SpaceError: a part of the message makes no sense.
        """
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
