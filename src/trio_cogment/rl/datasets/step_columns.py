"""Steps as columns: those of a run of samples that look alike, for all of its actors, without an object for each step.

A run counts if nothing happens in it but that everybody acts and is rewarded: each observation and each action is an
array, or has arrays as its parts, and is encoded as this package does. Whatever else comes is left to `steps`. A test
holds both ways together.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from trio_cogment.rl.datasets.payloads import Form, Payloads
from trio_cogment.rl.datasets.steps import Step, StepBuilder
from trio_cogment.rl.datasets.ticks import ActorTick, RewardFrom
from trio_cogment.sdk import StoredTrial
from trio_cogment.servers.datastore.columns import LEAST_RUN, Run
from trio_cogment.spaces import ArraySpace, Discrete, Observation, Space, encode_action, encode_observation
from trio_cogment.spaces.forms import constant_parts

#: The sender of the environment's rewards.
_ENVIRONMENT = -1
_REWARD_BYTES = 8
#: The ticks at the end of a run whose steps are not complete before more is known.
_INCOMPLETE = 2


@dataclass(slots=True)
class StepColumns:
    """Steps of one actor, one each tick: nobody is out, nothing ends, and nothing is told beside values and rewards.

    Attributes:
        actor: its name.
        payloads: what its observations and actions are.
        ticks: their numbers.
        timestamps_ns: when they began.
        observations: an array for each leaf of the observation space, with a row for each step.
        told_rewards: what the observations themselves tell: of the step before.
        actions: the same of the action space.
        rewards: of each step.
    """

    actor: str
    payloads: Payloads
    ticks: Any
    timestamps_ns: Any
    observations: Sequence[Any]
    told_rewards: Any
    actions: Sequence[Any]
    rewards: Any

    def __len__(self) -> int:
        return len(self.ticks)

    def part(self, begin: int, end: int) -> StepColumns:
        """Return some of them."""
        return StepColumns(
            self.actor,
            self.payloads,
            self.ticks[begin:end],
            self.timestamps_ns[begin:end],
            [leaf[begin:end] for leaf in self.observations],
            self.told_rewards[begin:end],
            [leaf[begin:end] for leaf in self.actions],
            self.rewards[begin:end],
        )

    def steps(self) -> Iterator[Step]:
        """Yield them as steps."""
        form = self.payloads.form
        assert form.observation_space is not None
        assert form.action_space is not None
        values = _values(form.observation_space, self.observations, len(self))
        actions = _values(form.action_space, self.actions, len(self))
        numbers = zip(
            self.ticks.tolist(),
            self.timestamps_ns.tolist(),
            self.told_rewards.tolist(),
            self.rewards.tolist(),
            strict=True,
        )
        for value, action, (tick, timestamp, told, reward) in zip(values, actions, numbers, strict=True):
            observation = Observation(value, reward=told)
            yield Step(self.actor, self.payloads, tick, timestamp, observation, action, reward=reward)


def _values(space: Space, leaves: Sequence[Any], count: int) -> Iterator[Any]:
    numbers = [isinstance(leaf, Discrete) for _, leaf in space.leaves()]
    for row in range(count):
        parts = zip(leaves, numbers, strict=True)
        yield space.from_leaf_values(iter([leaf[row] if number else leaf[row, ...] for leaf, number in parts]))


class _Elements:
    """Where the elements of a space's values are in payloads of one kind.

    Args:
        space: of the values.
        serialized: returns the payload with a value, and with some bytes of a number if `extra` has a size.
        extra: the size of the number behind the value; 0: there is none.

    Raises:
        ValueError: the space's values have no such places.
    """

    def __init__(self, space: Space, serialized: Callable[[Any, bytes], bytes], extra: int) -> None:
        leaves = [leaf for _, leaf in space.leaves()]
        self._leaves: list[ArraySpace] = []
        for leaf in leaves:
            if not isinstance(leaf, ArraySpace) or leaf.row.kind == "b" or 0 in leaf.shape:
                raise ValueError("it has another part than arrays of numbers")
            self._leaves.append(leaf)
        if not leaves:
            raise ValueError("it has no parts")
        sizes = [leaf.dtype.itemsize * int(np.prod(leaf.shape, dtype=np.int64)) for leaf in self._leaves]
        examples = []
        for byte in (b"\x00", b"\x01"):
            filled = [_array(leaf, byte * size) for leaf, size in zip(self._leaves, sizes, strict=True)]
            examples.append(serialized(space.from_leaf_values(iter(filled)), byte * extra))
        parts = constant_parts(examples[0], examples[1], [*sizes, extra] if extra else sizes)
        self._length = len(examples[0])
        self._places: list[slice] = []
        same = np.ones(self._length, bool)
        at = 0
        for part, size in zip(parts, [*sizes, extra] if extra else sizes, strict=False):
            at += len(part)
            self._places.append(slice(at, at + size))
            same[at : at + size] = False
            at += size
        #: Where all payloads have the same bytes, and these.
        self._same = np.flatnonzero(same)
        self._constant = np.frombuffer(examples[0], np.uint8)[self._same, np.newaxis]

    def cut(self, table: Any) -> list[Any] | None:
        """Return the elements in the rows of a table of bytes: an array for each leaf, and the extra bytes.

        None: a row is no such payload.
        """
        planes = table.T  # a chunk has the values of each byte side by side
        if len(planes) != self._length or not (planes[self._same] == self._constant).all():
            return None
        found = []
        for place, leaf in zip(self._places, [*self._leaves, None], strict=False):
            raw = np.ascontiguousarray(table[:, place])
            found.append(raw if leaf is None else raw.view(leaf.dtype).reshape(len(table), *leaf.shape))
        return found


def _array(leaf: ArraySpace, raw: bytes) -> Any:
    array = np.frombuffer(bytearray(raw), leaf.dtype)
    return array[0] if isinstance(leaf, Discrete) else array.reshape(leaf.shape)


class ColumnBuilder:
    """Makes columns of the runs of one trial, beside a `StepBuilder` that makes steps of everything else.

    Args:
        builder: makes the steps.
        trial: which.
    """

    def __init__(self, builder: StepBuilder, trial: StoredTrial) -> None:
        self._builder = builder
        self._names = [actor.name for actor in trial.params.actors]
        self._elements: dict[str, tuple[_Elements, _Elements] | None] = {}

    def take(self, run: Run) -> tuple[list[Step], list[StepColumns]] | None:
        """Return the steps before a run that it completes, and its own, of each actor, but for its last two ticks.

        The builder has been fed everything before, and has those two. None: the run has something that is not usual,
        or does not follow what was before, and its first sample is for the builder.
        """
        sample, count = run.sample, run.stop - run.start
        if sample is None or count < LEAST_RUN or run.ticks[-1] - run.ticks[0] != count - 1:
            return None
        made_up = sample.default_actors or sample.unavailable_actors or sample.held_actors
        if made_up or (run.ticks[1:] - run.ticks[:-1] != 1).any():
            return None
        found = []
        for actor in sample.actor_samples:
            columns = self._of_actor(run, actor)
            if columns is None:
                return None
            found.append(columns)
        told = {columns.actor: float(columns.told_rewards[0]) for columns in found}
        if told.keys() != self._builder.under_way(int(run.ticks[0])):
            return None
        before = self._builder.complete(told)
        end = count - _INCOMPLETE
        for place, columns in enumerate(found):
            complete, last = columns.part(end, count).steps()
            last.reward = None
            self._builder.leap(complete, last, _rewards_at(run, place))
        return before, [columns.part(0, end) for columns in found]

    def _of_actor(self, run: Run, actor: Any) -> StepColumns | None:
        if not (actor.HasField("observation") and actor.HasField("action")) or actor.actor >= len(self._names):
            return None
        if actor.received_messages or actor.sent_messages or actor.sent_rewards:
            return None
        if any(reward.sender != _ENVIRONMENT for reward in actor.received_rewards):
            return None
        name = self._names[actor.actor]
        payloads = self._builder.payloads_of(name)
        elements = None if payloads is None else self._elements_of(name, payloads)
        if elements is None or payloads is None:
            return None
        observed = elements[0].cut(run.payloads[actor.observation])
        acted = elements[1].cut(run.payloads[actor.action])
        if observed is None or acted is None:
            return None
        rewards = observed.pop().view("<f8")[:, 0]
        if np.isnan(rewards).any():
            return None
        # What came of an action is told with the next observation.
        results = np.append(rewards[1:], np.nan)
        return StepColumns(name, payloads, run.ticks, run.timestamps, observed, rewards, acted, results)

    def _elements_of(self, name: str, payloads: Payloads) -> tuple[_Elements, _Elements] | None:
        if name not in self._elements:
            self._elements[name] = _elements_of(payloads.form)
        return self._elements[name]


def _rewards_at(run: Run, place: int) -> ActorTick:
    """Return what an actor got in the last tick of a run, given its place in the samples: all from the environment."""
    assert run.sample is not None
    actor = run.sample.actor_samples[place]

    def number(kind: str, index: int, name: str) -> float:
        column = run.rewards.get((place, kind, index, name))
        return 0.0 if column is None else float(column[-1])

    received = [
        RewardFrom("", *(number("received_rewards", index, name) for name in ("reward", "confidence")))
        for index in range(len(actor.received_rewards))
    ]
    mean = number("reward", -1, "reward") if actor.HasField("reward") else None
    return ActorTick(None, None, reward=mean, rewards=received)


@lru_cache(16)
def _elements_of(form: Form) -> tuple[_Elements, _Elements] | None:
    if form.observation_space is None or form.action_space is None:
        return None

    def observed(value: Any, reward: bytes) -> bytes:
        told = Observation(value, reward=struct.unpack("<d", reward)[0])
        return encode_observation(told).SerializeToString()

    try:
        return (
            _Elements(form.observation_space, observed, _REWARD_BYTES),
            _Elements(form.action_space, lambda value, _: encode_action(value).SerializeToString(), 0),
        )
    except ValueError:
        return None
