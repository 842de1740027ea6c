"""The actions of a trial that ends: softly, with LAST and its acknowledgement, or hard, with END alone.

A soft end is never more than a request. It waits for actions, for the final observation set and for acknowledgements,
each of which may fail to come; so each wait has a limit. Patience covers the time until the final set, whoever is slow,
and is armed once: a second request must not extend it. Then every acknowledgement has a timer of its own, all running
side by side.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from trio_cogment.api import common_pb2
from trio_cogment.api.common_pb2 import ActorRunTrialInput, CommunicationState, EndOfTrial, TrialParams
from trio_cogment.base.outcome import EndCause, TrialOutcome
from trio_cogment.trial._events import ENVIRONMENT, NOT_STARTED, Send, SendShared, Timer, TimerKind
from trio_cogment.trial._memory import PATIENCE, Breakage, TrialMemory
from trio_cogment.trial._messages_and_rewards import send_rewards
from trio_cogment.trial._participant import Participant
from trio_cogment.trial._rates import TICK, summary
from trio_cogment.trial._samples import END_ASKED, FINAL_OBSERVATION
from trio_cogment.trial._stream_table import StreamInput, StreamState
from trio_cogment.trial._ticks import AnyObservationSet, begin_tick, fill_absences, shared_observations
from trio_cogment.trial._trial_table import Input

_LAST: Final = CommunicationState.LAST

ENVIRONMENT_ACK_MISSING: Final = "the environment did not acknowledge the end of the trial"


def mark_end(trial: TrialMemory, _participant: object, _payload: object) -> None:
    """Somebody asked for an orderly end: the next complete action set is the last."""
    # Nothing is sent yet. The environment gets LAST with the next action set, so no tick is cut in half.
    if not trial.end_marked:
        trial.end_marked = True
        trial.note_event(END_ASKED)
        trial.arm_patience()


def mark_final(trial: TrialMemory, _environment: Participant, _received: Any) -> None:
    """The environment said LAST: its next observation set is the final one."""
    trial.final_marked = True
    trial.arm_patience()


def final_tick(trial: TrialMemory, environment: Participant, observations: AnyObservationSet) -> None:
    """The final observation: rewards, LAST and the observation to every actor; then LAST_ACKs are waited for."""
    begin_tick(trial, observations)
    if trial.orderly_cause is EndCause.UNKNOWN:
        trial.orderly_cause = EndCause.ENVIRONMENT
    # Nobody answers this one, whatever was still missing of the tick before.
    trial.answered = True
    trial.awaited.clear()
    trial.note_event(FINAL_OBSERVATION)
    trial.disarm(PATIENCE)
    for actor in trial.timed:
        trial.disarm(Timer(TimerKind.RESPONSE, actor.index))
    trial.disarm(TICK)
    shared = shared_observations(trial, observations)
    end = EndOfTrial(cause=common_pb2.EndCause.Name(trial.orderly_cause))
    for actor in trial.engaged:
        if actor.rewards:
            send_rewards(trial, actor)
        actor.step(StreamInput.SEND_LAST)
        # LAST before the observation: SDKs acknowledge on the first observation after it.
        trial.out.append(Send(actor.index, ActorRunTrialInput(state=_LAST, end=end)))
        trial.out.append(SendShared(actor.index, shared[trial.mapping[actor.index]]))
    _await_acks(trial, environment)


def _await_acks(trial: TrialMemory, environment: Participant) -> None:
    # The environment may have acknowledged before its final set; that counts.
    if environment.state is StreamState.ENDING:
        trial.owing.add(ENVIRONMENT)
        trial.arm(Timer(TimerKind.ACK, ENVIRONMENT), trial.rules.environment_ack_timeout_seconds)
    for actor in trial.engaged:
        trial.owing.add(actor.index)
        trial.arm(Timer(TimerKind.ACK, actor.index), trial.rules.actor_ack_timeout_seconds)
    if not trial.owing:
        trial.fire(Input.NOBODY_LEFT_TO_ACK)


def count_ack(trial: TrialMemory, participant: Participant, _payload: Any) -> None:
    """A participant is done; when the last one is, so is the trial."""
    trial.disarm(Timer(TimerKind.ACK, participant.index))
    if participant.index in trial.owing:
        trial.owing.discard(participant.index)
        if not trial.owing:
            trial.fire(Input.NOBODY_LEFT_TO_ACK)


def count_missing_ack(trial: TrialMemory, participant: Participant, lost: Breakage | None) -> None:
    """A participant will not acknowledge any more, for it was lost or is late: the trial does not wait for it."""
    if participant.index in trial.owing:
        text = f"{participant.describe()} did not acknowledge the end of the trial"
        trial.note("warning", text)
        if lost is None:
            lost = Breakage(EndCause.ACKNOWLEDGEMENT_MISSING, text, participant.name)
            trial.record_loss(participant, lost)
        # Only the environment's word says that the trial came to its end in good order.
        if participant.index == ENVIRONMENT:
            trial.ack_loss = lost
    count_ack(trial, participant, None)


def finish(trial: TrialMemory, _participant: object, _payload: object) -> None:
    """Everybody acknowledged, or nobody is waited for: END."""
    # Rewards that came with or after the final observation: this is the last moment for them.
    for actor in trial.engaged:
        if actor.rewards:
            send_rewards(trial, actor)
    if trial.ack_loss is not None:
        _end(trial, trial.ack_loss, ENVIRONMENT_ACK_MISSING)
        return
    by = trial.environment.name if trial.orderly_cause is EndCause.ENVIRONMENT else ""
    # Participants read any details as the sign of an end that was forced.
    _end(trial, Breakage(trial.orderly_cause, "", by), "")


def break_off(trial: TrialMemory, _participant: Participant | None, why: Breakage) -> None:
    """The trial ends now, whatever is under way: END with the reason."""
    trial.note_event(f"the trial was broken off: {why.reason}")
    # One that has not started is seen nowhere else: nobody can ask about it afterwards.
    failed = why.cause is EndCause.NOT_STARTED and why.reason != NOT_STARTED
    level = "warning" if failed else "info"
    trial.note(level, f"the trial was broken off: {why.reason}")
    _end(trial, why, why.reason)


def break_off_mid_tick(trial: TrialMemory, actor: Participant, why: Breakage) -> None:
    """A required actor was lost: no action set goes out for this tick, but its sample says who had not acted."""
    # Once a set went out the sample says so already.
    if not trial.answered:
        fill_absences(trial)
    break_off(trial, actor, why)


def _end(trial: TrialMemory, why: Breakage, details: str) -> None:
    ticks = 0 if trial.latest_observation is None else trial.tick_id + 1 - trial.first_tick
    trial.outcome = TrialOutcome(trial.trial_id, why.cause, why.participant, why.reason, ticks, trial.losses)
    # Losses are between a participant and the orchestrator: the others learn of those that end the trial.
    end = (replace(trial.outcome, losses=()) if trial.losses else trial.outcome).message()
    if trial.tick_hz and ticks:
        trial.note_event(summary(trial))
        trial.note("info", summary(trial))
    # To everybody in the parameters, those left out included; the stream's table knows who can hear it.
    for participant in trial.participants.values():
        trial.send_end(participant, details, end)
        participant.present = False
        participant.held.clear()
    trial.emit_last_samples()
    trial.disarm_everything()
    # An ended trial may be kept for its info; what was big about it goes now.
    trial.latest_observation = None
    trial.observed_bytes = trial.tick_bytes = 0
    trial.taken_up = None
    trial.engaged, trial.engaged_indexes, trial.timed = [], [], []
    trial.contents = [None] * len(trial.actors)
    for actor in trial.actors:
        actor.rewards = []
        actor.default_action = actor.last_action = None
    if trial.params is not None:
        # All that is still asked of them.
        trial.params = TrialParams(properties=trial.params.properties)
