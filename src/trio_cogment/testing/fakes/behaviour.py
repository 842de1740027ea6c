"""Behaviour of fake participants, and what they have in common."""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import trio

from trio_cogment.api.common_pb2 import CommunicationState, Message
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.testing.fakes.contents import as_text
from trio_cogment.testing.sim.fault_plan import Fault
from trio_cogment.testing.sim.world import World

NORMAL = CommunicationState.NORMAL
HEARTBEAT = CommunicationState.HEARTBEAT
LAST = CommunicationState.LAST
LAST_ACK = CommunicationState.LAST_ACK
END = CommunicationState.END

#: `Behaviour.from_tick` of what is wrong before the first answer.
FROM_START = -1


class Misbehaviour(enum.Enum):
    """How a fake participant may misbehave."""

    VANISH = "vanish"  # its stream ends with an error
    CRASH = "crash"  # its code raises
    SLOW = "slow"  # each answer takes `seconds` more
    SILENT = "silent"  # it reads and answers nothing any more
    DEAF = "deaf"  # it does not even read
    NEVER_ACK = "never ack"  # it plays on, but never acknowledges the end
    DUPLICATE = "duplicate"  # it sends each answer `count` times
    FLOOD = "flood"  # it sends `count` messages beside each answer
    WRONG_TICK = "wrong tick"  # it sends answers for other ticks, and what means nothing, beside the right ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How one fake participant behaves in one trial.

    Attributes:
        think_seconds: the least and the most that an answer takes; the least must be more than 0 where the fake is
            reached in process, or virtual time stands still.
        misbehaviour: what it does wrong, if anything.
        from_tick: from which tick on; `FROM_START` (-1) includes the answer to the initial message.
        seconds: for SLOW, which needs it.
        count: for DUPLICATE (of an answer, at least 2) and FLOOD.

    Raises:
        ValueError: a value makes no sense; it is named.
    """

    think_seconds: tuple[float, float] = (0.001, 0.02)
    misbehaviour: Misbehaviour | None = None
    from_tick: int = 0
    seconds: float | None = None
    count: int = 2

    def __post_init__(self) -> None:
        if self.misbehaviour is not None and not isinstance(self.misbehaviour, Misbehaviour):
            raise ValueError(f"misbehaviour: expected a Misbehaviour or None, got {self.misbehaviour!r}")
        if not isinstance(self.from_tick, int) or self.from_tick < FROM_START:
            raise ValueError(f"from_tick: expected a tick, or {FROM_START}, got {self.from_tick!r}")
        if self.misbehaviour is Misbehaviour.SLOW and self.seconds is None:
            raise ValueError("seconds: expected how long SLOW is to take, got None")
        if self.seconds is not None and not _is_time(self.seconds):
            raise ValueError(f"seconds: expected 0 or more, got {self.seconds!r}")
        least = 2 if self.misbehaviour is Misbehaviour.DUPLICATE else 1
        if not isinstance(self.count, int) or self.count < least:
            raise ValueError(f"count: expected at least {least}, got {self.count!r}")
        span = self.think_seconds
        if len(span) != 2 or not all(map(_is_time, span)) or span[0] > span[1]:
            raise ValueError(f"think_seconds: expected the least and the most, from 0 on, got {span!r}")

    @classmethod
    def from_fault(cls, fault: Fault) -> Behaviour:
        """Return what a fault of a plan asks for: its details are `misbehaviour` (by its value) and the other fields.

        Raises:
            ValueError: there is no such misbehaviour, or a detail is missing, unknown, or makes no sense.
        """
        details: dict[str, Any] = dict(fault.details)
        known = {one.name for one in fields(cls)} - {"think_seconds"}
        if "misbehaviour" not in details or not details.keys() <= known:
            raise ValueError(f"expected misbehaviour, and no details but {', '.join(sorted(known))}, got {fault}")
        return cls(misbehaviour=Misbehaviour(details.pop("misbehaviour")), **details)

    def does(self, misbehaviour: Misbehaviour, tick_id: int) -> bool:
        """Tell whether it misbehaves so at a tick."""
        return self.misbehaviour is misbehaviour and tick_id >= self.from_tick


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf


class VanishedError(RpcError):
    """Raised on purpose: the stream ends with a status."""


class CrashError(Exception):
    """Raised on purpose: the code of a participant fails."""


#: Gives the behaviour of a participant, by trial and name; or one for all.
Behave: TypeAlias = Callable[[str, str], Behaviour] | Behaviour


def check_behaviour(behave: Behave, kind: str, cannot: Container[Misbehaviour]) -> None:
    """Refuse a behaviour for all that this kind of fake cannot show; of one that is asked for, `Part` has to.

    Raises:
        ValueError: it cannot.
    """
    if isinstance(behave, Behaviour) and behave.misbehaviour in cannot:
        raise ValueError(f"misbehaviour: expected one that a {kind} can show, got {behave.misbehaviour}")


#: Is given every message that a fake reads, with the part that reads it.
Sees: TypeAlias = Callable[["Part", Any], None]


def see_nothing(_part: Part, _message: Any) -> None:
    """The messages themselves are not looked at."""


class Part:
    """One fake's part in one trial: its behaviour, its randomness, and its lines in the history.

    Attributes:
        outcome: how its session has ended; see the event "closed". Empty while it has not.
    """

    def __init__(
        self,
        world: World,
        behave: Behave,
        trial_id: str,
        kind: str,
        name: str,
        *,
        cannot: Container[Misbehaviour] = (),
    ) -> None:
        self.outcome = ""
        self.behaviour = behave if isinstance(behave, Behaviour) else behave(trial_id, name)
        if self.behaviour.misbehaviour in cannot:
            mistake = f"misbehaviour: {kind} {name} of {trial_id}: expected one that it can show, got {self.behaviour}"
            world.mistakes.append(mistake)  # a peer would only see a call that fails
            raise ValueError(mistake)
        self.trial_id = trial_id
        self.name = name
        self.who = f"{kind} {name}"
        self.kind = kind
        self.rng: random.Random = world.stream(f"{kind} {trial_id} {name}")
        self._world = world

    def record(self, what: str, **details: Any) -> None:
        """Note what this part sees or does."""
        self._world.history.record(self.who, what, self.trial_id, **details)

    @contextmanager
    def session(self, *, raising: bool = False) -> Iterator[None]:
        """Note how a session begins and, once, how it ends.

        An error of the call itself (the other end is gone) is only noted unless `raising`; what the misbehaviours raise
        goes on in any case.
        """
        self.record("opened")
        outcome = "cancelled"
        try:
            yield
            outcome = "left"
        except RpcError as error:
            outcome = error.code.name
            if raising or isinstance(error, VanishedError):
                raise
        except Exception as error:
            outcome = type(error).__name__
            raise
        finally:
            self.outcome = outcome
            self.record("closed", outcome=outcome)

    def does(self, misbehaviour: Misbehaviour, tick_id: float) -> bool:
        """See `Behaviour.does`; what was done is counted among the world's `sometimes`."""
        if self.behaviour.misbehaviour is not misbehaviour or tick_id < self.behaviour.from_tick:
            return False
        self._world.sometimes(f"{self.kind}: {misbehaviour.value}")
        return True

    def beats(self) -> None:
        """Count that this part answers a heartbeat."""
        self._world.sometimes(f"{self.kind}: heartbeat")

    async def think(self, tick_id: int) -> bool:
        """Wait as long as an answer takes; False when there is to be none."""
        if self.does(Misbehaviour.VANISH, tick_id):
            raise VanishedError(StatusCode.UNAVAILABLE, f"{self.who} vanishes")
        if self.does(Misbehaviour.CRASH, tick_id):
            raise CrashError(f"{self.who} crashes, as it should")
        if self.does(Misbehaviour.DEAF, tick_id):
            await trio.sleep_forever()
        seconds = self.rng.uniform(*self.behaviour.think_seconds)
        if self.does(Misbehaviour.SLOW, tick_id):
            seconds += self.behaviour.seconds or 0.0
        await trio.sleep(seconds)
        return not self.does(Misbehaviour.SILENT, tick_id)

    def copies(self, tick_id: int) -> int:
        """Return how often an answer is sent."""
        return self.behaviour.count if self.does(Misbehaviour.DUPLICATE, tick_id) else 1

    def heard(self, message: Message) -> None:
        """Note a message, and for whom it was."""
        self.record(
            "message", sender=message.sender_name, receiver=message.receiver_name, text=as_text(message.payload.value)
        )

    def received(self, state: int, details: str) -> None:
        """Note the end, or the announcement of it."""
        if state == LAST:
            self.record("last")
        elif state == END:
            self.record("end", details=details)
