"""The steps of a trial's actors: what an actor saw, what it did, and what came of it. Pure.

A step is one actor's part of one tick. Its observation and action are those of the tick; its reward, `terminated` and
`truncated` are what the actor was told next, as `step(action)` of Gymnasium returns them. The last step of an actor has
an observation only. So the flags of RLDS can be read off: `is_first`, `is_last`, `is_terminal`.

Whether an actor was cut off is known when the trial ends, or with its next observation. So steps come out two ticks
after they went in, and whatever the length of a trial, no more than two ticks of it are held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trio_cogment.base.errors import DataLossError, RemoteProtocolError
from trio_cogment.base.rewards import mean_reward
from trio_cogment.base.stand_ins import StandIn
from trio_cogment.rl.datasets.payloads import Payloads, without_spaces
from trio_cogment.rl.datasets.ticks import ActorTick, RewardFrom, Tick
from trio_cogment.spaces import Observation, SpaceError

#: How many ticks are held back.
_HELD = 2


@dataclass(slots=True, eq=False)
class Step:
    """One actor's part of one tick.

    Attributes:
        actor: its name.
        payloads: what its observations and actions are.
        tick: the number of the tick.
        timestamp_ns: when the tick began, in nanoseconds since the epoch.
        observation: what it was told in this tick.
        action: what it did; None in its last step, when it was not its turn, and if it was not available.
        default_action: the action is the default one of the trial's parameters.
        held_action: the action is an earlier one, which was taken again.
        stand_in: something acted for a person who was away: a bot, or the default action was taken.
        reward: for the action: the environment's, with 64 bits if its observations tell it, or else the mean of all
            rewards; 0 if there was none. None in the last step.
        other_rewards: the rewards for this tick that `reward` does not have in it.
        terminated: with this action the task ended for the actor.
        truncated: after this action the actor was cut off, or the trial.
        is_first: nothing came before.
        is_last: nothing comes after; there is only an observation.
        is_terminal: it is the last step, and the task has ended.
    """

    actor: str
    payloads: Payloads
    tick: int
    timestamp_ns: int
    observation: Observation
    action: Any
    default_action: bool = False
    held_action: bool = False
    stand_in: bool = False
    reward: float | None = None
    other_rewards: Sequence[RewardFrom] = ()
    terminated: bool = False
    truncated: bool = False
    is_first: bool = False
    is_last: bool = False
    is_terminal: bool = False


#: Returns what reads an actor's payloads, given its name and its first payload.
ReaderOf = Callable[[str, bytes], Payloads]


class _Track:
    """One actor on its way through a trial: its newest step, which lacks what comes next, and the one before it."""

    __slots__ = ("before", "given", "name", "over", "payloads", "step")

    def __init__(self, name: str) -> None:
        self.name = name
        self.payloads: Payloads | None = None
        self.step: Step | None = None
        self.before: Step | None = None
        self.given: ActorTick | None = None
        self.over = False


class StepBuilder:
    """Makes steps of the ticks of one trial, which come in order.

    Args:
        reader_of: returns what reads the payloads of an actor.
        trial_id: for errors.
    """

    def __init__(self, reader_of: ReaderOf, trial_id: str) -> None:
        self._reader_of = reader_of
        self._trial_id = trial_id
        self._tracks: dict[str, _Track] = {}
        self._held: deque[list[Step]] = deque()
        self._last_tick: int | None = None

    def feed(self, tick: Tick) -> list[Step]:
        """Take the next tick; return the steps that are complete now, those of one tick in the order of the actors.

        Where ticks are missing, the steps before them end as if the trial had been cut off, and others begin.

        Raises:
            DataLossError: observations are missing that others come after.
            CogmentError: a payload cannot be read; the text names trial, tick and actor.
        """
        if self._last_tick is not None and tick.tick_id != self._last_tick + 1:
            self._cut_off()
        self._last_tick = tick.tick_id
        steps = []
        for name, given in tick.actors.items():
            track = self._tracks.get(name)
            if track is None:
                track = self._tracks[name] = _Track(name)
            step = None if track.over else self._advanced(track, tick, given)
            if step is not None:
                steps.append(step)
        self._held.append(steps)
        return self._held.popleft() if len(self._held) > _HELD else []

    def finish(self, *, environment_ended: bool = False) -> list[Step]:
        """Return the steps that are left; the trial is over, or no more of it is stored.

        Args:
            environment_ended: it was the environment that ended the trial. That counts as the end of the task for
                actors whose observations are messages of other projects, and do not tell.
        """
        for track in self._tracks.values():
            told = track.payloads is None or track.payloads.form.kind == "spaces"
            _close(track, terminated=environment_ended and not told)
        steps = [step for held in self._held for step in held]
        self._held.clear()
        return steps

    def payloads_of(self, actor: str) -> Payloads | None:
        """Return what reads an actor's payloads; None if it has not come, or is out."""
        track = self._tracks.get(actor)
        return None if track is None or track.over or track.step is None else track.payloads

    def under_way(self, tick_id: int) -> set[str]:
        """Return the names of the actors that have come and are not out; none if another tick than this one is next."""
        if self._last_tick is None or tick_id != self._last_tick + 1:
            return set()
        return {name for name, track in self._tracks.items() if not track.over and track.step is not None}

    def complete(self, rewards: Mapping[str, float]) -> list[Step]:
        """Return the steps that are held, complete: all actors under way go on for two ticks at least.

        Args:
            rewards: what the next tick tells them, by name.
        """
        for name, reward in rewards.items():
            track = self._tracks[name]
            assert track.step is not None
            _complete(track.step, track.given, Observation(None, reward=reward))
        steps = [step for held in self._held for step in held]
        self._held.clear()
        return steps

    def leap(self, complete: Step, last: Step, given: ActorTick) -> None:
        """Go on after `complete` behind two steps of an actor under way: those before are done.

        Args:
            complete: the step before the last one, which lacks nothing.
            last: its last step, which lacks what comes next.
            given: what the actor got in the last tick.
        """
        track = self._tracks[last.actor]
        track.before, track.step, track.given = complete, last, given
        if not self._held:
            self._held += [], []
        for held, step in zip(self._held, (complete, last), strict=True):
            held.append(step)
        self._last_tick = last.tick

    def _cut_off(self) -> None:
        for track in self._tracks.values():
            _close(track, terminated=False)

    def _advanced(self, track: _Track, tick: Tick, given: ActorTick) -> Step | None:
        try:
            return self._advance(track, tick, given)
        except SpaceError as error:
            raise error.of(f"trial {self._trial_id!r}, tick {tick.tick_id}, {error.root}") from None
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"trial {self._trial_id!r}, tick {tick.tick_id}: {error}") from error

    def _advance(self, track: _Track, tick: Tick, given: ActorTick) -> Step | None:
        if given.observation is None:
            if given.action is not None:
                raise DataLossError(
                    f"trial {self._trial_id!r}, tick {tick.tick_id}, actor {track.name!r}: expected an observation, "
                    "but only the action is stored (datalog exclude_fields?)"
                )
            _close(track, terminated=False)
            return None
        if track.payloads is None:
            track.payloads = self._reader_of(track.name, given.observation)
        observation = track.payloads.observation(given.observation)
        step = track.step
        if step is None and not observation.alive and not (observation.terminated or observation.truncated):
            return None  # it has not come yet
        if step is not None:
            _complete(step, track.given, observation)
        ended = observation.terminated or observation.truncated or not observation.alive
        new = Step(
            track.name,
            track.payloads,
            tick.tick_id,
            tick.timestamp_ns,
            without_spaces(observation),
            None if ended or given.action is None else track.payloads.action(given.action),
            default_action=not ended and (given.default_action or given.stand_in is StandIn.DEFAULT),
            held_action=not ended and given.held_action,
            stand_in=not ended and given.stand_in is not None,
            is_first=step is None,
            is_last=ended,
            is_terminal=ended and observation.terminated,
        )
        if ended:
            new.other_rewards = given.rewards
        track.before, track.step, track.given, track.over = step, new, given, ended
        return new


def _complete(step: Step, given: ActorTick | None, told: Observation) -> None:
    """Give a step what came of it."""
    assert given is not None
    if told.reward is not None:
        step.reward = told.reward
        # The environment's own is the same reward, with fewer bits.
        step.other_rewards = [reward for reward in given.rewards if reward.sender]
    else:
        own = [(reward.value, reward.confidence) for reward in given.rewards if not reward.sender]
        if own:
            step.reward = mean_reward(own)
            step.other_rewards = [reward for reward in given.rewards if reward.sender]
        else:
            step.reward = 0.0 if given.reward is None else given.reward
    step.terminated, step.truncated = told.terminated, told.truncated
    if not (told.alive or told.terminated or told.truncated):
        step.truncated = True  # it is out, and nobody has said why


def _close(track: _Track, *, terminated: bool) -> None:
    """End the way of an actor with its newest step; what comes later begins again."""
    step, before = track.step, track.before
    if step is not None and not track.over:
        # What an action led to that nobody has seen is not a step.
        step.action, step.default_action, step.held_action, step.stand_in = None, False, False, False
        step.is_last, step.is_terminal = True, terminated
        step.other_rewards = track.given.rewards if track.given is not None else ()
        if before is not None:
            before.terminated, before.truncated = terminated, not terminated
    if not track.over:
        track.step = track.before = track.given = None
