"""Comparing what a trial has with what the spec of this program declares."""

from __future__ import annotations

from trio_cogment.errors import InvalidArgumentError
from trio_cogment.spec import ActorClass, Spec


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
