"""Episodes as Minari has them: one actor's, or those of all actors together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.rl.datasets.info_columns import MASK, columns_of, mask_columns
from trio_cogment.rl.datasets.plain import array_in, stored_mask
from trio_cogment.rl.datasets.steps import Step
from trio_cogment.spaces import ArraySpace, Dict, Space, SpaceError, Text, Tuple
from trio_cogment.spaces.base import described

#: What is in the infos of one actor beside what the environment told it.
OWN = frozenset(("tick", MASK, f"_{MASK}"))
#: What has, in those of all actors together, the information of each.
INFO = "info"


@dataclass(slots=True)
class Episode:
    """One episode: observations are one more than actions.

    Attributes:
        observations: values of the observation space, stacked by part; see `stacked`.
        actions: the same of the action space.
        rewards: of each action.
        terminations: whether the task ended with each action.
        truncations: whether the episode was cut off after each action.
        infos: columns as long as the observations; see `info_columns`.
    """

    observations: Any
    actions: Any
    rewards: list[float]
    terminations: list[bool]
    truncations: list[bool]
    infos: dict[str, Any] = field(default_factory=dict)


def episodes_of_actor(steps: Sequence[Step], observations: Space, actions: Space) -> Iterator[Episode]:
    """Yield the episodes of one actor of a trial; there are several if samples are missing in between.

    Only the ticks in which the actor acted are steps. What it was rewarded with until it acted again counts for the
    action before. Without any action there is no episode.

    Args:
        steps: of the actor, in order.
        observations: the space of its observations.
        actions: the space of its actions.

    Raises:
        SpaceError: a value does not fit into its space.
    """
    for part in _runs(steps, lambda _before, step: step.is_first):
        places = [place for place, step in enumerate(part) if step.action is not None]
        if not places:
            continue
        turns = [part[begin:end] for begin, end in zip(places, [*places[1:], len(part)], strict=True)]
        seen = [*(turn[0] for turn in turns), part[-1]]
        masks = [stored_mask(actions, step.observation.action_mask) for step in seen]
        infos: dict[str, Any] = {
            "tick": np.array([step.tick for step in seen], np.int64),
            **mask_columns(actions, masks),
            **columns_of((step.observation.info for step in seen), taken=OWN),
        }
        yield Episode(
            stacked(observations, [step.observation.value for step in seen], "observation"),
            stacked(actions, [turn[0].action for turn in turns], "action"),
            [sum(step.reward or 0.0 for step in turn) for turn in turns],
            [any(step.terminated for step in turn) for turn in turns],
            [any(step.truncated for step in turn) for turn in turns],
            infos,
        )


def episodes_of_all(
    steps: Sequence[Step], observations: Mapping[str, Space], actions: Mapping[str, Space]
) -> Iterator[Episode]:
    """Yield the episodes of all actors of a trial together: observations and actions are dicts by actor.

    Every tick is a step. Of an actor that has not come yet, or is out, the observation next to it is repeated; where it
    does not act, its action is `filler` of its space. `infos` says what is so: `active`, `alive` and `acted` by actor;
    `reward`, `terminated` and `truncated`, which are of the tick before; and what they were told besides, `action_mask`
    and `info`. The episode's rewards are the sums over the actors. It is terminated if the task ended for all of them,
    and else truncated.

    Args:
        steps: of all actors, by tick.
        observations: the spaces of their observations; those of all actors of the trial.
        actions: the spaces of their actions.

    Raises:
        SpaceError: a value does not fit into its space.
    """
    for part in _runs(steps, lambda before, step: step.tick > before.tick + 1):
        ticks = range(part[0].tick, part[-1].tick + 1)
        if len(ticks) < 2:
            continue
        ways = {name: _Way([step for step in part if step.actor == name], ticks) for name in observations}
        infos: dict[str, Any] = {"tick": np.array(ticks, np.int64)}
        for kind in ("active", "alive", "acted", "reward", "terminated", "truncated"):
            infos[kind] = {name: np.array(getattr(way, kind)) for name, way in ways.items()}
        for name, way in ways.items():
            for kind, column in mask_columns(actions[name], way.masks(actions[name])).items():
                infos.setdefault(kind, {})[name] = column
            told = columns_of(way.infos())
            if told:
                infos.setdefault(INFO, {})[name] = told
        count = len(ticks) - 1
        rewards = [sum(way.reward[place + 1] for way in ways.values()) for place in range(count)]
        terminated = all(any(way.terminated) for way in ways.values())
        yield Episode(
            {name: stacked(space, ways[name].values(space), name) for name, space in observations.items()},
            {name: stacked(space, ways[name].actions(space), name) for name, space in actions.items()},
            rewards,
            [False] * (count - 1) + [terminated],
            [False] * (count - 1) + [not terminated],
            infos,
        )


class _Way:
    """One actor's way through an episode of all."""

    def __init__(self, steps: Sequence[Step], ticks: range) -> None:
        self._steps = by_tick = {step.tick: step for step in steps}
        self._ticks = ticks
        here = [by_tick.get(tick) for tick in ticks]
        self.active = [step is not None and step.observation.active for step in here]
        self.alive = [step is not None and step.observation.alive for step in here]
        self.acted = [step is not None and step.action is not None for step in here]
        before = [None, *here[:-1]]
        self.reward = [0.0 if step is None or step.reward is None else step.reward for step in before]
        self.terminated = [step is not None and step.terminated for step in before]
        self.truncated = [step is not None and step.truncated for step in before]

    def values(self, space: Space) -> Iterator[Any]:
        last = next((step.observation.value for step in self._steps.values()), None)
        if last is None:
            last = filler(space)  # it never came
        for tick in self._ticks:
            step = self._steps.get(tick)
            last = last if step is None else step.observation.value
            yield last

    def masks(self, space: Space) -> list[Any]:
        steps = (self._steps.get(tick) for tick in self._ticks)
        return [None if step is None else stored_mask(space, step.observation.action_mask) for step in steps]

    def infos(self) -> list[dict[str, Any]]:
        steps = (self._steps.get(tick) for tick in self._ticks)
        return [{} if step is None else step.observation.info for step in steps]

    def actions(self, space: Space) -> Iterator[Any]:
        nothing = filler(space)
        for tick in self._ticks[:-1]:
            step = self._steps.get(tick)
            yield nothing if step is None or step.action is None else step.action


def _runs(steps: Sequence[Step], is_new: Callable[[Step, Step], bool]) -> Iterator[list[Step]]:
    run: list[Step] = []
    for step in steps:
        if run and is_new(run[-1], step):
            yield run
            run = []
        run.append(step)
    if run:
        yield run


def filler(space: Space) -> Any:
    """Return the value of a space that stands for none: what is nearest to 0 or, for texts, the shortest."""
    if isinstance(space, Dict):
        return {key: filler(part) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(filler(part) for part in space.spaces)
    if isinstance(space, Text):
        return space.charset[:1] * space.min_length
    assert isinstance(space, ArraySpace)
    low, high = space.bounds()
    return space.check(np.minimum(np.maximum(np.zeros(space.shape, space.dtype), low), high).astype(space.dtype))


def stacked(space: Space, values: Any, root: str) -> Any:
    """Return values of a space by part: arrays with a new first dimension, lists of texts, in dicts and tuples.

    Raises:
        SpaceError: one of them is not in the space; bounds do not matter.
    """
    values = list(values)
    if isinstance(space, Dict):
        _require(values, dict, space.spaces.keys(), root)
        return {
            key: stacked(part, [value[key] for value in values], f'{root}["{key}"]')
            for key, part in space.spaces.items()
        }
    if isinstance(space, Tuple):
        _require(values, tuple, range(len(space.spaces)), root)
        return tuple(
            stacked(part, [value[place] for value in values], f"{root}[{place}]")
            for place, part in enumerate(space.spaces)
        )
    if isinstance(space, Text):
        wrong = next((value for value in values if not isinstance(value, str)), None)
        if wrong is not None:
            raise SpaceError(f"expected a string, got {described(wrong)}", root=root)
        return values
    assert isinstance(space, ArraySpace)
    found = np.empty((len(values), *space.shape), space.dtype)
    try:
        for place, value in enumerate(values):
            found[place] = array_in(space, value)
    except SpaceError as error:
        raise error.of(root) from None
    return found


def _require(values: list[Any], kind: type, keys: Any, root: str) -> None:
    for value in values:
        found = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, tuple) else None
        if not isinstance(value, kind) or found != keys:
            raise SpaceError(f"expected a {kind.__name__} of {list(keys)}, got {described(value)}", root=root)


#: What Minari's files cannot name: `/` and `.` mean something there.
_NO_KEYS = {"", ".", ".."}


def check_minari(space: Space, actor: str, field_name: str) -> None:
    """Raise unless Minari can store the values of a space.

    Raises:
        InvalidArgumentError: it has no such spaces; the text names the actor and the part.
    """
    for key in _keys(space):
        if key in _NO_KEYS or "/" in key or "\0" in key:
            text = f"expected keys that HDF5 has, without '/', got {key!r}"
            raise InvalidArgumentError(f"minari: actor {actor!r}: {field_name}: {text}")
    for path, leaf in space.leaves():
        where = f"minari: actor {actor!r}: {field_name}" + "".join(f"[{key!r}]" for key in path)
        if isinstance(leaf, ArraySpace):
            if 0 in leaf.shape:
                raise InvalidArgumentError(f"{where}: expected arrays with elements, got the shape {leaf.shape}")
        elif not isinstance(leaf, Text):
            raise InvalidArgumentError(
                f"{where}: Minari has no {type(leaf).__name__}: expected Box, Discrete, MultiDiscrete, MultiBinary, "
                "Dict, Tuple or Text"
            )


def _keys(space: Space) -> Iterator[str]:
    """Yield the keys of all dicts in a space, those of empty ones, which have no leaves, among them."""
    if isinstance(space, Dict):
        for key, part in space.spaces.items():
            yield key
            yield from _keys(part)
    elif isinstance(space, Tuple):
        for part in space.spaces:
            yield from _keys(part)
