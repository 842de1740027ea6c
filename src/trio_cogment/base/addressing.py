"""Receivers of a reward or message: one rule for trials, and for what is stored of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

EVERYBODY = "*"


class ActorAddresses:
    """The actors of a trial by name and by class.

    Args:
        actors: name and class of each actor, in parameter order. Of several with the same name the first has it.

    Attributes:
        by_name: the index of the actor with each name; not to be changed.
    """

    __slots__ = ("_by_class", "_everybody", "_names", "by_name")

    def __init__(self, actors: Iterable[tuple[str, str]]) -> None:
        self.by_name: dict[str, int] = {}
        self._by_class: dict[str, list[int]] = {}
        self._names: list[str] = []
        for index, (name, actor_class) in enumerate(actors):
            self._names.append(name)
            self.by_name.setdefault(name, index)
            self._by_class.setdefault(actor_class, []).append(index)
        self._everybody = range(len(self._names))

    def resolve(self, pattern: str) -> Sequence[int]:
        """Return the indexes of the actors that `pattern` stands for; empty if nobody matches. It is not to be changed.

        An exact name comes first, so that names may contain dots. `*` is every actor (never the environment), `class.*`
        the members of a class, `class.name` an actor if it is of that class; the first dot divides.
        """
        index = self.by_name.get(pattern)
        if index is not None:
            return (index,)
        if pattern == EVERYBODY:
            return self._everybody
        actor_class, dot, name = pattern.partition(".")
        members = self._by_class.get(actor_class, ()) if dot else ()
        return members if name == EVERYBODY else [member for member in members if self._names[member] == name]
