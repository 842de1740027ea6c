"""Observations and actions of an actor in a data set: values of spaces, the fields of messages, or bytes.

Pure. Which of them it is, an actor's first observation of a trial decides, and the spec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError

from trio_cogment.api import spaces_pb2
from trio_cogment.environments.spec import PLAYER
from trio_cogment.sdk.spec import ActorClass, Spec, decode
from trio_cogment.spaces import Observation, Space, SpaceError, check_action, decode_observation, decode_value
from trio_cogment.spaces.arrays import decode_number


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an actor's observations and actions. Forms that are equal can share the columns of a table.

    Attributes:
        kind: `spaces`, `json` (the fields of a message) or `bytes`.
        observation_space: of values of spaces; None for other kinds.
        action_space: the same for actions.
    """

    kind: str
    observation_space: Space | None = None
    action_space: Space | None = None


BYTES = Form("bytes")
JSON = Form("json")


@dataclass(frozen=True, slots=True)
class Payloads:
    """Reads the payloads of one actor of a trial.

    Attributes:
        form: what `observation` and `action` give.
        observation: returns what a payload tells the actor; for other kinds than `spaces`, with only the value.
        action: returns the action, or None for one that says nothing.
    """

    form: Form
    observation: Callable[[bytes], Observation]
    action: Callable[[bytes], Any]


def payloads_of(actor: str, actor_class: str, first: bytes, spec: Spec | None) -> Payloads:
    """Return what reads an actor's payloads.

    Args:
        actor: its name, for errors.
        actor_class: its class.
        first: the payload of its first observation.
        spec: the types of the project; None if they are not known.

    Raises:
        RemoteProtocolError: the first observation is not of the type that the spec declares.
        SpaceError: its spaces make no sense.
    """
    declared = ActorClass(actor_class) if spec is None else spec.actor_class(actor_class)
    spaces = _spaces(actor, first) if _may_have_spaces(declared) else None
    if spaces is not None:
        return Payloads(
            Form("spaces", *spaces),
            lambda data: observation_of(data, actor),
            lambda data: _as_taken(action_of(data, actor), spaces[1]),
        )
    if declared.observation is None or declared.action is None:
        return Payloads(BYTES, Observation, lambda data: data)
    return Payloads(
        JSON,
        lambda data: Observation(_as_json(data, declared.observation, f"observation of {actor!r}")),
        lambda data: _as_json(data, declared.action, f"action of {actor!r}"),
    )


def _may_have_spaces(declared: ActorClass) -> bool:
    if declared.observation is not None:
        return declared.observation.DESCRIPTOR.full_name == spaces_pb2.Observation.DESCRIPTOR.full_name
    return declared.name == PLAYER


def _spaces(actor: str, first: bytes) -> tuple[Space, Space] | None:
    try:
        message = spaces_pb2.Observation.FromString(first)
    except DecodeError:
        return None  # another project's class of this name
    if not (message.HasField("observation_space") and message.HasField("action_space")):
        return None
    found = _decoded(message, actor)
    assert found.observation_space is not None
    assert found.action_space is not None
    return found.observation_space, found.action_space


def observation_of(data: bytes, actor: str) -> Observation:
    """Return a payload as an observation, without its frame.

    Raises:
        RemoteProtocolError: it is none.
        SpaceError: a part of it makes no sense.
    """
    return _decoded(decode(data, spaces_pb2.Observation, f"observation of {actor!r}"), actor)


def _decoded(message: spaces_pb2.Observation, actor: str) -> Observation:
    try:
        # Frames are for people, and large.
        message.ClearField("rendered_frame")
        found = decode_observation(message)
    except SpaceError as error:
        raise error.of(f"actor {actor!r}: {error.root}") from None
    return found


def without_spaces(observation: Observation) -> Observation:
    """Return an observation without its spaces, which only the first one of a trial has."""
    if observation.observation_space is None and observation.action_space is None:
        return observation
    return replace(observation, observation_space=None, action_space=None)


def action_of(data: bytes, actor: str) -> Any:
    """Return a payload as an action; None if it has none, as those of actors that are out or whose turn it is not.

    Raises:
        RemoteProtocolError: it is not an action.
        SpaceError: its value makes no sense.
    """
    if not data:
        return None
    message = decode(data, spaces_pb2.Action, f"action of {actor!r}")
    try:
        if message.HasField("value"):
            return decode_number(message.value)
        return decode_value(message.nested) if message.HasField("nested") else None
    except SpaceError as error:
        raise error.of(f"actor {actor!r}: action") from None


def _as_taken(action: Any, space: Space) -> Any:
    """Return an action as the environment took it, rounded; one that it refused is what it was."""
    if action is None:
        return None
    try:
        return check_action(action, space)
    except SpaceError:
        return action


def _as_json(data: bytes, kind: Any, what: str) -> str:
    # Fields without a value are there too: the rows of a table have all the same fields.
    return MessageToJson(
        decode(data, kind, what),
        always_print_fields_with_no_presence=True,
        preserving_proto_field_name=True,
        indent=None,
        ensure_ascii=False,
    )
