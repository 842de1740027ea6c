"""Those who take part, where each of them is, and what a message of theirs is."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from trio_cogment.api.common_pb2 import ActorParams, CommunicationState, RewardSource

#: The environment's number; actors count from 0 in the order of the parameters.
ENVIRONMENT = -1


class Where(enum.Enum):
    """Where somebody is in the course of a trial."""

    #: Nobody has been contacted, or a client has not come yet.
    AWAY = enum.auto()
    #: It has its init_input, and owes its init_output.
    ASKED = enum.auto()
    PLAYING = enum.auto()
    #: LAST has passed, in either direction.
    ENDING = enum.auto()
    #: And LAST_ACK.
    ACKNOWLEDGED = enum.auto()
    #: It has not come in time; its stream may live.
    LATE = enum.auto()
    #: Nothing can be sent to it.
    GONE = enum.auto()
    #: END was the last it was told.
    TOLD = enum.auto()


#: They are part of the trial.
TAKING_PART = (Where.PLAYING, Where.ENDING, Where.ACKNOWLEDGED)
#: They may become part of it.
TO_COME = (Where.AWAY, Where.ASKED)
#: There is a stream on which END can be said.
REACHABLE = (Where.ASKED, Where.LATE, *TAKING_PART)

#: What each state of a message without data is.
_WITHOUT_DATA = {
    CommunicationState.HEARTBEAT: "HEARTBEAT",
    CommunicationState.LAST: "LAST",
    CommunicationState.LAST_ACK: "LAST_ACK",
    CommunicationState.END: "END",
}


def word_of(message: Any) -> str:
    """Return what a message is: the name of its data, or of its state; EMPTY, BAD_STATE or BAD_DATA."""
    data = message.WhichOneof("data")
    carries = data not in (None, "details")
    if message.state == CommunicationState.NORMAL:
        return data.upper() if carries else "EMPTY"
    if carries:
        return "BAD_DATA"
    return _WITHOUT_DATA.get(message.state, "BAD_STATE")


@dataclass
class Person:
    """Somebody in the trial's parameters.

    Attributes:
        held: messages for it that came before it did.
        due: the rewards since its last observation: the tick in which each came, and its sources.
        said: how many messages and rewards it has sent, by tick.
        last_words: the details of its END, if it has said one.
        heard_at: when it sent something last; `nudged_at`: when it was sent its last heartbeat.
        nudges: how many of those heartbeats it has not answered.
        lost: it is out for good.
        answered: the tick of the observation that it has answered last; -1: none. Only where there are rates.
        last_action: its last one, likewise.
    """

    number: int
    name: str
    params: ActorParams = field(default_factory=ActorParams)
    where: Where = Where.AWAY
    held: list[Any] = field(default_factory=list)
    due: list[tuple[int, list[RewardSource]]] = field(default_factory=list)
    said: dict[int, int] = field(default_factory=dict)
    last_words: str = ""
    heard_at: float = 0.0
    nudged_at: float = 0.0
    nudges: int = 0
    lost: bool = False
    answered: int = -1
    last_action: Any = None

    @property
    def is_environment(self) -> bool:
        """Whether it is the environment."""
        return self.number == ENVIRONMENT

    @property
    def is_required(self) -> bool:
        """Whether the trial cannot go on without it."""
        return self.is_environment or not self.params.optional

    @property
    def is_client(self) -> bool:
        """Whether it comes by itself."""
        return not self.is_environment and self.params.endpoint.strip().lower().rstrip("/") in (
            "cogment://client",
            "client",
        )

    @property
    def takes_part(self) -> bool:
        """Whether it came, and was not lost."""
        return self.where in TAKING_PART

    def __str__(self) -> str:
        return f"the environment '{self.name}'" if self.is_environment else f"actor '{self.name}'"


def receivers_of(pattern: str, actors: list[Person]) -> list[Person]:
    """Return the actors that a receiver's name stands for.

    A name comes first, whatever is in it. `*` is everybody, `class.*` a class, `class.name` one of a class; the first
    dot divides.
    """
    named = [actor for actor in actors if actor.name == pattern]
    if named:
        return named
    if pattern == "*":
        return list(actors)
    if "." not in pattern:
        return []
    actor_class, name = pattern.split(".", 1)
    return [actor for actor in actors if actor.params.actor_class == actor_class and name in ("*", actor.name)]


def weighted_mean(sources: list[RewardSource]) -> float:
    """Return the mean of the rewards in which somebody has confidence, weighted by it; 0 if there is none."""
    trusted = [source for source in sources if source.confidence > 0]
    if not trusted:
        return 0.0
    if len(trusted) == 1 == len(sources):
        return trusted[0].value
    total = weight = 0.0
    for source in trusted:
        total += source.value * source.confidence
        weight += source.confidence
    return total / weight
