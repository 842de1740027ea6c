"""Results of an OpenEnv server: answers to a reset or a step, as an observation of a trial. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError, UnavailableError
from trio_cogment.gateways.openenv.foreign_schemas import COMMON, Codec, GivenObservation
from trio_cogment.spaces import Frame, Observation, Space, SpaceError
from trio_cogment.spaces.base import shown
from trio_cogment.spaces.json_values import NOT_FINITE, loads
from trio_cogment.spaces.masks import mask_in


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a reset or a step.

    Attributes:
        fields: of the observation, without those that every one has.
        reward: of the step; None if there is none.
        done: the episode is over.
        metadata: what the server says besides.
    """

    fields: Mapping[str, Any]
    reward: float | None
    done: bool
    metadata: Mapping[str, Any]


def parse_answer(text: str | bytes, asked: str) -> Any:
    """Return the data of the answer to a message.

    Args:
        text: what came.
        asked: the type of the message: `reset`, `step`.

    Raises:
        UnavailableError: the server refused; the text is its own.
        RemoteProtocolError: it is not an answer to this.
    """
    try:
        found = loads(text)
    except InvalidArgumentError as error:
        raise RemoteProtocolError(f"{asked}: {error}") from None
    kind = found.get("type") if isinstance(found, dict) else None
    data = found.get("data") if isinstance(found, dict) else None
    if kind == "error" and isinstance(data, dict):
        raise UnavailableError(f"{asked}: the server refused: {data.get('message')} ({data.get('code')})")
    if kind != "observation":
        raise RemoteProtocolError(f"{asked}: expected an observation, got {shown(kind)}")
    return data


def parse_result(data: Any) -> Result:
    """Return the result of a reset or a step.

    OpenEnv's servers from 0.10 on send the metadata twice, beside the observation and in it; earlier ones, not at all.
    It is not part of the observation for either: environments put scores and reference answers there.

    Raises:
        SpaceError: a field is missing or wrong.
    """
    if not isinstance(data, dict) or not isinstance(data.get("observation"), dict):
        raise SpaceError(f"expected an object with the fields of an observation, got {shown(data)}", root="observation")
    done = data.get("done", False)
    if not isinstance(done, bool):
        raise SpaceError(f"expected true or false, got {shown(done)}", root="done")
    observation = data["observation"]
    metadata = data.get("metadata", observation.get("metadata"))
    return Result(
        fields={name: value for name, value in observation.items() if name not in COMMON},
        reward=_reward(data.get("reward")),
        done=done,
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def _reward(found: Any) -> float | None:
    if isinstance(found, str):
        found = NOT_FINITE.get(found, found)
    if found is not None and not isinstance(found, int | float):
        raise SpaceError(f"expected a number or null, got {shown(found)}", root="reward")
    return None if found is None else float(found)


def observation_of(
    result: Result, codec: Codec | GivenObservation, action_space: Space, *, done_is_truncated: bool
) -> Observation:
    """Return the observation of a result.

    A server of this package says whether an end is one of the task, and has masks, information and frames. Of others
    the metadata is the information.

    Args:
        result: of a reset or step.
        codec: for the value.
        action_space: for the mask.
        done_is_truncated: what `done` means where the server does not say it.

    Raises:
        SpaceError: a field is wrong.
    """
    fields = result.fields
    try:
        value = codec.value(fields)
    except SpaceError as error:
        raise error.of("observation") from None
    told = isinstance(fields.get("terminated"), bool) and isinstance(fields.get("truncated"), bool)
    terminated = fields["terminated"] if told else result.done and not done_is_truncated
    truncated = fields["truncated"] if told else result.done and done_is_truncated
    mask = fields.get("action_mask") if told else None
    info = fields.get("info") if told else result.metadata
    try:
        mask = mask_in(action_space, mask)
    except SpaceError as error:
        raise error.of("action_mask") from None
    return Observation(
        value,
        reward=result.reward,
        terminated=terminated,
        # Done, but neither: the server has ended an episode that could go on.
        truncated=truncated or (result.done and not terminated),
        action_mask=mask,
        info=dict(info) if isinstance(info, dict) else {},
        frame=_frame(fields.get("frame")) if told else None,
    )


def _frame(found: Any) -> Frame | None:
    if not isinstance(found, dict):
        return None
    data, media_type = found.get("base64"), found.get("media_type")
    if not isinstance(data, str) or not isinstance(media_type, str):
        raise SpaceError(f"expected media_type and base64, got {shown(found)}", root="frame")
    try:
        return Frame(base64.b64decode(data, validate=True), media_type)
    except (binascii.Error, ValueError) as error:
        raise SpaceError(f"expected base64: {error}", root="frame") from None
