"""The actions while participants join: actors come, or do not; then the environment. The trial has not begun yet.

The environment is contacted last, when it is settled who takes part, so that a trial whose required actors do not come
costs no environment. The wait for each actor is its own and runs from the beginning, side by side with the others.
"""

from __future__ import annotations

from typing import Any, Final

from trio_cogment.api.common_pb2 import ActorRunTrialInput, CommunicationState, TrialActor
from trio_cogment.api.environment_pb2 import EnvRunTrialInput
from trio_cogment.base.addressing import ActorAddresses
from trio_cogment.base.outcome import EndCause
from trio_cogment.trial._events import Connect, ParametersComplete, Send, Timer, TimerKind
from trio_cogment.trial._memory import INACTIVITY, Breakage, TrialMemory
from trio_cogment.trial._messages_and_rewards import send_held
from trio_cogment.trial._params import DEFAULT_BUFFERED_TICKS
from trio_cogment.trial._participant import Actor, Environment, Participant
from trio_cogment.trial._samples import SampleLog
from trio_cogment.trial._stream_table import StreamInput
from trio_cogment.trial._trial_table import Input

_NORMAL: Final = CommunicationState.NORMAL

CANNOT: Final = "it neither saves itself nor is it played again"


def open_to_actors(trial: TrialMemory, _participant: object, complete: ParametersComplete) -> None:
    """Contact every service actor, all in parallel, and wait for the clients."""
    params = complete.params
    trial.params = params
    trial.max_steps = params.max_steps
    trial.tick_hz = params.environment.tick_hz
    taken_up = complete.taken_up
    if taken_up is not None:
        trial.taken_up, trial.goes_on, trial.tick_id = taken_up, True, taken_up.tick_id
        # One that goes on under its own id has had the ticks before.
        trial.first_tick = 0 if taken_up.trial_id == trial.trial_id else taken_up.tick_id
    trial.environment = Environment(params.environment.name)
    trial.actors = tuple(Actor(index, params) for index in range(len(params.actors)))
    trial.began_tick = trial.tick_id
    trial.at_rates = trial.tick_hz > 0 or any(a.observe_every > 1 or a.hold_action for a in trial.actors)
    trial.addresses = ActorAddresses((actor.name, actor.actor_class) for actor in trial.actors)
    trial.participants = {participant.index: participant for participant in (trial.environment, *trial.actors)}
    trial.unsettled = set(range(len(trial.actors)))
    # Waiting for actors counts as inactivity too: a trial that nobody joins must not stay indefinitely.
    trial.last_activity = trial.now
    trial.arm(INACTIVITY, params.max_inactivity)
    if trial.collect_samples:
        held_back = complete.held_back_bytes
        trial.log = SampleLog(
            params,
            trial.wall_ns,
            trial.rules.max_held_back_bytes if held_back is None else held_back,
            shares=trial.shares_samples,
            first_tick=trial.tick_id,
        )
        for name in trial.log.unknown_fields:
            trial.note("warning", f"datalog.exclude_fields: a sample has no field '{name}'")
        if params.nb_buffered_ticks and params.nb_buffered_ticks < DEFAULT_BUFFERED_TICKS:
            least = DEFAULT_BUFFERED_TICKS
            trial.note("warning", f"nb_buffered_ticks: {params.nb_buffered_ticks} is too few, {least} are used")
    for actor in trial.actors:
        if not actor.is_client:
            actor.step(StreamInput.CONNECT)
            # Posted before the stream is open: SDKs wait for init_input and send nothing before it.
            trial.out.append(Connect(actor.index))
            trial.out.append(Send(actor.index, _actor_init(trial, actor)))
        trial.arm(Timer(TimerKind.INIT, actor.index), actor.init_timeout)


def welcome(trial: TrialMemory, actor: Actor, _payload: object) -> None:
    """A client took its slot: it gets its init_input at once, and no second init_output is expected."""
    actor.step(StreamInput.JOIN)
    trial.last_activity = trial.now
    trial.out.append(Send(actor.index, _actor_init(trial, actor)))
    get_ready(trial, actor)


def get_ready(trial: TrialMemory, participant: Participant) -> None:
    """A participant is there: it takes part from now on."""
    if trial.goes_on and isinstance(participant, Environment) and not participant.takes_up:
        text = f"{participant.describe()} cannot be taken up at a tick: {CANNOT}"
        trial.fire(Input.ENVIRONMENT_LOST, participant, Breakage(EndCause.PARTICIPANT_REFUSED, text, participant.name))
        return
    participant.present = True
    participant.heard_at = trial.now
    trial.arm(Timer(TimerKind.HEARTBEAT, participant.index), trial.rules.heartbeat_seconds)
    trial.disarm(Timer(TimerKind.INIT, participant.index))
    send_held(trial, participant)
    if isinstance(participant, Actor):
        trial.refresh_engaged()
        _settle(trial, participant)


def leave_out(trial: TrialMemory, actor: Actor, _loss: Breakage) -> None:
    """An optional actor did not come, or went before the trial began."""
    trial.disarm(Timer(TimerKind.INIT, actor.index))
    _settle(trial, actor)


def start_environment(trial: TrialMemory, _participant: object, _payload: object) -> None:
    """Nobody is waited for any more: contact the environment."""
    assert trial.params is not None
    environment, params = trial.environment, trial.params.environment
    environment.step(StreamInput.CONNECT)
    message = EnvRunTrialInput(state=_NORMAL)
    data = message.init_input
    data.name = params.name
    data.impl_name = params.implementation
    data.actors_in_trial.extend([TrialActor(name=a.name, actor_class=a.actor_class) for a in trial.actors])
    # Empty but present is not the same as absent: peers tell them apart.
    if params.HasField("config"):
        data.config.CopyFrom(params.config)
    if trial.taken_up is not None:
        data.tick_id = trial.tick_id
        data.taken_up.CopyFrom(trial.taken_up)
        trial.taken_up = None  # it may be large
    if trial.tick_hz:
        data.tick_hz = trial.tick_hz
    rules = trial.rules
    if rules.checkpoint_ticks or rules.checkpoint_seconds:
        data.checkpoints.ticks, data.checkpoints.seconds = rules.checkpoint_ticks, rules.checkpoint_seconds
    trial.out.append(Connect(environment.index))
    trial.out.append(Send(environment.index, message))
    trial.arm(Timer(TimerKind.INIT, environment.index), trial.rules.environment_init_timeout_seconds)


def _settle(trial: TrialMemory, actor: Actor) -> None:
    if actor.index in trial.unsettled:
        trial.unsettled.discard(actor.index)
        if not trial.unsettled:
            trial.fire(Input.ACTORS_SETTLED)


def _actor_init(trial: TrialMemory, actor: Actor) -> Any:
    assert trial.params is not None
    params = trial.params.actors[actor.index]
    message = ActorRunTrialInput(state=_NORMAL)
    data = message.init_input
    data.actor_name = params.name
    data.actor_class = params.actor_class
    data.impl_name = params.implementation
    data.env_name = trial.environment.name
    if params.HasField("config"):
        data.config.CopyFrom(params.config)
    if trial.tick_hz:
        data.tick_hz = trial.tick_hz
    if actor.observe_every > 1:
        data.observe_every = actor.observe_every
    return message
