"""Comparing what a trial has with what the spec of this program declares."""

from __future__ import annotations

import logging

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from trio_cogment.errors import InvalidArgumentError
from trio_cogment.spec import ActorClass, Spec

_log = logging.getLogger(__name__)

#: What to do when the two sides do not understand each other.
REMEDY = "the sender's spec may be another one: use the same cogment.yaml and protos on both sides"


def declared_class(spec: Spec, name: str, who: str, *, of: str = "") -> ActorClass:
    """Return an actor class; a spec without any class knows all of them, with payloads as bytes.

    Args:
        spec: the spec of this program.
        name: the class that the trial's parameters name.
        who: the participant, for errors.
        of: the actor with this class, if it is another participant.

    Raises:
        InvalidArgumentError: the spec declares other classes only.
    """
    known = list(spec.names())
    if known and name not in known:
        actor = f" of actor {of!r}" if of else ""
        raise InvalidArgumentError(
            f"{who}: actor class {name!r}{actor} is not in this program's spec, which declares "
            f"{', '.join(map(repr, known))}; add it to the spec, or correct the trial's parameters"
        )
    return spec.actor_class(name)


def wrong_type(payload: object, kind: type[Message] | None, actor_class: str) -> str:
    """Return what was expected instead of a payload, and what to do."""
    got = type(payload).__name__
    if kind is None:
        return f"expected bytes or a protobuf message, got {got}; send one, or declare a type in the spec"
    wanted = kind.__name__
    if isinstance(payload, Message) and wanted == got:
        wanted, got = kind.DESCRIPTOR.full_name, payload.DESCRIPTOR.full_name
    return (
        f"expected {wanted}, which the spec declares for actor class {actor_class!r}, got {got}; send that type, or "
        "correct the spec"
    )


def warn_of_unknown_fields(payload: object, who: str, what: str) -> None:
    """Log that a payload has fields which its type lacks: most bytes can be parsed as any message.

    No error: a sender with a newer version of the same message may be in order.
    """
    if not isinstance(payload, Message):
        return
    unknown = UnknownFieldSet(payload)
    if len(unknown):
        numbers = ", ".join(map(str, sorted({unknown[index].field_number for index in range(len(unknown))})))
        name = payload.DESCRIPTOR.full_name
        _log.warning("%s: %s: it has fields that %s lacks: %s; %s", who, what, name, numbers, REMEDY)
