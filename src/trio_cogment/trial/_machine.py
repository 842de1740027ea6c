"""The trial machine: events in, effects out.

It joins the two tables. An event of a participant first goes to the table of its stream; what that delivers becomes an
input of the trial's table, whose action appends effects to `out`. The order of the effects is part of the protocol
(rewards before their observation, LAST before the last actions), and whoever performs them keeps it.

It knows no clock: the time comes in with each event, and timers go out as effects. So a recorded list of events replays
to the same effects, and simulations may let years pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.compiling import mypyc_attr
from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    LocalProtocolError,
    NotFoundError,
    RemoteProtocolError,
)
from trio_cogment.base.outcome import EndCause
from trio_cogment.trial import _closing, _heartbeats, _joining, _messages_and_rewards, _ticks
from trio_cogment.trial._events import (
    Begin,
    Close,
    Effect,
    Event,
    HalfClosed,
    HardEnd,
    Joined,
    Lost,
    ParametersComplete,
    Received,
    SoftEnd,
    Timer,
    TimerFired,
    TimerKind,
)
from trio_cogment.trial._memory import ActionFunction, Breakage, Rows, TrialMemory
from trio_cogment.trial._participant import Actor, Participant
from trio_cogment.trial._stream_table import StreamInput, StreamState, Verdict
from trio_cogment.trial._trial_table import ANNOUNCED, TRANSITIONS, Action, Input, Phase


def _nothing(_trial: TrialMemory, _participant: Any, _payload: Any) -> None:
    """Legal, and without effect."""


_FUNCTIONS: Final[dict[Action, ActionFunction]] = {
    Action.NOTHING: _nothing,
    Action.OPEN_TO_ACTORS: _joining.open_to_actors,
    Action.WELCOME: _joining.welcome,
    Action.START_ENVIRONMENT: _joining.start_environment,
    Action.LEAVE_OUT: _joining.leave_out,
    Action.NEXT_TICK: _ticks.next_tick,
    Action.TAKE_ACTION: _ticks.take_action,
    Action.IGNORE_UNEXPECTED_ACTION: _ticks.ignore_unexpected_action,
    Action.SEND_ACTIONS: _ticks.send_actions,
    Action.END_TICK: _ticks.end_tick,
    Action.MISS_TICKS: _ticks.miss_ticks,
    Action.SEND_LAST_AND_ACTIONS: _ticks.send_last_and_actions,
    Action.ACT_ABSENT: _ticks.act_absent,
    Action.GO_ON_WITHOUT: _ticks.go_on_without,
    Action.TAKE_REWARD: _messages_and_rewards.take_reward,
    Action.RELAY_MESSAGE: _messages_and_rewards.relay_message,
    Action.MARK_END: _closing.mark_end,
    Action.MARK_FINAL: _closing.mark_final,
    Action.FINAL_TICK: _closing.final_tick,
    Action.COUNT_ACK: _closing.count_ack,
    Action.COUNT_MISSING_ACK: _closing.count_missing_ack,
    Action.FINISH: _closing.finish,
    Action.BREAK_OFF: _closing.break_off,
    Action.BREAK_OFF_MID_TICK: _closing.break_off_mid_tick,
}


def _make_rows() -> Rows:
    # What the table says, in the shape that costs one lookup per input.
    rows: Rows = {phase: {} for phase in Phase}
    for (phase, symbol), (after, action) in TRANSITIONS.items():
        rows[phase][symbol] = (after, _FUNCTIONS[action], ANNOUNCED.get((phase, after), ()))
    return rows


#: The trial's input for what a participant's stream delivers; an observation set has two and is looked at first.
_DELIVERED: Final[dict[StreamInput, Input]] = {
    StreamInput.ACTION: Input.ACTION,
    StreamInput.REWARD: Input.REWARD,
    StreamInput.MESSAGE: Input.MESSAGE,
    StreamInput.LAST: Input.ENVIRONMENT_LAST,
    StreamInput.LAST_ACK: Input.LAST_ACK,
    StreamInput.HALF_CLOSED: Input.LAST_ACK,
}

_DELIVER: Final = Verdict.DELIVER
_OBSERVATION_SET: Final = StreamInput.OBSERVATION_SET
_END: Final = StreamInput.END
_INIT: Final = StreamInput.INIT

_FAILED: Final = EndCause.PARTICIPANT_FAILED
#: What a loss is called.
_LOST: Final = {
    _FAILED: "failed",
    EndCause.PARTICIPANT_LEFT: "left the trial",
}

#: What a participant did in vain, in more words than the name of the input.
_FAULTS: Final[dict[StreamInput, str]] = {
    StreamInput.BAD_STATE: "a message without a known communication state",
    StreamInput.BAD_DATA: "data with a communication state other than NORMAL",
    StreamInput.INIT: "a second init_output",
}


@mypyc_attr(allow_interpreted_subclasses=True)
class TrialMachine(TrialMemory):
    """One trial, from its creation to END, without I/O: events go in by `handle`, effects come out of it.

    What is illegal raises and changes nothing; what a participant does wrong never raises: it is counted, or ends that
    participant's stream. Any other exception out of `handle` is a bug of the machine.

    Args:
        trial_id: for whoever looks at the machine; it plays no part.
        rules: the operator's patience.
        collect_samples: make samples; without a datalog nobody would read them.
    """

    __slots__ = ()
    rows = _make_rows()

    # What may be asked

    @property
    def environment_name(self) -> str:
        """The environment's name; empty before the parameters are complete."""
        return self.environment.name

    @property
    def counters(self) -> Mapping[str, int]:
        """How often what kind of input was without effect; a kind that never came is absent.

        The kinds are `<input>_in_vain` (a stream's table ignores it), `refused`, `dropped` and `timer_disarmed`;
        `action_`, `observation_set_`, `message_` and `reward_` followed by what was wrong; and `too_much_said`.
        """
        return MappingProxyType(self._counters)

    def slot_for(self, *, actor_name: str = "", actor_class: str = "") -> int:
        """Return the participant index of a free client slot; `Joined` takes it.

        Args:
            actor_name: the actor's name, or empty to choose by class.
            actor_class: the first free slot of this class is taken.

        Raises:
            InvalidArgumentError: neither was given.
            NotFoundError: the trial has no such actor, or none of that class that a client could be.
            FailedPreconditionError: the trial takes no clients now, or the slot is not free.
        """
        if not actor_name and not actor_class:
            raise InvalidArgumentError("slot_selection: an actor name or an actor class was expected")
        if self.phase is not Phase.PENDING:
            raise FailedPreconditionError(
                f"trial '{self.trial_id}' is {TrialState.Name(self.state)}: actors join while it is PENDING"
            )
        what = f"actor '{actor_name}'" if actor_name else f"actor of class '{actor_class}'"
        named = [
            actor
            for actor in self.actors
            if (actor.name == actor_name if actor_name else actor.actor_class == actor_class)
        ]
        if not named:
            raise NotFoundError(f"trial '{self.trial_id}' has no {what}")
        clients = [actor for actor in named if actor.is_client]
        if not clients:
            raise FailedPreconditionError(f"{what} of trial '{self.trial_id}' is not a client: it has an endpoint")
        for actor in clients:
            if actor.state is StreamState.IDLE:
                return actor.index
        raise FailedPreconditionError(f"{what} of trial '{self.trial_id}' is not free: it joined, or its time is over")

    # What happens

    def forget_observation(self) -> None:
        """Keep no more of the latest observation than its tick and its time: it is only for those who ask."""
        latest = self.latest_observation
        if latest is not None:
            self.latest_observation = ObservationSet(tick_id=latest.tick_id, timestamp=latest.timestamp)
            self.observed_bytes = 0

    def handle(self, event: Event, now: float, wall_ns: int) -> list[Effect]:
        """Take one event and return its effects, in the order to perform them.

        Args:
            event: what happened.
            now: monotonic seconds; timers' deadlines are on the same scale.
            wall_ns: nanoseconds since the Unix epoch, for timestamps.

        Raises:
            LocalProtocolError: the event is not possible now; nothing has changed.
        """
        self.now = now
        self.wall_ns = wall_ns
        out: list[Effect] = []
        self.out = out
        _HANDLERS[type(event)](self, event)
        return out

    def _received(self, event: Received) -> None:
        try:
            participant = self.participants[event.participant]
        except KeyError:
            raise LocalProtocolError(f"there is no participant {event.participant}") from None
        message = event.message
        symbol = participant.classify(message)
        verdict = participant.step(symbol)
        participant.heard_at = now = self.now
        if verdict is not _DELIVER:
            if symbol is _END:
                self.last_words = {**self.last_words, participant.index: message.details}
            elif symbol is _INIT and verdict is Verdict.READY and participant is self.environment:
                self.environment.takes_up = message.init_output.takes_up
            self._judge(participant, symbol, verdict)
            return
        self.last_activity = now
        if symbol is _OBSERVATION_SET:
            observations = message.observation_set
            given = _ticks.observation_input(self, observations)
            if given is not None:
                self.fire(given, participant, observations)
        else:
            self.fire(_DELIVERED[symbol], participant, message)

    def _judge(self, participant: Participant, symbol: StreamInput, verdict: Verdict, lost: Lost | None = None) -> None:
        """Do what a stream's verdict says; `lost` is there if the participant is not, and says why."""
        if verdict is Verdict.ANSWER:
            _heartbeats.on_heartbeat(self, participant)
            return
        if verdict is Verdict.DROP:
            self.count("dropped")
            return
        # Heartbeats and what came too late are not activity: a participant that does nothing else is stale.
        self.last_activity = self.now
        if verdict is Verdict.DELIVER:
            self.fire(_DELIVERED[symbol], participant)
        elif verdict is Verdict.IGNORE:
            what = _FAULTS.get(symbol, symbol.name)
            # Why it goes is told when its stream closes.
            level = "debug" if symbol is _END and self.last_words[participant.index] else "warning"
            self.ignore(participant, f"{symbol.name.lower()}_in_vain", f"{what} while {participant.state.name}", level)
        elif verdict is Verdict.READY:
            _joining.get_ready(self, participant)
        elif verdict is Verdict.REFUSE:
            fault = f"{_FAULTS.get(symbol, symbol.name)} where init_output was expected"
            self.count("refused")
            self.out.append(Close(participant.index, RemoteProtocolError(fault)))
            self._lose(participant, fault, EndCause.PARTICIPANT_REFUSED)
        else:
            assert lost is not None
            if verdict is Verdict.PART:
                self.say_end(participant, lost.reason)
            self._lose(participant, lost.reason, lost.cause, lost.traceback)

    def _lose(self, participant: Participant, reason: str, cause: EndCause, traceback: str = "") -> None:
        """A participant takes no part any more."""
        words = self.last_words.get(participant.index)
        if words:
            # A client cannot end its call with a status; it says why it goes before it does.
            reason, _, traceback = words.partition("\n")
            cause = EndCause.PARTICIPANT_FAILED
        self.disarm(Timer(TimerKind.HEARTBEAT, participant.index))
        participant.present = False
        participant.held.clear()
        details = f"{participant.describe()} {_LOST.get(cause, 'was lost')}: {reason}"
        why = Breakage(cause, details, participant.name, traceback)
        # Who is done with its part may go without harm; it may not fail.
        news = self.phase <= Phase.WAIT_FINAL or participant.index in self.owing or cause is _FAILED
        if news and self.phase is not Phase.ENDED and not (isinstance(participant, Actor) and participant.gone):
            self.record_loss(participant, why)
        if not isinstance(participant, Actor):
            # From an environment even the final observations are news that is missed.
            self.note("warning" if self.phase <= Phase.WAIT_FINAL else "info", details)
            self.fire(Input.ENVIRONMENT_LOST, participant, why)
            return
        # One that was left out before has nothing left to lose.
        if participant.gone:
            return
        participant.gone = True
        participant.rewards = []
        self.refresh_engaged()
        # Leaving is not news once the trial is about to end.
        self.note("warning" if self.phase <= Phase.RUNNING else "info", details)
        symbol = Input.REQUIRED_ACTOR_LOST if participant.required else Input.OPTIONAL_ACTOR_LOST
        self.fire(symbol, participant, why)

    def _stream_over(self, event: Lost | HalfClosed) -> None:
        participant = self.participants.get(event.participant)
        if participant is None:
            raise LocalProtocolError(f"there is no participant {event.participant}")
        if isinstance(event, HalfClosed):
            symbol = StreamInput.HALF_CLOSED
            left = Lost(event.participant, "it closed its side of the stream", EndCause.PARTICIPANT_LEFT)
            self._judge(participant, symbol, participant.step(symbol), left)
            return
        if participant.state is StreamState.CONNECTING and event.cause is EndCause.PARTICIPANT_LOST:
            event = Lost(event.participant, event.reason, EndCause.PARTICIPANT_MISSING)
        symbol = StreamInput.CLOSED
        self._judge(participant, symbol, participant.step(symbol), event)

    def _joined(self, event: Joined) -> None:
        actor = self.participants.get(event.participant)
        if not isinstance(actor, Actor) or not actor.is_client:
            raise LocalProtocolError(f"participant {event.participant} is not a client's slot")
        self.fire(Input.ACTOR_JOINED, actor)

    def _timer_fired(self, event: TimerFired) -> None:
        timer = event.timer
        # It may have been disarmed while its firing was under way.
        if timer not in self._armed:
            self.count("timer_disarmed")
            return
        self._armed.discard(timer)
        kind = timer.kind
        if kind is TimerKind.PATIENCE:
            seconds = self.rules.soft_end_patience_seconds
            reason = f"the trial did not come to its end within {seconds:g} s"
            self.fire(Input.PATIENCE_OVER, None, Breakage(EndCause.PATIENCE, reason))
        elif kind is TimerKind.INACTIVITY:
            _heartbeats.on_inactivity_timer(self)
        elif kind is TimerKind.TICK:
            self.fire(Input.TICK_DUE)
        else:
            participant = self.participants[timer.participant]
            if kind is TimerKind.INIT:
                verdict = participant.step(StreamInput.GIVE_UP)
                missing = Lost(participant.index, "it did not come in time", EndCause.PARTICIPANT_MISSING)
                self._judge(participant, StreamInput.GIVE_UP, verdict, missing)
            elif kind is TimerKind.HEARTBEAT:
                _heartbeats.on_heartbeat_timer(self, participant)
            else:
                self.fire(Input.RESPONSE_TIMEOUT if kind is TimerKind.RESPONSE else Input.ACK_TIMEOUT, participant)

    def _begin(self, _event: Begin) -> None:
        self.fire(Input.BEGIN)

    def _parameters_complete(self, event: ParametersComplete) -> None:
        self.fire(Input.PARAMETERS_COMPLETE, None, event)

    def _soft_end(self, _event: SoftEnd) -> None:
        self.fire(Input.SOFT_END)

    def _hard_end(self, event: HardEnd) -> None:
        self.fire(Input.HARD_END, None, Breakage(event.cause, event.details))


_Handler: TypeAlias = Callable[[TrialMachine, Any], None]
_HANDLERS: Final[dict[type[Any], _Handler]] = {
    Received: TrialMachine._received,
    HalfClosed: TrialMachine._stream_over,
    Lost: TrialMachine._stream_over,
    Joined: TrialMachine._joined,
    TimerFired: TrialMachine._timer_fired,
    Begin: TrialMachine._begin,
    ParametersComplete: TrialMachine._parameters_complete,
    SoftEnd: TrialMachine._soft_end,
    HardEnd: TrialMachine._hard_end,
}
