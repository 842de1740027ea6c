"""The messages `Observation` and `Action`: an environment's words to an actor with a tick, and the actor's answer.

An observation carries all that a step of Gymnasium returns. Its reward has double precision, which the rewards of
Cogment's API do not have. Where observation and action are arrays, cogment-lab reads the messages as its own, and its
messages are read here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces._numpy import np
from trio_cogment.spaces.arrays import decode_number, fill_array, fill_scalar
from trio_cogment.spaces.base import Space, described
from trio_cogment.spaces.errors import SpaceError
from trio_cogment.spaces.forms import Form
from trio_cogment.spaces.messages import decode_space, encode_space
from trio_cogment.spaces.values import decode_fields, decode_value, fill_fields, fill_value

#: What a frame is if its sender does not say; cogment-lab's never do.
DEFAULT_MEDIA_TYPE = "image/png"


@dataclass(frozen=True, slots=True)
class Frame:
    """A rendered picture.

    Attributes:
        data: the encoded picture.
        media_type: how it is encoded.
    """

    data: bytes
    media_type: str = DEFAULT_MEDIA_TYPE


@dataclass(slots=True, eq=False)  # a frozen one takes six times as long to make, and each step makes one
class Observation:
    """What an actor gets with a tick; not to be changed.

    Attributes:
        value: the observation itself, a value of the actor's observation space.
        reward: of the step that led here; None if none did.
        terminated: the task has ended for the actor, by its own rules.
        truncated: it has ended for another reason: a time limit, for example.
        action_mask: which actions are allowed, in the form that the action space's `sample` takes in Gymnasium; None if
            all are.
        info: further information, with what `encode_value` takes.
        frame: a picture of the environment, for people.
        active: it is the actor's turn to act.
        alive: the actor still takes part.
        observation_space: of the actor; None but in its first observation of a trial.
        action_space: of the actor; None but in its first observation of a trial.
    """

    value: Any
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    action_mask: Any = None
    info: dict[str, Any] = field(default_factory=dict)
    frame: Frame | None = None
    active: bool = True
    alive: bool = True
    observation_space: Space | None = None
    action_space: Space | None = None


def encode_observation(observation: Observation, space: Space | None = None) -> pb.Observation:
    """Return an observation as a message.

    Args:
        observation: what to encode.
        space: what its value has to be in, if given.

    Raises:
        SpaceError: a part of it cannot be encoded, is not in the space, or is NaN where a reward has to be; the text
            names the part.
    """
    message = pb.Observation(
        active=_flag(observation.active, "active"),
        alive=_flag(observation.alive, "alive"),
        terminated=_flag(observation.terminated, "terminated"),
        truncated=_flag(observation.truncated, "truncated"),
    )
    _set_value(message, observation.value, space, "observation")
    if observation.reward is not None:
        message.reward = _reward(observation.reward)
    fill_mask_and_info(message, observation)
    if observation.frame is not None:
        message.rendered_frame = observation.frame.data
        if observation.frame.media_type != DEFAULT_MEDIA_TYPE:
            message.frame_media_type = observation.frame.media_type
    for name, described_space in (
        ("observation_space", observation.observation_space),
        ("action_space", observation.action_space),
    ):
        if described_space is not None:
            try:
                getattr(message, name).CopyFrom(encode_space(described_space))
            except SpaceError as error:
                raise error.of(name) from None
    return message


def fill_mask_and_info(message: pb.Observation, observation: Observation) -> None:
    """Write the action mask and the information of an observation into a message that has none.

    Raises:
        SpaceError: one of them cannot be encoded.
    """
    try:
        if observation.action_mask is not None:
            fill_value(message.action_mask, observation.action_mask)
    except SpaceError as error:
        raise error.of("action_mask") from None
    try:
        if observation.info:
            fill_fields(message.info, observation.info)
    except SpaceError as error:
        raise error.of("info") from None


def decode_observation(message: pb.Observation, space: Space | None = None, *, copy: bool = False) -> Observation:
    """Return a message as an observation.

    Args:
        message: what to decode.
        space: what the value has to be in, if given; then it has the types that `Space.check` gives.
        copy: return arrays that can be written to; otherwise they are read-only and share the message's bytes.

    Raises:
        SpaceError: a part of the message makes no sense, or its value is not in the space; the text names the part.
    """
    value = _value_of(message, space, copy, "observation")
    mask, info = None, {}
    try:
        if message.HasField("action_mask"):
            mask = decode_value(message.action_mask, copy=copy)
    except SpaceError as error:
        raise error.of("action_mask") from None
    try:
        if message.HasField("info"):
            info = decode_fields(message.info, copy=copy)
    except SpaceError as error:
        raise error.of("info") from None
    frame = None
    if message.HasField("rendered_frame"):
        frame = Frame(message.rendered_frame, message.frame_media_type or DEFAULT_MEDIA_TYPE)
    return Observation(
        value=value,
        reward=_reward(message.reward) if message.HasField("reward") else None,
        terminated=message.terminated,
        truncated=message.truncated,
        action_mask=mask,
        info=info,
        frame=frame,
        active=message.active,
        alive=message.alive,
        observation_space=_space_of(message, "observation_space"),
        action_space=_space_of(message, "action_space"),
    )


def _space_of(message: pb.Observation, name: str) -> Space | None:
    if not message.HasField(name):
        return None
    try:
        return decode_space(getattr(message, name))
    except SpaceError as error:
        raise error.of(name) from None


def check_action(action: Any, space: Space) -> Any:
    """Return an action as a value of its space: its floating-point numbers are rounded to the space's precision.

    Actions are computed in any precision, often in another one than the space's.

    Raises:
        SpaceError: it is not in the space, or one of its numbers is beyond the range of the space's type.
    """
    try:
        return space.check(action, rounding=True)
    except SpaceError as error:
        raise error.of("action") from None


def encode_action(action: Any, space: Space | None = None) -> pb.Action:
    """Return an action as a message, rounded as by `check_action` if its space is given.

    Raises:
        SpaceError: it cannot be encoded, or is not in the space, if one is given.
    """
    message = pb.Action()
    _set_value(message, action, space, "action", rounding=True)
    return message


def action_form(space: Space) -> Form | None:
    """Return the form of the messages with actions of a space; None if they have none."""
    return Form.of(space, _serialized_action)


def _serialized_action(action: Any) -> bytes:
    return encode_action(action).SerializeToString()


def decode_action(message: pb.Action, space: Space | None = None, *, copy: bool = False) -> Any:
    """Return the action that a message holds, rounded as by `check_action` if its space is given.

    The arguments are those of `decode_observation`.

    Raises:
        SpaceError: it makes no sense, or is not in the space.
    """
    return _value_of(message, space, copy, "action", rounding=True)


def _set_value(message: Any, value: Any, space: Space | None, root: str, rounding: bool = False) -> None:
    try:
        if space is not None:
            value = space.check(value, rounding)
        if isinstance(value, np.ndarray):
            fill_array(message.value, value)
        elif isinstance(value, np.generic):
            fill_scalar(message.value, value)
        else:
            fill_value(message.nested, value)
    except SpaceError as error:
        raise error.of(root) from None


def _value_of(message: Any, space: Space | None, copy: bool, root: str, rounding: bool = False) -> Any:
    try:
        if message.HasField("value"):
            value = decode_number(message.value, copy=copy)
        elif message.HasField("nested"):
            value = decode_value(message.nested, copy=copy)
        else:
            raise SpaceError("expected it in the field value or nested, but both are empty")
        return value if space is None else space.check(value, rounding)
    except SpaceError as error:
        raise error.of(root) from None


def _reward(reward: Any) -> float:
    if not (isinstance(reward, int | float) or (np.ndim(reward) == 0 and np.asarray(reward).dtype.kind in "fiub")):
        raise SpaceError(f"expected a number, got {described(reward)}", root="reward")
    number = float(reward)
    if math.isnan(number):
        raise SpaceError("expected a number, got NaN", root="reward")
    return number


def _flag(flag: Any, name: str) -> bool:
    if not isinstance(flag, bool | np.bool_):
        raise SpaceError(f"expected a bool, got {described(flag)}", root=name)
    return bool(flag)
