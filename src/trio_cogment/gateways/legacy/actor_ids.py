"""The actors of a trial by the ids of the legacy API, where today's API has names.

An id is the place of an actor when all are sorted by their classes: in the order in which the project declares them,
and within a class in the order of the trial's parameters. Both sides compute it, from the classes and from one count
for each class. The environment is -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trio_cogment.api.common_pb2 import ActorParams, TrialParams
from trio_cogment.base.errors import InvalidArgumentError

T = TypeVar("T")

#: The id of the environment.
ENVIRONMENT = -1


@dataclass(frozen=True, slots=True)
class Member:
    """An actor of a trial.

    Attributes:
        actor_id: its id in the legacy API.
        name: its name.
        actor_class: its class.
        place: its place in the trial's parameters.
        id_in_class: its place among the actors of its class.
    """

    actor_id: int
    name: str
    actor_class: str
    place: int
    id_in_class: int


class ActorIds:
    """The ids of the actors of one trial.

    Args:
        classes: the actor classes of the project, in its order.
        actors: (name, class) of each actor, in the order of the trial's parameters.
        environment: the environment's name.

    Attributes:
        members: the actors, by id.
        counts: how many actors each class of the project has in the trial.
        environment: the environment's name.

    Raises:
        InvalidArgumentError: the project has no such class, or two actors have one name.
    """

    def __init__(self, classes: Sequence[str], actors: Iterable[tuple[str, str]], environment: str = "") -> None:
        rank = {name: number for number, name in enumerate(classes)}
        counts = [0] * len(rank)
        found: list[tuple[int, int, str, str, int]] = []
        for place, (name, actor_class) in enumerate(actors):
            if actor_class not in rank:
                known = ", ".join(map(repr, rank)) or "none"
                raise InvalidArgumentError(
                    f"actor {name!r}: expected an actor class of the legacy project ({known}), got {actor_class!r}"
                )
            number = rank[actor_class]
            found.append((number, place, name, actor_class, counts[number]))
            counts[number] += 1
        self.counts = tuple(counts)
        self.members = tuple(
            Member(actor_id, name, actor_class, place, id_in_class)
            for actor_id, (_, place, name, actor_class, id_in_class) in enumerate(sorted(found))
        )
        self.environment = environment
        self._by_name = {member.name: member for member in self.members}
        if len(self._by_name) != len(self.members):
            raise InvalidArgumentError("actors: expected a name of its own for each actor")
        self._ids = [0] * len(self.members)
        for member in self.members:
            self._ids[member.place] = member.actor_id

    def __len__(self) -> int:
        """Return how many actors there are."""
        return len(self.members)

    def member(self, name: str) -> Member | None:
        """Return an actor by its name, None if there is none."""
        return self._by_name.get(name)

    def id_of(self, name: str) -> int | None:
        """Return the id of an actor or of the environment, None if nobody has this name."""
        member = self._by_name.get(name)
        if member is not None:
            return member.actor_id
        return ENVIRONMENT if name and name == self.environment else None

    def name_of(self, actor_id: int) -> str | None:
        """Return the name of an actor or of the environment, None if nobody has this id."""
        if actor_id == ENVIRONMENT:
            return self.environment
        return self.members[actor_id].name if 0 <= actor_id < len(self.members) else None

    def by_id(self, by_place: Sequence[T]) -> list[T]:
        """Return what the actors have, in the order of their ids; it came in the order of the parameters."""
        return [by_place[member.place] for member in self.members]

    def by_place(self, by_id: Sequence[T]) -> list[T]:
        """Return what the actors have, in the order of the parameters; it came in the order of the ids."""
        return [by_id[actor_id] for actor_id in self._ids]


def ids_in(params: TrialParams, classes: Sequence[str], environment: str) -> ActorIds:
    """Return the ids of a trial with these parameters.

    Args:
        params: of the trial.
        classes: the actor classes of the project, in its order.
        environment: the environment's name.

    Raises:
        InvalidArgumentError: see `ActorIds`.
    """
    return ActorIds(classes, ((actor.name, actor.actor_class) for actor in params.actors), environment)


def name_actors(actors: Iterable[ActorParams], names: dict[str, Sequence[str]]) -> None:
    """Give a name to each actor that has none: one of those of its class, or `<class>_<place in the class>`.

    Args:
        actors: of a trial, in order; they are changed.
        names: for classes, the names of their actors in order.
    """
    seen: dict[str, int] = {}
    for actor in actors:
        number = seen.setdefault(actor.actor_class, 0)
        seen[actor.actor_class] += 1
        if not actor.name:
            own = names.get(actor.actor_class, ())
            actor.name = own[number] if number < len(own) else f"{actor.actor_class}_{number}"
