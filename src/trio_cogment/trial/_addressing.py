"""Whom a reward or message is for: names, and patterns of names."""

from __future__ import annotations

from collections.abc import Sequence

from trio_cogment.trial._participant import Actor

EVERYBODY = "*"


def resolve(pattern: str, actors: Sequence[Actor]) -> Sequence[Actor]:
    """Return the actors that `pattern` stands for; none if it is not a pattern or nobody matches.

    An exact name comes first, so that names may contain dots. `*` is every actor (never the environment), `class.*` the
    members of a class, `class.name` an actor if it is of that class; the first dot divides.
    """
    for actor in actors:
        if actor.name == pattern:
            return (actor,)
    if pattern == EVERYBODY:
        return actors
    actor_class, dot, name = pattern.partition(".")
    if not dot:
        return ()
    return [actor for actor in actors if actor.actor_class == actor_class and name in (EVERYBODY, actor.name)]
