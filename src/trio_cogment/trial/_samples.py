"""The samples of a trial: one per tick, held back for some ticks so that late rewards find theirs.

The last sample in the buffer belongs to the tick under way. A sample says the state in which its tick *ended*, so it is
closed when the next tick begins, and the last one when the trial is over. A reward for a tick whose sample has left
goes out in a sample of its own, marked `out_of_sync`, because what was given to the sink cannot be changed.

Messages are kept as the participants wrote them, not as they were delivered: receivers may be patterns there. Whoever
reads the samples resolves them by the same rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from trio_cogment.api.common_pb2 import Action, EndOfTrial, Message, Reward, TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, SampleInfo
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.recount import Count
from trio_cogment.base.shared_message import SharedAction, SharedObservationSet, SharedReward, SharedSample
from trio_cogment.trial._events import MAX_HELD_BACK_BYTES
from trio_cogment.trial._params import DEFAULT_BUFFERED_TICKS, buffered_ticks

#: The tick id of an action that never came.
NO_ACTION_TICK: Final = -2

_MISSING: Final = Action(tick_id=NO_ACTION_TICK)
_FIELDS: Final = frozenset(DatalogSample.DESCRIPTOR.fields_by_name)

END_ASKED: Final = "the end of the trial was asked for"
FINAL_OBSERVATION: Final = "the environment ended the trial"
STEPS_USED_UP: Final = "the maximum number of steps was reached"
OUT_OF_SYNC: Final = "a reward came for a tick whose sample was already sent"


class SampleLog:
    """Builds the samples; what it returns is out of its hands.

    Args:
        params: of the trial.
        wall_ns: when the first tick begins.
        max_bytes: of what is held back, where that is more than the usual two ticks.
        shares: samples in which there is nothing unusual may be `SharedSample`.
        first_tick: with which the trial begins.

    Attributes:
        unknown_fields: names in `exclude_fields` that are not fields of a sample.
    """

    def __init__(
        self,
        params: TrialParams,
        wall_ns: int,
        max_bytes: int = MAX_HELD_BACK_BYTES,
        *,
        shares: bool = False,
        first_tick: int = 0,
    ) -> None:
        self._first_tick = first_tick
        self._size = buffered_ticks(params)
        self._max_bytes = max_bytes
        #: The sizes of the samples that are closed and held back; only where more than the usual two ticks are.
        self._sizes: deque[int] | None = deque() if self._size > DEFAULT_BUFFERED_TICKS else None
        self._bytes = 0
        self._actors = len(params.actors)
        wanted = {name.strip().lower() for name in params.datalog.exclude_fields}
        self._excluded = wanted & _FIELDS
        self.unknown_fields = sorted(wanted - _FIELDS)
        self._shares = shares and self._sizes is None and not self._excluded
        #: The tick still under way is the last.
        self._buffer: list[DatalogSample | SharedSample] = []
        self._actions: list[Action | SharedAction | None] = []
        self._begin(first_tick, wall_ns)

    def begin_tick(
        self,
        tick_id: int,
        wall_ns: int,
        observations: ObservationSet | SharedObservationSet,
        state: TrialState,
        size: int = 0,
    ) -> None:
        """Close the tick under way, and begin another; the first one is begun already.

        Args:
            tick_id: of the tick that begins.
            wall_ns: when it begins.
            observations: with which it begins.
            state: in which the tick under way ends.
            size: about how many bytes that one has.
        """
        # The first exists from the start, because what is said while the trial is PENDING belongs to it.
        if tick_id != self._first_tick:
            self._close(state, size)
            if self._shares and type(observations) is SharedObservationSet:  # the usual case, without a call
                self._actions = [None] * self._actors
                self._buffer.append(SharedSample(tick_id, wall_ns, observations))
                return
            self._begin(tick_id, wall_ns)
        current = self._buffer[-1]
        if type(current) is SharedSample and type(observations) is SharedObservationSet:
            current.timestamp = wall_ns
            current.observations = observations
            return
        message = self._message(-1)
        message.info.timestamp = wall_ns
        if isinstance(observations, SharedObservationSet):
            observations.fill(message.observations)
        else:
            message.observations.CopyFrom(observations)

    def _message(self, index: int) -> DatalogSample:
        """Return a sample of the buffer as a message, which it is from now on."""
        sample = self._buffer[index]
        if isinstance(sample, SharedSample):
            sample = self._buffer[index] = sample.whole()
        return sample

    def take_action(self, index: int, action: Action | SharedAction) -> None:
        """Keep an actor's action as it came."""
        self._actions[index] = action

    def void_action(self, index: int) -> None:
        """An actor was lost after it acted: its action was not used, its content is kept."""
        action = self._actions[index]
        if action is not None:
            self._actions[index] = Action(tick_id=NO_ACTION_TICK, content=bytes(action.content))

    def take_absences(self, defaults: Sequence[int], unavailable: Sequence[int], held: Sequence[int] = ()) -> None:
        """Note whose action was made up, whose is missing, and whose last one was taken again."""
        message = self._message(-1)
        message.default_actors.extend(defaults)
        message.unavailable_actors.extend(unavailable)
        message.held_actors.extend(held)

    def take_message(self, message: Message) -> None:
        """Keep a message as it came, but for its true sender."""
        self._message(-1).messages.append(message)

    def take_reward(self, reward: Reward | SharedReward) -> None:
        """Keep a reward of the current tick as it came, but for its true sender."""
        current = self._buffer[-1]
        if type(current) is SharedSample and type(reward) is SharedReward:
            current.rewards.append(reward)
            return
        rewards = self._message(-1).rewards
        if isinstance(reward, SharedReward):
            reward.fill(rewards.add())
        else:
            rewards.append(reward)

    def take_told(self, rewards: Sequence[SharedReward]) -> None:
        """Keep the rewards of the current tick that its observations have told of."""
        current = self._buffer[-1]
        if type(current) is SharedSample:
            current.rewards.extend(rewards)
            return
        for reward in rewards:
            self.take_reward(reward)

    def take_past_reward(self, given: Reward | SharedReward, wall_ns: int) -> DatalogSample | None:
        """Keep a reward for an earlier tick; return an out-of-sync sample if its tick is gone."""
        if isinstance(given, SharedReward):
            reward = Reward()
            given.fill(reward)
        else:
            reward = given
        oldest = self._buffer[0]
        first = oldest.tick_id if isinstance(oldest, SharedSample) else oldest.info.tick_id
        if reward.tick_id >= first:
            index = reward.tick_id - first
            self._message(index).rewards.append(reward)
            if self._sizes is not None:
                # It is held back like the rest of its sample.
                size = DatalogSample(rewards=[reward]).ByteSize()
                self._sizes[index] += size
                self._bytes += size
            return None
        info = SampleInfo(tick_id=reward.tick_id, timestamp=wall_ns, out_of_sync=True, special_events=[OUT_OF_SYNC])
        sample = DatalogSample(info=info, rewards=[reward])
        self._strip(sample)
        return sample

    def note_event(self, text: str) -> None:
        """Add a special event to the current tick."""
        self._message(-1).info.special_events.append(text)

    def leaving(self) -> list[DatalogSample | SharedSample]:
        """Return the samples that need not be held back any longer, oldest first."""
        # The tick that begins next takes the last place.
        surplus = len(self._buffer) - (self._size - 1)
        if self._sizes is not None:
            surplus = max(surplus, self._too_large())
        if surplus <= 0:
            return []
        leaving = self._buffer[:surplus]
        del self._buffer[:surplus]
        if self._sizes is not None:
            for _ in leaving:
                self._bytes -= self._sizes.popleft()
        return [self._strip(sample) for sample in leaving] if self._excluded else leaving

    def _too_large(self) -> int:
        """Return how many samples have to leave because of the size of all."""
        assert self._sizes is not None
        surplus, size = 0, self._bytes
        while size > self._max_bytes:
            size -= self._sizes[surplus]
            surplus += 1
        return surplus

    def flush(self, end: EndOfTrial | None) -> list[DatalogSample | SharedSample]:
        """Close the last tick, which tells how the trial ended, and return everything that is left."""
        self._close(TrialState.ENDED)
        if end is not None:
            self._message(-1).info.end.CopyFrom(end)
        leaving, self._buffer = self._buffer, []
        if self._sizes is not None:
            self._sizes.clear()
            self._bytes = 0
        return [self._strip(sample) for sample in leaving] if self._excluded else leaving

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        if self._sizes is not None:
            held = sum(self._message(index).ByteSize() for index in range(len(self._sizes)))
            yield Count("bytes of samples held back", self._bytes, held)
            yield Count("their sizes", sum(self._sizes), held)

    def _begin(self, tick_id: int, wall_ns: int) -> None:
        self._actions = [None] * self._actors
        if self._shares:
            self._buffer.append(SharedSample(tick_id, wall_ns))
            return
        # Once per tick: setting fields costs half of what keyword arguments do.
        sample = DatalogSample()
        info = sample.info
        info.tick_id = tick_id
        info.timestamp = wall_ns
        self._buffer.append(sample)

    def _close(self, state: TrialState, size: int = 0) -> None:
        # Actions are added only now: until the tick is over one may still be made void.
        current, given = self._buffer[-1], self._actions
        if type(current) is SharedSample:
            current.state = state
            current.size = size
            for action in given:
                if type(action) is not SharedAction:
                    break
            else:
                current.actions = given  # type: ignore[assignment]  # each of them is one
                return
        sample = self._message(-1)
        sample.info.state = state
        actions = sample.actions
        for action in self._actions:
            if isinstance(action, SharedAction):
                action.fill(actions.add())
            else:
                actions.append(_MISSING if action is None else action)
        if self._sizes is not None:
            held = sample.ByteSize()
            self._sizes.append(held)
            self._bytes += held

    def _strip(self, given: DatalogSample | SharedSample) -> DatalogSample | SharedSample:
        # Where something is excluded, nothing is shared.
        assert isinstance(given, DatalogSample)
        sample: DatalogSample = given
        for name in self._excluded:
            sample.ClearField(name)
        return sample
