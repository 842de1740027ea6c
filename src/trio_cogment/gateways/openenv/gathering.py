"""Gathering of sockets that wait for a trial. Pure: no Trio, no I/O.

A trial has a name, or is one socket's own. The first socket that names a trial says what it is like; the others join.
When all seats that are sockets are taken, the trial is complete, and its name is free for the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trio_cogment.gateways.openenv.messages import ErrorCode, RefusedError, Reset


@dataclass(eq=False, slots=True)
class Gathering:
    """A trial that waits for its sockets, or has them.

    Attributes:
        name: by which sockets find it; empty if it is one socket's own.
        seats: the actors that are sockets, in the order of the trial's actors.
        taken: who sits there.
        frames_for: those of them who want pictures.
        seed: of the episode.
        episode_id: the trial's id; empty: any.
        options: of the episode.
    """

    name: str
    seats: Sequence[str]
    seed: int | None = None
    episode_id: str = ""
    options: Mapping[str, Any] | None = None
    taken: dict[str, object] = field(default_factory=dict)
    frames_for: set[str] = field(default_factory=set)

    @property
    def free(self) -> list[str]:
        """The seats where nobody sits yet."""
        return [seat for seat in self.seats if seat not in self.taken]

    @property
    def complete(self) -> bool:
        """Whether everybody is there."""
        return len(self.taken) == len(self.seats)


class Lobby:
    """The trials that wait for their sockets.

    Args:
        agents: the actors of every trial.
        others: those whom the server gives somebody else, unless a socket wants to be there.
    """

    def __init__(self, agents: Sequence[str], others: Collection[str] = ()) -> None:
        self._agents = list(agents)
        self._others = set(others)
        self._waiting: dict[str, Gathering] = {}

    def join(self, who: object, reset: Reset) -> tuple[Gathering, str]:
        """Give somebody a seat; return it with its trial, which may be complete now.

        Raises:
            RefusedError: there is no such seat, it is taken, or what was asked for differs from what the first socket
                of the trial has asked for.
        """
        gathering = self._waiting.get(reset.trial) if reset.trial else None
        if gathering is None:
            gathering = Gathering(reset.trial, self._seats_of(reset), reset.seed, reset.episode_id, reset.options)
        else:
            _check_same(gathering, reset)
        seat = self._seat(gathering, reset)
        gathering.taken[seat] = who
        if reset.frames:
            gathering.frames_for.add(seat)
        # Later sockets may be the first to say one of these.
        gathering.seed = reset.seed if gathering.seed is None else gathering.seed
        gathering.episode_id = gathering.episode_id or reset.episode_id
        gathering.options = reset.options if gathering.options is None else gathering.options
        if gathering.complete:
            self._waiting.pop(gathering.name, None)
        else:
            self._waiting[gathering.name] = gathering
        return gathering, seat

    def leave(self, gathering: Gathering, seat: str) -> None:
        """Free a seat of a trial that is not complete; without anybody it is no more."""
        gathering.taken.pop(seat, None)
        gathering.frames_for.discard(seat)
        if not gathering.taken and self._waiting.get(gathering.name) is gathering:
            del self._waiting[gathering.name]

    def _seats_of(self, reset: Reset) -> list[str]:
        """Return the seats that are sockets in a new trial."""
        for seat in (*reset.seats, *[reset.seat] * bool(reset.seat)):
            if seat not in self._agents:
                raise _refused(f"seat: expected one of {_shown(self._agents)}; got {seat!r}")
        if reset.seats:
            wanted = set(reset.seats)
            if missing := [agent for agent in self._agents if agent not in wanted | self._others]:
                raise _refused(f"seats: expected {_shown(missing)}, too, where the server has nobody else")
        else:
            wanted = {agent for agent in self._agents if agent not in self._others}
            wanted |= {reset.seat} if reset.seat else set()
        seats = [agent for agent in self._agents if agent in wanted] or self._agents[:1]
        if not reset.trial and len(seats) > 1:
            own = reset.seat or seats[0]
            rest = _shown([seat for seat in seats if seat != own])
            raise _refused(
                f"trial: expected a name, by which the sockets of this trial find each other: nobody sits at {rest}; "
                "or serve the environment with somebody there (seats=...)"
            )
        return seats

    @staticmethod
    def _seat(gathering: Gathering, reset: Reset) -> str:
        free = gathering.free
        if not reset.seat:
            return free[0]
        if reset.seat not in gathering.seats:
            raise _refused(f"trial {gathering.name!r}: seat: expected one of {_shown(free)}; got {reset.seat!r}")
        if reset.seat not in free:
            text = f"trial {gathering.name!r}: seat: {reset.seat!r} is taken; free: {_shown(free)}"
            raise RefusedError(ErrorCode.EXECUTION_ERROR, text)
        return reset.seat


def _check_same(gathering: Gathering, reset: Reset) -> None:
    """Refuse a socket that wants another trial than those which wait already."""
    wanted = {
        "seed": (gathering.seed, reset.seed),
        "episode_id": (gathering.episode_id or None, reset.episode_id or None),
        "options": (gathering.options, reset.options),
        "seats": (set(gathering.seats), set(reset.seats) or None),
    }
    for name, (theirs, ours) in wanted.items():
        if None not in (theirs, ours) and theirs != ours:
            told = _shown(gathering.seats) if name == "seats" else repr(theirs)
            raise _refused(f"trial {gathering.name!r}: {name}: expected {told}, as its other sockets have it")


def _refused(text: str) -> RefusedError:
    return RefusedError(ErrorCode.VALIDATION_ERROR, f"reset: {text}")


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
