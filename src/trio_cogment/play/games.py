"""A game: what trials that people take part in are started with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trio_cogment.api.common_pb2 import ActorParams, TrialParams
from trio_cogment.base.endpoints import CLIENT, DISCOVER
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.lobby_machine import LobbyRules, Shortage
from trio_cogment.seats.presence import Outcome, SeatRules

#: Also part of links and of the ids of trials.
_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789-_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """Trials that people take part in.

    The actors that are people's are those whose endpoint is `cogment://client`, in their order.

    Attributes:
        name: of the game, in links: letters a to z, digits, `-` and `_`.
        params: of its trials.
        lobby: how people wait. The number of seats is that of the actors that are people's.
        seat: how a seat is held.
        seats: the same for single ones, by the names of their actors, in place of `seat`.
        bot: the implementation that takes the seats of people who are not there; empty: there is none.
        title: for people.
        text: what they should know before they begin.
        labels: what the actions are called, if there are a few to choose from.
        again: who has played waits for the next trial at once.
        renderer: a page (HTML) of the project that shows observations, in a frame of its own; empty: there is none.
        feedback: people may send rewards and messages to the other participants.
        with_seed: gives the parameters of a trial that may go on later a seed, unless they have one; None: there is
            nothing to give.

    Raises:
        InvalidArgumentError: one of them is not as it has to be.
    """

    name: str
    params: TrialParams
    lobby: LobbyRules = field(default_factory=LobbyRules)
    seat: SeatRules = field(default_factory=SeatRules)
    seats: Mapping[str, SeatRules] = field(default_factory=dict)
    bot: str = ""
    title: str = ""
    text: str = ""
    labels: Sequence[str] = ()
    again: bool = False
    renderer: bytes = b""
    feedback: bool = True
    with_seed: Callable[[TrialParams, int], None] | None = None

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > 64 or self.name.strip(_NAME_CHARACTERS):
            raise InvalidArgumentError(f"name: expected letters a to z, digits, - and _; got {self.name!r}")
        people = len(self.people())
        if not people:
            raise InvalidArgumentError(f"params: expected an actor whose endpoint is {CLIENT}")
        if self.lobby.seats != people:
            raise InvalidArgumentError(f"lobby: expected {people} seats, as many as people, got {self.lobby.seats}")
        outcomes = {self.rules_of(actor.name).outcome for actor in self.people()}
        if not self.bot and (self.lobby.shortage is Shortage.BOTS or Outcome.BOT in outcomes):
            raise InvalidArgumentError("bot: expected the implementation of bots, got none")
        self._check_limits()
        hz = self.params.environment.tick_hz
        for actor in self.people():
            if hz and not actor.HasField("default_action"):
                why = f"ticks end by the clock (tick_hz: {hz:g})"
                raise InvalidArgumentError(f"params: actor {actor.name!r}: expected a default action, because {why}")
            if self.rules_of(actor.name).outcome is Outcome.DEFAULT and not actor.HasField("default_action"):
                raise InvalidArgumentError(f"params: actor {actor.name!r}: expected a default action")

    def _check_limits(self) -> None:
        """See that no limit of the trial ends it, or an actor's part, while a person may still think."""
        limits = {"max_inactivity": float(self.params.max_inactivity)}
        for actor in self.people():
            limits[f"actor {actor.name!r}: response_timeout"] = actor.response_timeout
        allowed = self.seat.action_seconds
        for name, seconds in limits.items():
            if 0 < seconds <= allowed:
                expected = "expected 0, no limit," if allowed == math.inf else f"expected 0, or more than {allowed:g},"
                time = "any time" if allowed == math.inf else f"{allowed:g} s"
                raise InvalidArgumentError(
                    f"params: {name}: {expected} because people have {time} for an action (action_seconds); "
                    f"got {seconds:g}"
                )

    def rules_of(self, actor: str) -> SeatRules:
        """Return how the seat of an actor is held."""
        return self.seats.get(actor, self.seat)

    def people(self) -> list[ActorParams]:
        """Return the actors that are people's."""
        return [actor for actor in self.params.actors if actor.endpoint.strip() == CLIENT]

    def params_for(self, people: int) -> tuple[TrialParams, list[ActorParams], list[ActorParams]]:
        """Return the parameters of a trial, its actors that are people's, and those whose seats are left.

        Args:
            people: how many there are; they get the first seats.
        """
        params = TrialParams()
        params.CopyFrom(self.params)
        seats = [actor for actor in params.actors if actor.endpoint.strip() == CLIENT]
        return params, seats[:people], seats[people:]


def with_bots(game: Game, people: int) -> tuple[TrialParams, list[str]]:
    """Return the parameters of a trial in which bots take the seats that are left, and the actors of the people."""
    params, taken, left = game.params_for(people)
    for actor in left:
        actor.endpoint, actor.implementation = DISCOVER, game.bot
    return params, [actor.name for actor in taken]


def with_fewer(game: Game, people: int) -> tuple[TrialParams, list[str]]:
    """Return the parameters of a trial without the seats that are left, and the actors of the people."""
    params, taken, left = game.params_for(people)
    names = {actor.name for actor in left}
    kept = [actor for actor in params.actors if actor.name not in names]
    result = TrialParams()
    result.CopyFrom(params)
    del result.actors[:]
    result.actors.extend(kept)
    return result, [actor.name for actor in taken]
