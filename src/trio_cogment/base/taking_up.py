"""A stored trial that goes on: what is kept for it, and its past as another trial is given it. Pure.

A trial that is *taken up* at a tick begins with that tick; the ticks before it are its past. An environment comes to
that tick from the last checkpoint before it, or from the first tick if there is none, by the actions that are stored.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from trio_cogment.api.common_pb2 import Checkpoint, PastTick, TakenUp, TrialParams
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.errors import DataLossError, InvalidArgumentError, NotFoundError

#: Properties of a branch: of which stored trial it is one, and from which tick on.
BRANCH_TRIAL: Final = "branch.trial"
BRANCH_TICK: Final = "branch.tick"
#: Properties of a trial that goes on: which attempt it is, and the tick with which that began.
RESUME_ATTEMPT: Final = "resume.attempt"
RESUME_TICK: Final = "resume.tick"
#: Property of a trial that was handed over, or given back: the last attempt that ended so.
RESUME_RELEASED: Final = "resume.released"
#: Property of a trial that its owner alone goes on with, who is named here.
RESUME_OWNER: Final = "resume.owner"
#: Properties of a trial that can go on, where they are not the default: how far the endpoints may lead that whoever has
#: started it has named (see `access.reach_of`), the quotas of that account, and the run whose worker it is.
RESUME_REACH: Final = "resume.reach"
RESUME_QUOTAS: Final = "resume.quotas"
RESUME_RUN: Final = "resume.run"
#: They say what a trial goes on with: whoever could write them himself would have the past of other people's trials.
_RESERVED: Final = (
    *(BRANCH_TRIAL, BRANCH_TICK, RESUME_ATTEMPT, RESUME_TICK, RESUME_RELEASED, RESUME_OWNER),
    *(RESUME_REACH, RESUME_QUOTAS, RESUME_RUN),
)
#: Without one of these fields of its samples a trial cannot go on.
_NEEDED: Final = ("info", "observations", "actions")


def refuse_reserved(properties: Mapping[str, str], allowed: str = "") -> None:
    """Refuse properties that are set for trials that go on, in the parameters of one that begins.

    Args:
        properties: of the trial.
        allowed: may be there nevertheless.

    Raises:
        InvalidArgumentError: naming one.
    """
    for name in _RESERVED:
        if name in properties and name != allowed:
            raise InvalidArgumentError(
                f"params.properties: {name!r} is set by the orchestrator: leave it out (a branch is started with "
                "take_up, by Controller.start_branch)"
            )


def without_reserved(params: TrialParams) -> TrialParams:
    """Return the parameters of a branch: those of a stored trial, but for what says how that one has gone on."""
    found = TrialParams()
    found.CopyFrom(params)
    for name in _RESERVED:
        found.properties.pop(name, None)
    return found


def why_not(params: TrialParams) -> str:
    """Return why nobody can go on with a trial of which there are samples, by its parameters; empty: it is possible."""
    excluded = {name.strip().lower() for name in params.datalog.exclude_fields}
    lacks = [name for name in _NEEDED if name in excluded]
    return f"its samples have no {', no '.join(lacks)} (datalog.exclude_fields)" if lacks else ""


def saved_checkpoint(tick_id: int, content: bytes) -> bytes:
    """Return the serialized `Checkpoint` of what an environment has saved with the observations of a tick."""
    # Not by way of a message, which would copy the content twice more: it is saved within a tick.
    before, behind = _around(len(content))
    return b"".join((_tick(tick_id), before, content, behind, zlib.crc32(content).to_bytes(4, "little")))


_CRC32: Final[bytes] = Checkpoint(crc32=1).SerializeToString()[:-4]


@lru_cache(1024)
def _tick(tick_id: int) -> bytes:
    return bytes(Checkpoint(tick_id=tick_id).SerializeToString())


@lru_cache(64)
def _around(size: int) -> tuple[bytes, bytes]:
    """Return what is between the tick and the content of a checkpoint, and between that and the checksum."""
    whole: bytes = Checkpoint(content=bytes(size)).SerializeToString()
    return whole[: len(whole) - size], Checkpoint(size=size).SerializeToString() + _CRC32


def is_whole(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is what was saved: neither damaged nor half of it."""
    content = checkpoint.content
    return len(content) == checkpoint.size and zlib.crc32(content) == checkpoint.crc32


def saves(sample: StoredTrialSample) -> bool:
    """Whether a sample has a checkpoint from which its trial can go on."""
    if not sample.HasField("checkpoint"):
        return False
    return sample.checkpoint.tick_id == sample.tick_id and is_whole(sample.checkpoint)


def branch_of(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Return of which trial a trial with these properties is a branch, and its first tick; None: it is none."""
    trial_id, tick = properties.get(BRANCH_TRIAL, ""), properties.get(BRANCH_TICK, "")
    return (trial_id, int(tick)) if trial_id and tick.isdecimal() else None


def broken_off(attempt: int, properties: Mapping[str, str]) -> int:
    """Return how many attempts in a row have broken off, up to this one: since the last that was handed over."""
    released = properties.get(RESUME_RELEASED, "")
    return max(0, attempt - int(released)) if released.isdecimal() else attempt


@dataclass(slots=True)
class Past:
    """The past of a stored trial, as `TakenUp` has it, in columns: no message for each tick.

    Attributes:
        trial_id: of the stored trial.
        tick_id: with which another one begins.
        checkpoint: from which its environment goes on, with the first of these ticks; None: it begins at the first.
        observations: of each tick up to `tick_id`, by actor.
        actions: likewise; nothing in the last tick, nor where not all of them are stored.
        unavailable: the actors who could not act, by the place of the tick; only where there were some.
    """

    trial_id: str
    tick_id: int
    checkpoint: Checkpoint | None = None
    observations: list[Sequence[bytes]] = field(default_factory=list)
    actions: list[Sequence[bytes]] = field(default_factory=list)
    unavailable: dict[int, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, message: TakenUp) -> Past:
        """Return what a message tells."""
        past = message.past[:]
        return cls(
            message.trial_id,
            message.tick_id,
            message.checkpoint if message.HasField("checkpoint") else None,
            [tick.observations[:] for tick in past],
            [tick.actions[:] for tick in past],
            {place: tick.unavailable_actors[:] for place, tick in enumerate(past) if tick.unavailable_actors},
        )

    def message(self) -> TakenUp:
        """Return it as a message."""
        ticks = [
            PastTick(observations=seen, actions=acted, unavailable_actors=self.unavailable.get(place, ()))
            for place, (seen, acted) in enumerate(zip(self.observations, self.actions, strict=True))
        ]
        return TakenUp(trial_id=self.trial_id, tick_id=self.tick_id, checkpoint=self.checkpoint, past=ticks)


def joined(before: Past, own: Past) -> Past:
    """Return the past of a branch with that of the trial of which it is one, up to the tick with which it begins.

    Raises:
        DataLossError: they are not of the same actors.
    """
    if len(before.observations[-1]) != len(own.observations[0]):
        raise DataLossError(
            f"trial {own.trial_id!r}: expected the actors of trial {before.trial_id!r}, of which it is a branch; got "
            "others"
        )
    begin = len(before.observations) - 1
    return Past(
        own.trial_id,
        own.tick_id,
        before.checkpoint,
        [*before.observations[:-1], *own.observations],
        [*before.actions[:-1], *own.actions],
        {
            **{place: absent for place, absent in before.unavailable.items() if place < begin},
            **{begin + place: absent for place, absent in own.unavailable.items()},
        },
    )


class PastReader:
    """Makes the past of a trial of its samples.

    Args:
        trial_id: of the stored trial.
        params: of the stored trial.
        tick_id: the tick at which it is taken up; None: the last one that is added.
    """

    def __init__(self, trial_id: str, params: TrialParams, tick_id: int | None = None) -> None:
        self._trial_id = trial_id
        self._actors = [actor.name for actor in params.actors]
        self._wanted = tick_id
        self._branch = branch_of(params.properties)
        self._first = 0
        self._past = Past(trial_id, 0)
        self._next: int | None = None
        self._missing: DataLossError | None = None

    @property
    def complete(self) -> bool:
        """Whether further samples would not be looked at."""
        return self._wanted is not None and self._next is not None and self._next > self._wanted

    @property
    def before(self) -> tuple[str, int] | None:
        """Of which trial the past is needed, too, up to which tick: that of a branch begins in another trial."""
        return self._branch if self._past.checkpoint is None and self._first else None

    def add(self, sample: StoredTrialSample) -> None:
        """Take the next sample, by tick."""
        tick_id = sample.tick_id
        if self.complete or (self._wanted is not None and tick_id > self._wanted):
            return
        if saves(sample):
            # What was before it is not needed any more, nor what is missing there.
            self._past, self._missing = Past(self._trial_id, 0, sample.checkpoint), None
        else:
            self._follow(tick_id)
        self._next = tick_id + 1
        if self._missing is None:
            self._add(sample)

    def add_run(
        self,
        first_tick: int,
        observations: Sequence[tuple[bytes, ...]],
        actions: Sequence[tuple[bytes, ...]],
    ) -> None:
        """Do the same for several ticks, one after the other, that have no checkpoint, and of all actors everything.

        Args:
            first_tick: of these.
            observations: of each tick, by actor.
            actions: likewise.
        """
        if self.complete or not observations:
            return
        if self._wanted is not None:
            count = self._wanted + 1 - first_tick
            observations, actions = observations[: max(count, 0)], actions[: max(count, 0)]
            if not observations:
                return
        self._follow(first_tick)
        self._next = first_tick + len(observations)
        if self._missing is None:
            self._past.observations += observations
            self._past.actions += actions

    def past(self) -> Past:
        """Return the past.

        Raises:
            NotFoundError: the tick is not stored.
            DataLossError: a tick or a part of one is not stored that is needed to come there.
        """
        last = None if self._next is None else self._next - 1
        if last is None or (self._wanted is not None and last != self._wanted):
            wanted = 0 if self._wanted is None else self._wanted
            stored = "no tick" if last is None else f"ticks up to {last}"
            raise NotFoundError(f"trial {self._trial_id!r}: tick {wanted}: expected one that is stored, got {stored}")
        if self._missing is not None:
            raise self._missing
        past, place = self._past, len(self._past.actions) - 1
        # Its actions, if it has any, are what others do now.
        past.tick_id, past.actions[place] = last, ()
        past.unavailable.pop(place, None)
        return past

    def _follow(self, tick_id: int) -> None:
        """Take note of what is missing between the last tick that was added and this one."""
        if self._next is None and self._branch is not None and tick_id == self._branch[1]:
            self._first = tick_id
        expected = self._first if self._next is None else self._next
        if self._missing is not None:
            pass
        elif tick_id != expected:
            self._lose(expected, "expected its sample, which is not stored")
        elif self._past.actions and not self._past.actions[-1]:
            self._lose(tick_id - 1, "expected the actions of all actors, which are not stored")

    def _add(self, sample: StoredTrialSample) -> None:
        past, payloads, unavailable = self._past, sample.payloads[:], sample.unavailable_actors[:]
        observations, actions = [b""] * len(self._actors), [b""] * len(self._actors)
        acted = 0
        seen = 0
        for one in sample.actor_samples:
            if one.HasField("observation"):
                observations[one.actor] = payloads[one.observation]
                seen += 1
            if one.HasField("action"):
                actions[one.actor] = payloads[one.action]
                acted += 1
        if seen < len(self._actors):
            self._lose(sample.tick_id, "expected the observations of all actors, which are not stored")
        if unavailable:
            past.unavailable[len(past.actions)] = unavailable
        past.observations.append(tuple(observations))
        past.actions.append(tuple(actions) if acted + len(unavailable) >= len(self._actors) else ())

    def _lose(self, tick_id: int, what: str) -> None:
        self._missing = DataLossError(f"trial {self._trial_id!r}: tick {tick_id}: {what}")
