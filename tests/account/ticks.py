"""Ticks of an account, and the samples that tell a data log of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from trio_cogment.api.common_pb2 import Action, EndOfTrial, Message, Reward, TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, SampleInfo
from trio_cogment.api.environment_pb2 import ObservationSet

#: The tick of an action that never came, or was void.
NO_TICK = -2
#: Fewer ticks than this are never held back, the one under way included.
LEAST_BUFFERED = 2

OUT_OF_SYNC = "a reward came for a tick whose sample was already sent"


@dataclass
class Tick:
    """Everything that happened in one tick.

    Attributes:
        actions: what came, by actor.
        void: those of them whose actors were lost before the set went out.
        state: the public state in which the tick ended; 0 while it is under way.
    """

    number: int
    wall_ns: int
    observations: ObservationSet | None = None
    actions: dict[int, Action] = field(default_factory=dict)
    void: set[int] = field(default_factory=set)
    rewards: list[Reward] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    defaults: list[int] = field(default_factory=list)
    unavailable: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    state: int = 0
    end: EndOfTrial | None = None

    def action_of(self, number: int) -> Action:
        """Return what the sample says that an actor did."""
        if number not in self.actions:
            return Action(tick_id=NO_TICK)
        if number in self.void:
            return Action(tick_id=NO_TICK, content=self.actions[number].content)
        return self.actions[number]

    def sample(self, actors: int) -> DatalogSample:
        """Return the sample of this tick, with every field."""
        info = SampleInfo(tick_id=self.number, timestamp=self.wall_ns, special_events=self.events)
        info.state = self.state  # type: ignore[assignment]  # an int is an enum value
        if self.end is not None:
            info.end.CopyFrom(self.end)
        return DatalogSample(
            info=info,
            observations=self.observations,
            actions=[self.action_of(number) for number in range(actors)],
            rewards=self.rewards,
            messages=self.messages,
            default_actors=self.defaults,
            unavailable_actors=self.unavailable,
            held_actors=self.held,
        )


class Book:
    """The ticks of a trial, and which of their samples have left.

    Args:
        params: how many are held back, and what the data log does not want.
        wall_ns: when tick 0 began: before its observation, because what is said meanwhile belongs to it.
        most_bytes: how much may be held back, beyond the tick under way.
        first: the first tick.
    """

    def __init__(self, params: TrialParams, wall_ns: int, most_bytes: int, first: int = 0) -> None:
        self._first = first
        self._actors = len(params.actors)
        self._at_once = max(params.nb_buffered_ticks, LEAST_BUFFERED)
        self._most_bytes = most_bytes
        self._unwanted = {name.strip().lower() for name in params.datalog.exclude_fields}
        self.ticks = [Tick(first, wall_ns)]
        self._left = 0

    @property
    def current(self) -> Tick:
        """The tick under way."""
        return self.ticks[-1]

    def _told(self, sample: DatalogSample) -> DatalogSample:
        for name in DatalogSample.DESCRIPTOR.fields_by_name:
            if name in self._unwanted:
                sample.ClearField(name)
        return sample

    def _leave(self, count: int) -> list[DatalogSample]:
        leaving = self.ticks[self._left : self._left + count]
        self._left += len(leaving)
        return [self._told(tick.sample(self._actors)) for tick in leaving]

    def begin(self, observations: ObservationSet, wall_ns: int, ended_in: int) -> None:
        """An observation set came: a tick is over, unless this is the first, and the next begins."""
        if self.current.observations is None and len(self.ticks) == 1:
            self.current.wall_ns = wall_ns
        else:
            self.current.state = ended_in
            self.ticks.append(Tick(self._first + len(self.ticks), wall_ns))
        self.current.observations = observations

    def leaving(self) -> list[DatalogSample]:
        """Return the samples that nothing can be added to any more."""
        held = len(self.ticks) - self._left
        surplus = max(0, held - (self._at_once - 1))
        closed = self.ticks[self._left : -1]
        while surplus < len(closed) and self._size(closed[surplus:]) > self._most_bytes:
            surplus += 1
        return self._leave(surplus)

    def _size(self, ticks: list[Tick]) -> int:
        return sum(tick.sample(self._actors).ByteSize() for tick in ticks)

    def late(self, reward: Reward, wall_ns: int) -> list[DatalogSample]:
        """Keep a reward for a tick that is over; what it says goes out alone if that tick's sample has left."""
        if reward.tick_id >= self._first + self._left:
            self.ticks[reward.tick_id - self._first].rewards.append(reward)
            return []
        info = SampleInfo(tick_id=reward.tick_id, timestamp=wall_ns, out_of_sync=True, special_events=[OUT_OF_SYNC])
        return [self._told(DatalogSample(info=info, rewards=[reward]))]

    def close(self, end: EndOfTrial) -> list[DatalogSample]:
        """Return everything that has not left, the last one with how the trial ended."""
        self.current.state = TrialState.ENDED
        self.current.end = end
        return self._leave(len(self.ticks))
