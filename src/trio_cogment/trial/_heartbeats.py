"""Heartbeats and inactivity: a silent participant is sent a heartbeat; a trial without activity ends.

An actor that does not act in time is `_ticks.act_absent`; one that does not join in time, a timer of `_machine`.

A participant that has been silent for `heartbeat_seconds` is sent a HEARTBEAT, unless it is expected to write. The
published SDK answers a heartbeat beside whatever else it writes. One that has computed for longer than a heartbeat's
time, and finds a heartbeat together with what it wants to send, loses its stream to gRPC's refusal of two writes at a
time; so whoever may be about to write is left in peace, and its connection's PINGs watch it.

Heartbeats are not activity: a trial in which nothing else happens for `max_inactivity` seconds ends.

A message only writes down its time. The timers are moved when they fire, not with every message.
"""

from __future__ import annotations

from typing import Any

from trio_cogment.api.common_pb2 import ActorRunTrialInput, CommunicationState
from trio_cogment.api.environment_pb2 import EnvRunTrialInput
from trio_cogment.base.outcome import EndCause
from trio_cogment.trial._events import ENVIRONMENT, Send, Timer, TimerKind
from trio_cogment.trial._memory import INACTIVITY, Breakage, TrialMemory
from trio_cogment.trial._participant import Participant
from trio_cogment.trial._stream_table import StreamInput
from trio_cogment.trial._trial_table import Input, Phase

#: This many who did not come are named when nothing happens before a trial begins.
_MOST_NAMED = 3


def on_heartbeat(trial: TrialMemory, participant: Participant) -> None:
    """A participant sent a heartbeat: answer it, unless it is itself an answer."""
    # Were an answer answered, the peer would answer that again.
    if participant.unanswered_heartbeats:
        participant.unanswered_heartbeats -= 1
    else:
        _send_heartbeat(trial, participant)


def on_heartbeat_timer(trial: TrialMemory, participant: Participant) -> None:
    """Send a heartbeat to a participant that has been silent for too long, and arm the timer again."""
    seconds = trial.rules.heartbeat_seconds
    deadline = max(participant.heard_at, participant.heartbeat_sent_at) + seconds
    if trial.now >= deadline:
        deadline = trial.now + seconds
        if not trial.is_expected_to_write(participant):
            participant.step(StreamInput.SEND_HEARTBEAT)
            participant.heartbeat_sent_at = trial.now
            participant.unanswered_heartbeats += 1
            _send_heartbeat(trial, participant)
    trial.arm_at(Timer(TimerKind.HEARTBEAT, participant.index), deadline)


def on_inactivity_timer(trial: TrialMemory) -> None:
    """End the trial if nothing has happened for too long, or arm the timer again."""
    assert trial.params is not None
    deadline = trial.last_activity + trial.params.max_inactivity
    if trial.now >= deadline:
        reason = f"nothing happened for {trial.params.max_inactivity} s{_who_is_missing(trial)}"
        trial.fire(Input.HARD_END, None, Breakage(EndCause.INACTIVITY, reason))
    else:
        trial.arm_at(INACTIVITY, deadline)


def _who_is_missing(trial: TrialMemory) -> str:
    """Return who keeps a trial from beginning, for people; nothing when it has begun."""
    if trial.phase is not Phase.PENDING:
        return ""
    to_come = [trial.actors[index].describe() for index in sorted(trial.unsettled)]
    if not to_come and trial.environment.present:
        return f": {trial.environment.describe()} sent no observations"
    named = to_come[:_MOST_NAMED] or [trial.environment.describe()]
    more = f" and {len(to_come) - _MOST_NAMED} more" if len(to_come) > _MOST_NAMED else ""
    return f": {', '.join(named)}{more} did not come"


def _send_heartbeat(trial: TrialMemory, participant: Participant) -> None:
    message: Any = EnvRunTrialInput() if participant.index == ENVIRONMENT else ActorRunTrialInput()
    message.state = CommunicationState.HEARTBEAT
    trial.out.append(Send(participant.index, message))
