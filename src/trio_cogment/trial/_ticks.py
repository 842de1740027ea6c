"""The actions of a running trial: observations out, actions in; late actions, and actors that do not act in time.

This is the hot path. Every actor's every tick passes through `next_tick` and `take_action`, so they bind what they use
to locals and set protobuf fields one by one; elsewhere in the package readability comes first.

Who still has to act is a set (`awaited`), never a count. An actor can act, be lost, run out of time or act twice, in
any order, and each of these takes it out of the set at most once; the reference counts, and sends an action set too
early when an actor acts and then disconnects.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from trio_cogment.api.common_pb2 import CommunicationState
from trio_cogment.api.environment_pb2 import EnvRunTrialInput, ObservationSet
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.shared_message import (
    Content,
    SharedActionSet,
    SharedMessage,
    SharedObservation,
    SharedObservationSet,
)
from trio_cogment.trial import _rates
from trio_cogment.trial._events import EmitSample, Send, SendBatch, SendShared, Timer, TimerKind
from trio_cogment.trial._memory import Breakage, TrialMemory
from trio_cogment.trial._messages_and_rewards import CURRENT_TICK, take_rewards
from trio_cogment.trial._participant import Actor, Participant
from trio_cogment.trial._samples import STEPS_USED_UP
from trio_cogment.trial._stream_table import StreamInput
from trio_cogment.trial._trial_table import PUBLIC_STATE, Input, Phase

#: As it has come: from another process, or from this one.
AnyObservationSet: TypeAlias = ObservationSet | SharedObservationSet

#: What an environment writes for "the next tick".
NEXT_TICK: Final = -1

#: Timestamps are nanoseconds since the Unix epoch, but the published JavaScript SDK sends microseconds. Those of the
#: years 1973 to 2286 are between these; as nanoseconds, such numbers would be of the first months of 1970.
_MICROSECONDS_FROM: Final = 10**14
_MICROSECONDS_TO: Final = 10**16

_LAST: Final = CommunicationState.LAST
_RESPONSE: Final = TimerKind.RESPONSE


def observation_input(trial: TrialMemory, observations: AnyObservationSet) -> Input | None:
    """Return which input an observation set is; None if it is refused, and then nothing has changed but a counter."""
    # Everything is checked here, before the table is asked: a refused set must not use up a tick.
    expected = trial.tick_id if trial.latest_observation is None else trial.tick_id + 1
    tick_id = observations.tick_id
    if tick_id != NEXT_TICK and tick_id != expected:
        problem = f"an observation set for tick {tick_id}, not {expected}"
        trial.ignore(trial.environment, "observation_set_of_wrong_tick", problem, "error")
        return None
    count = len(trial.actors)
    # A map may be longer than there are actors; what is beyond them concerns nobody.
    indexes = observations.actors_map[:count]
    sent = len(observations.observations)
    # Most environments map every tick alike.
    if (indexes != trial.mapping or sent < trial.mapped) and not _keep_mapping(trial, indexes, sent):
        problem = f"an observation set whose actors_map does not give each of {count} actors an observation"
        trial.ignore(trial.environment, "observation_set_with_bad_map", problem, "error")
        return None
    if trial.final_marked:
        return Input.FINAL_OBSERVATION_SET
    late = trial.tick_hz and trial.answered and trial.phase is Phase.RUNNING and trial.now >= _rates.tick_time(trial)
    return Input.LATE_OBSERVATION_SET if late else Input.OBSERVATION_SET


def _keep_mapping(trial: TrialMemory, indexes: list[int], sent: int) -> bool:
    """Keep a map that gives each actor one of `sent` observations; return whether it does."""
    if len(indexes) != len(trial.actors) or min(indexes) < 0 or max(indexes) >= sent:
        return False
    trial.mapping, trial.mapped = indexes, max(indexes) + 1
    return True


def next_tick(trial: TrialMemory, _environment: Participant, observations: AnyObservationSet) -> None:
    """A tick begins: give every actor what it sees, and begin to wait for what it does."""
    begin_tick(trial, observations)
    shared = shared_observations(trial, observations)
    indexes = trial.mapping
    engaged, timed = trial.engaged, trial.timed
    participants = trial.engaged_indexes
    if trial.at_rates:
        engaged = _rates.observed(trial)
        timed = [actor for actor in timed if actor.observed_tick == trial.tick_id]
        participants = [actor.index for actor in engaged]
    trial.awaited = awaited = set(participants)
    messages: list[SharedMessage] = [shared[indexes[index]] for index in participants]
    for actor in engaged:
        if actor.rewards:
            participants, messages = _with_rewards(engaged, messages)
            break
    if participants:
        trial.out.append(SendBatch(participants, messages))
    for actor in timed:
        trial.arm(Timer(_RESPONSE, actor.index), actor.response_timeout)
    if trial.tick_hz:
        _rates.arm_tick(trial)
    if trial.log is not None:
        for sample in trial.log.leaving():
            trial.out.append(EmitSample(sample))
    if not awaited:
        # Nobody is left to act: the trial goes on with defaults, as fast as its environment.
        complete_actions(trial)


def _with_rewards(actors: list[Actor], observations: list[SharedMessage]) -> tuple[list[int], list[SharedMessage]]:
    """Return what a `SendBatch` has, of each actor its rewards, if it has any, and its observation."""
    participants: list[int] = []
    messages: list[SharedMessage] = []
    for actor, observation in zip(actors, observations, strict=True):
        if actor.rewards:
            # Before the observation: an actor learns by relating the reward to what it did last.
            participants.append(actor.index)
            messages.append(take_rewards(actor).shared)
        participants.append(actor.index)
        messages.append(observation)
    return participants, messages


def miss_ticks(trial: TrialMemory, environment: Participant, observations: AnyObservationSet) -> None:
    """A tick begins after the time at which it was to end."""
    _rates.miss_ticks(trial)
    next_tick(trial, environment, observations)


def shared_observations(trial: TrialMemory, observations: AnyObservationSet) -> dict[int, SharedObservation]:
    """Return the observations that actors see, by their places in the set: each is made once, whoever sees it."""
    tick_id, timestamp, contents = trial.tick_id, observations.timestamp, observations.observations
    # A set may have more of them than anybody sees.
    return {place: SharedObservation(tick_id, timestamp, contents[place]) for place in set(trial.mapping)}


def begin_tick(trial: TrialMemory, observations: AnyObservationSet) -> None:
    """Close the tick under way, if there is one, and begin the next."""
    if _MICROSECONDS_FROM <= observations.timestamp < _MICROSECONDS_TO:
        observations.timestamp *= 1000
    size = trial.tick_bytes
    if trial.latest_observation is not None:
        trial.tick_id += 1
        trial.tick_bytes = 0
    if trial.log is not None:
        if type(observations) is SharedObservationSet and observations.told:
            _log_told(trial, observations)
        # `before` is the phase an input has just left; where it left none, the last tick ended in RUNNING.
        ended_in = Phase.WAIT_FINAL if trial.before is Phase.WAIT_FINAL else Phase.RUNNING
        trial.log.begin_tick(trial.tick_id, trial.wall_ns, observations, PUBLIC_STATE[ended_in], size)
    trial.latest_observation = observations
    trial.observed_bytes = size = size_of(observations)
    if trial.log is not None:
        trial.tick_bytes += size
    trial.answered = False
    trial.contents = [None] * len(trial.actors)


def _log_told(trial: TrialMemory, observations: SharedObservationSet) -> None:
    """Keep rewards of the tick that ends: their receivers learn of them from what they see."""
    assert trial.log is not None
    sender = trial.environment.name
    for reward in observations.told:
        if reward.sender != sender:
            for source in reward.sources:
                source.sender_name = sender
            reward.sender, reward.stored = sender, None
    trial.log.take_told(observations.told)


def size_of(observations: AnyObservationSet) -> int:
    """Return about how many bytes an observation set takes."""
    return observations.size if type(observations) is SharedObservationSet else observations.ByteSize()


def take_action(trial: TrialMemory, actor: Actor, received: Any) -> None:
    """Take an actor's action; the first of each tick counts, until the action set is sent."""
    # Wrong ticks come first: an action that is late by a tick must not pass for this one's. Then the repeated one, then
    # the one that comes after the set went out, because the actor had run out of time.
    action = received.action
    tick_id, index, contents = action.tick_id, actor.index, trial.contents
    if trial.at_rates:
        if _MICROSECONDS_FROM <= action.timestamp < _MICROSECONDS_TO:
            action.timestamp *= 1000
        if not _rates.takes(trial, actor, action):
            return
    elif tick_id != CURRENT_TICK and tick_id != trial.tick_id:
        trial.ignore(actor, "action_of_wrong_tick", f"an action for tick {tick_id}, not {trial.tick_id}")
        return
    elif contents[index] is not None:
        trial.ignore(actor, "action_repeated", f"another action for tick {trial.tick_id}")
        return
    elif trial.answered:
        trial.ignore(actor, "action_late", f"an action for tick {trial.tick_id} after its action set was sent")
        return
    contents[index] = content = action.content
    size = len(content)
    trial.tick_bytes += size
    if trial.log is not None:
        if _MICROSECONDS_FROM <= action.timestamp < _MICROSECONDS_TO:
            action.timestamp *= 1000
        trial.log.take_action(index, action)
        trial.tick_bytes += size
    if actor.response_timeout > 0:
        trial.disarm(Timer(_RESPONSE, index))
    awaited = trial.awaited
    awaited.discard(index)
    if not awaited:
        complete_actions(trial)


def ignore_unexpected_action(trial: TrialMemory, actor: Actor, _received: Any) -> None:
    """An action while the trial has no tick to act in; what is late in a running trial is for `take_action`."""
    trial.ignore(actor, "action_out_of_season", "an action while none is waited for", "info")


def act_absent(trial: TrialMemory, actor: Actor, _payload: object) -> None:
    """An actor's time to respond is over, for this tick."""
    # It stays part of the trial: until the set is sent, an action that comes after all takes the place of the absence.
    if actor.index not in trial.awaited:
        return  # it was asked in an earlier tick, which has ended
    trial.awaited.discard(actor.index)
    if not trial.awaited:
        complete_actions(trial)


def go_on_without(trial: TrialMemory, actor: Actor, _loss: Breakage) -> None:
    """An optional actor was lost; what it did this tick, if the set is not sent yet, is void."""
    trial.disarm(Timer(_RESPONSE, actor.index))
    if trial.answered:
        return
    trial.contents[actor.index] = None
    if trial.log is not None:
        trial.log.void_action(actor.index)
    trial.awaited.discard(actor.index)
    if not trial.awaited:
        complete_actions(trial)


def complete_actions(trial: TrialMemory) -> None:
    """Nobody's action is waited for any more: choose the input that this is."""
    if trial.tick_hz:
        trial.fire(Input.ACTIONS_BEFORE_TIME)
    else:
        _end_actions(trial)


def end_tick(trial: TrialMemory, _participant: object, _payload: object) -> None:
    """The time of a tick at a rate is over."""
    trial.tick_slot += 1
    if not trial.answered:
        trial.awaited.clear()
        _end_actions(trial)


def _end_actions(trial: TrialMemory) -> None:
    # From here on the tick takes no actions: neither a late one nor a loss can complete it again.
    trial.answered = True
    if trial.final_marked:
        trial.fire(Input.UNWANTED_ACTIONS_COMPLETE)
        return
    if None in trial.contents:
        missing = [a.name for a in trial.actors if a.required and trial.contents[a.index] is None]
        if trial.at_rates and missing:
            missing = _rates.missed(trial)
        if missing:
            # For the sample alone: it says who was absent, although no action set goes out.
            fill_absences(trial)
            actors = "actor" if len(missing) == 1 else "actors"
            names = ", ".join(f"'{name}'" for name in missing)
            details = f"no action for tick {trial.tick_id} from required {actors} {names}"
            trial.fire(Input.REQUIRED_ACTION_MISSING, None, Breakage(EndCause.ACTION_MISSING, details, missing[0]))
            return
    if trial.end_marked or 0 < trial.max_steps <= trial.tick_id:
        trial.fire(Input.LAST_ACTIONS_COMPLETE)
    else:
        trial.fire(Input.ACTIONS_COMPLETE)


def send_actions(trial: TrialMemory, _participant: object, _payload: object) -> None:
    """Give the environment one action per actor, in parameter order."""
    contents: Any = trial.contents
    unavailable: list[int] = []
    if None in contents:
        contents, unavailable = fill_absences(trial)
    actions = SharedActionSet(trial.tick_id, trial.wall_ns, contents, unavailable)
    trial.out.append(SendShared(trial.environment.index, actions))


def send_last_and_actions(trial: TrialMemory, _participant: object, _payload: object) -> None:
    """The same for the last time: the environment's next observation set is the final one."""
    if trial.end_marked:
        trial.orderly_cause = EndCause.SOFT_TERMINATION
    else:
        trial.orderly_cause = EndCause.STEP_LIMIT
        trial.note_event(STEPS_USED_UP)
    # LAST first: the environment must know that the actions it reads next lead to its final set.
    trial.environment.step(StreamInput.SEND_LAST)
    trial.out.append(Send(trial.environment.index, EnvRunTrialInput(state=_LAST)))
    send_actions(trial, None, None)
    trial.arm_patience()


def fill_absences(trial: TrialMemory) -> tuple[list[Content], list[int]]:
    """Return the contents with those of absent actors made up, and the indexes of those that have no default."""
    contents: list[Content] = []
    held: list[int] = []
    defaults: list[int] = []
    unavailable: list[int] = []
    for actor in trial.actors:
        content = trial.contents[actor.index]
        if content is None and trial.at_rates:
            _rates.count_absence(trial, actor)
            action = _rates.held_action(actor)
            if action is not None:
                content = action.content
                held.append(actor.index)
                if trial.log is not None:
                    trial.log.take_action(actor.index, action)
        if content is None:
            # An empty default is a default all the same.
            content = actor.default_action
            (defaults if content is not None else unavailable).append(actor.index)
        contents.append(content or b"")
    if trial.log is not None:
        trial.log.take_absences(defaults, unavailable, held)
    return contents, unavailable
