"""Ticks at a rate, actors that are observed every n-th tick, and actions that are taken again.

With `tick_hz` a tick ends by the clock, neither before nor after: the k-th one ends k / hz seconds after the first
observations, so that rounding and waiting never add up. Whoever has not acted by then takes part with its default
action, or with its last one where `hold_action` says so. Times at which the environment has not sent its observations
are *missed*: they are counted and not made up for, since ticks that follow one another at once would leave nobody the
time to act.

An actor with `observe_every` is shown every n-th tick. Its action answers that observation: it may come in any of the n
ticks, and is taken again in those that follow it. The ticks are counted from 0 and not from the trial's first one, so
that a trial that goes on with a stored one keeps the order; its first tick is shown to everybody.

An action that comes when its ticks are over is *late*: it is dropped and counted once, also if it comes again, and
never taken for a later tick. That is why actions are compared with the observation that they answer (`acted_tick`).

Rule: none of it costs a trial that uses none of it more than a look at `at_rates` or `tick_hz`.
"""

from __future__ import annotations

from typing import Any, Final

from trio_cogment.api.common_pb2 import Action
from trio_cogment.trial._events import NO_PARTICIPANT, Timer, TimerKind
from trio_cogment.trial._memory import TrialMemory
from trio_cogment.trial._messages_and_rewards import CURRENT_TICK
from trio_cogment.trial._participant import Actor

TICK: Final = Timer(TimerKind.TICK, NO_PARTICIPANT)


def observed(trial: TrialMemory) -> list[Actor]:
    """Return who is shown the tick that begins, and note it."""
    tick_id = trial.tick_id
    found = [actor for actor in trial.engaged if tick_id == trial.began_tick or tick_id % actor.observe_every == 0]
    for actor in found:
        actor.observed_tick = tick_id
    return found


def tick_time(trial: TrialMemory) -> float:
    """Return when the tick under way is to end, on the scale of `now`."""
    return trial.began_at + trial.tick_slot / trial.tick_hz


def arm_tick(trial: TrialMemory) -> None:
    """Have the tick that has begun end by the clock; with the first one the clock starts."""
    if trial.tick_slot == 0:
        trial.began_at, trial.tick_slot = trial.now, 1
    trial.arm_at(TICK, tick_time(trial))


def miss_ticks(trial: TrialMemory) -> None:
    """Count the times that have passed without observations, and go on with the next one that is still to come."""
    before = trial.tick_slot
    # The product may be rounded to either side of a slot.
    trial.tick_slot = max(before, int((trial.now - trial.began_at) * trial.tick_hz) - 1)
    while tick_time(trial) <= trial.now:
        trial.tick_slot += 1
    missed = trial.tick_slot - before
    if not trial.missed_ticks:
        text = f"{trial.environment.describe()}: its observations came after their tick's time"
        trial.note("warning", f"{text}; a tick is missed (further ones only counted)")
    trial.missed_ticks += missed
    trial.note_event(f"ticks missed, because the observations came late: {missed}")


def takes(trial: TrialMemory, actor: Actor, action: Any) -> bool:
    """Return whether an action is one for the tick under way; if it is not, it has been counted, or kept."""
    tick_id = trial.tick_id if action.tick_id == CURRENT_TICK else action.tick_id
    if not trial.began_tick <= tick_id <= trial.tick_id:
        trial.ignore(actor, "action_of_wrong_tick", f"an action for tick {tick_id}, not {trial.tick_id}")
        return False
    # The observation that it answers.
    asked = max(tick_id - tick_id % actor.observe_every, trial.began_tick)
    if asked <= actor.acted_tick:
        trial.ignore(actor, "action_repeated", f"another action for tick {tick_id}")
        return False
    actor.acted_tick = asked
    is_last = (trial.tick_id + 1) % actor.observe_every == 0
    if asked < actor.observed_tick or (trial.answered and is_last):
        trial.late_actions += 1
        trial.ignore(actor, "action_late", f"an action for tick {tick_id} after its action set was sent")
        return False
    if actor.hold_action or actor.observe_every > 1:
        # Encoded now: the environment may change an object that it is given.
        actor.last_action = Action(tick_id=tick_id, timestamp=action.timestamp, content=bytes(action.content))
    return not trial.answered


def missed(trial: TrialMemory) -> list[str]:
    """Return the required actors because of whose missing actions the trial has to end; at a rate it does not."""
    if trial.tick_hz:
        return []
    absent = (a for a in trial.actors if a.required and trial.contents[a.index] is None)
    return [actor.name for actor in absent if held_action(actor) is None]


def held_action(actor: Actor) -> Action | None:
    """Return the action that is taken again for one who has not acted in this tick; None if there is none."""
    if actor.present and (actor.hold_action or actor.acted_tick == actor.observed_tick):
        return actor.last_action
    return None


def count_absence(trial: TrialMemory, actor: Actor) -> None:
    """Count that a tick at a rate ended before an actor had answered what it was shown."""
    if trial.tick_hz and actor.present and actor.acted_tick != actor.observed_tick:
        trial.absent_actions += 1


def summary(trial: TrialMemory) -> str:
    """Return how a trial has kept its rate, for its last sample and the log."""
    return (
        f"at {trial.tick_hz:g} Hz: ticks missed: {trial.missed_ticks}; late actions, dropped: {trial.late_actions}; "
        f"actions made up: {trial.absent_actions}"
    )
