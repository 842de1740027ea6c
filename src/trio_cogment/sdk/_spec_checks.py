"""Comparing what a trial has with what the spec of this program declares."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.sdk.spec import ActorClass, Payload, Spec, encode

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


def list_of_classes(spec: Spec, names: Iterable[str], who: str) -> list[str]:
    """Return the actor classes that somebody named; a spec without any class knows all of them.

    Raises:
        InvalidArgumentError: it is one text, or the spec declares other classes only; `who` is to serve them.
    """
    if isinstance(names, str):
        raise InvalidArgumentError("actor_classes: expected several names, got one text")
    found, known = list(names), list(spec.names())
    for name in found if known else ():
        if name not in known:
            raise InvalidArgumentError(f"{who}: the spec declares no actor class {name!r}; {suggestion(name, known)}")
    return found


def given_config(config: object, kind: type[Message] | None, who: str, hint: str) -> Any:
    """Return a participant's configuration, which it cannot do without.

    Args:
        config: what the trial's parameters have.
        kind: the type that the spec declares; None for bytes.
        who: the participant, for errors.
        hint: how the configuration is set in a trial's parameters.

    Raises:
        FailedPreconditionError: they have none.
    """
    if config is None:
        expected = "bytes" if kind is None else kind.__name__
        raise FailedPreconditionError(
            f"{who}: config: expected {expected}, and the trial's parameters have none; set it with {hint}, or in a "
            "pre-trial hook"
        )
    return config


def encoded(payload: Payload, kind: type[Message] | None, what: str, actor_class: str) -> bytes:
    """Return the bytes of a payload.

    Args:
        payload: what is sent.
        kind: the type that the spec declares.
        what: what it is, and whose, for errors.
        actor_class: the actor class that has the type.

    Raises:
        InvalidArgumentError: the payload is not of that type.
    """
    try:
        return encode(payload, kind, what)
    except InvalidArgumentError:
        raise InvalidArgumentError(f"{what}: {_wrong_type(payload, kind, actor_class)}") from None


def _wrong_type(payload: object, kind: type[Message] | None, actor_class: str) -> str:
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
