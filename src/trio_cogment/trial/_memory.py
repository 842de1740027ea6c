"""The memory of a trial, and the means to make effects: what the actions of the trial's table work on.

The actions are functions in several modules (`_joining`, `_ticks`, `_closing` and others), so what they share is one
object. Its attributes are public to them; the table alone decides which action may run.

- `row` is the table's row of the present phase. It is kept, so that an input costs one lookup.
- `before` is the phase that was left last: when an action runs, `phase` is already the new one.
- `_armed` names the timers that run, so that only those are disarmed. They are disarmed in sorted order, since the
  order of a set may differ between runs, and a replay must give the same effects.
- `_noted` keeps a participant that repeats a mistake from filling the log: the first is logged, all are counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from trio_cogment.api.common_pb2 import (
    ActorRunTrialInput,
    CommunicationState,
    EndOfTrial,
    TakenUp,
    TrialParams,
    TrialState,
)
from trio_cogment.api.environment_pb2 import EnvRunTrialInput, ObservationSet
from trio_cogment.base.addressing import ActorAddresses
from trio_cogment.base.compiling import mypyc_attr
from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.base.outcome import EndCause, Loss, TrialOutcome
from trio_cogment.base.recount import Count
from trio_cogment.base.shared_message import Content, SharedObservationSet
from trio_cogment.trial._events import (
    DEFAULT_RULES,
    ENVIRONMENT,
    NO_PARTICIPANT,
    Announce,
    ArmTimer,
    Close,
    DisarmTimer,
    Effect,
    EmitSample,
    Note,
    Send,
    Timer,
    TimerKind,
    TrialRules,
)
from trio_cogment.trial._participant import Actor, Environment, Participant
from trio_cogment.trial._samples import SampleLog
from trio_cogment.trial._stream_table import StreamInput, StreamState, Verdict
from trio_cogment.trial._trial_table import PUBLIC_STATE, Input, Phase

#: One for all trials: few participants say why they go.
_NO_WORDS: Final[Mapping[int, str]] = MappingProxyType({})
PATIENCE: Final = Timer(TimerKind.PATIENCE, NO_PARTICIPANT)
INACTIVITY: Final = Timer(TimerKind.INACTIVITY, NO_PARTICIPANT)

_END: Final = CommunicationState.END
_ENDED: Final = TrialState.ENDED
_NOBODY: Final = ActorAddresses(())


class Breakage(NamedTuple):
    """What breaks a trial off, or the loss of a participant: the payload of the inputs that say so.

    Attributes:
        cause: why.
        reason: the same in words; END says it to the participants.
        participant: the name of the one because of whom; empty: nobody in particular.
        traceback: see `Lost`.
    """

    cause: EndCause
    reason: str
    participant: str = ""
    traceback: str = ""


@mypyc_attr(allow_interpreted_subclasses=True)
class TrialMemory:
    """The memory of one trial.

    Actions change it freely, but for `phase` and `is_over`, which only `fire` changes.

    Attributes:
        actors: all of them, in parameter order; `engaged`: those that take part now, in the same order.
        addresses: the actors that a receiver's name stands for.
        unsettled: indexes of actors that are neither ready nor left out (PENDING).
        awaited: indexes of actors whose action this tick still waits for.
        contents: this tick's actions, None where there is none (yet).
        answered: this tick's action set is done with: sent, or not wanted.
        owing: participants whose LAST_ACK is awaited.
        last_words: why participants go, as far as they say so before (`details` of an END), by index.
        losses: who was lost on the way; `ack_loss`: the environment, if it did not acknowledge the end.
        orderly_cause: why the trial is about to end in good order; UNKNOWN while it is not.
        outcome: how the trial ended; None until then.
        is_over: the trial ENDED.
        taken_up: the stored trial with which it goes on, until its environment has been told.
        goes_on: it goes on with a stored trial.
        first_tick: the first of the ticks that are its own: those of a branch begin where it does.
        end_marked: a soft end was asked for; `final_marked`: the environment said LAST.
        tick_hz: ticks a second; 0: a tick ends when everybody has acted.
        at_rates: something of `_rates` is used: a rate, actors with rates of their own, or actions that are held.
        began_tick, began_at: the first tick, and when it began if there is a rate.
        tick_slot: the end of the tick under way is so many ticks after `began_at`; 0 before the first.
        missed_ticks, late_actions, absent_actions: see `TickRate` of the API.
    """

    #: phase -> input -> (next phase, action, announced before the action); made from the table by `_machine`.
    rows: ClassVar[Rows] = {}

    __slots__ = (
        "_armed", "_counters", "_noted", "absent_actions", "ack_loss", "actors", "addresses", "answered",
        "at_rates", "awaited", "before", "began_at", "began_tick", "collect_samples", "contents", "end_marked",
        "engaged", "engaged_indexes", "environment", "final_marked", "first_tick", "goes_on", "is_over",
        "last_activity", "last_words", "late_actions", "latest_observation", "log", "losses", "mapped",
        "mapping", "max_steps", "missed_ticks", "now", "observed_bytes", "orderly_cause", "out", "outcome",
        "owing", "params", "participants", "phase", "row", "rules", "said_bytes", "said_tick", "shares_samples",
        "taken_up", "tick_bytes", "tick_hz", "tick_id", "tick_slot", "timed", "trial_id", "unsettled",
        "wall_ns",
    )  # fmt: skip

    def __init__(self, trial_id: str, *, rules: TrialRules = DEFAULT_RULES, collect_samples: bool = True) -> None:
        self.trial_id = trial_id
        self.rules = rules
        self.collect_samples = collect_samples
        self.shares_samples = False
        self.phase = self.before = Phase.CREATED
        self.row = self.rows[Phase.CREATED]
        self.is_over = False
        self.now = 0.0
        self.wall_ns = 0
        self.out: list[Effect] = []
        self.params: TrialParams | None = None
        self.environment = Environment("")
        self.actors: tuple[Actor, ...] = ()
        self.addresses = _NOBODY
        self.engaged: list[Actor] = []
        self.engaged_indexes: list[int] = []
        #: Those of the engaged that have a response timeout.
        self.timed: list[Actor] = []
        self.participants: dict[int, Participant] = {}
        self.tick_id = 0
        self.taken_up: TakenUp | None = None
        self.goes_on = False
        self.first_tick = 0
        self.max_steps = 0
        self.latest_observation: ObservationSet | SharedObservationSet | None = None
        #: Its size, as it came.
        self.observed_bytes = 0
        #: About what is held of the tick under way: actions, messages and rewards; and for its sample, all of it again.
        self.tick_bytes = 0
        self.unsettled: set[int] = set()
        #: Which observation of a set is each actor's, as in the latest set, and how many there must be for that.
        self.mapping: list[int] = []
        self.mapped = sys.maxsize
        self.awaited: set[int] = set()
        self.contents: list[Content | None] = []
        self.answered = True
        self.owing: set[int] = set()
        self.ack_loss: Breakage | None = None
        self.last_words: Mapping[int, str] = _NO_WORDS
        self.losses: tuple[Loss, ...] = ()
        self.orderly_cause = EndCause.UNKNOWN
        self.outcome: TrialOutcome | None = None
        self.end_marked = False
        self.final_marked = False
        self.last_activity = 0.0
        self.tick_hz = 0.0
        self.at_rates = False
        self.began_tick = 0
        self.began_at = 0.0
        self.tick_slot = 0
        self.missed_ticks = self.late_actions = self.absent_actions = 0
        self.log: SampleLog | None = None
        #: How many bytes of messages and rewards came in tick `said_tick`.
        self.said_bytes = 0
        self.said_tick = 0
        self._armed: set[Timer] = set()
        self._counters: dict[str, int] = {}
        self._noted: set[tuple[int, str]] = set()

    # The table

    def fire(self, symbol: Input, participant: Participant | None = None, payload: Any = None) -> None:
        """Give the trial's table one input: change the phase, announce it, run the action.

        Raises:
            LocalProtocolError: the table has no such pair; nothing has changed.
        """
        try:
            phase, action, announced = self.row[symbol]
        except KeyError:
            raise LocalProtocolError(f"a trial cannot get {symbol.name} while {self.phase.name}") from None
        if phase is self.phase:
            action(self, participant, payload)
            return
        self.before = self.phase
        self.phase = phase
        self.row = self.rows[phase]
        self.is_over = phase is Phase.ENDED
        for state in announced:
            if state != _ENDED:
                self.out.append(Announce(state))
        action(self, participant, payload)
        if phase is Phase.ENDED:
            self.out.append(Announce(_ENDED))

    @property
    def state(self) -> TrialState:
        """The public state, a `TrialState`."""
        return PUBLIC_STATE[self.phase]

    # Effects

    def send_end(self, participant: Participant, details: str, end: EndOfTrial) -> None:
        """Say END to a participant and close its stream, if it has one; `details` only if there are any."""
        if participant.step(StreamInput.SEND_END) is Verdict.PROCEED:
            self.say_end(participant, details, end)

    def say_end(self, participant: Participant, details: str, end: EndOfTrial | None = None) -> None:
        """Write END to a stream that the table has ended; without `end` the trial goes on for the others."""
        message: Any = EnvRunTrialInput() if participant.index == ENVIRONMENT else ActorRunTrialInput()
        message.state = _END
        if details:
            message.details = details
        if end is not None:
            message.end.CopyFrom(end)
        self.out.append(Send(participant.index, message))
        self.out.append(Close(participant.index, None))

    def arm(self, timer: Timer, seconds: float) -> None:
        """Arm a timer `seconds` from now; 0 is not a limit, so nothing is armed."""
        if seconds > 0:
            self.arm_at(timer, self.now + seconds)

    def arm_at(self, timer: Timer, deadline: float) -> None:
        """Arm a timer for a time on the scale of `now`."""
        self._armed.add(timer)
        self.out.append(ArmTimer(timer, deadline))

    def disarm(self, timer: Timer) -> None:
        """Disarm a timer if it is armed."""
        if timer in self._armed:
            self._armed.discard(timer)
            self.out.append(DisarmTimer(timer))

    def disarm_everything(self) -> None:
        """Disarm what is armed, in the order of the timers' names."""
        for timer in sorted(self._armed):
            self.disarm(timer)

    def arm_patience(self) -> None:
        """Begin to wait for the final observation, unless the trial already waits for it."""
        if PATIENCE not in self._armed:
            self.arm(PATIENCE, self.rules.soft_end_patience_seconds)

    def emit_last_samples(self) -> None:
        """Let the remaining samples go; the trial is over."""
        if self.log is not None:
            end = None if self.outcome is None else self.outcome.message()
            self.out.extend([EmitSample(sample) for sample in self.log.flush(end)])
            self.log = None

    def note_event(self, text: str) -> None:
        """Write a special event into the current sample."""
        if self.log is not None:
            self.log.note_event(text)

    def note(self, level: str, text: str) -> None:
        """Write something to the log."""
        self.out.append(Note(level, text))

    def ignore(self, participant: Participant, kind: str, why: str, level: str = "warning") -> None:
        """Count something a participant did in vain; tell the log the first time only."""
        self._counters[kind] = self._counters.get(kind, 0) + 1
        if (participant.index, kind) not in self._noted:
            self._noted.add((participant.index, kind))
            self.out.append(Note(level, f"{participant.describe()}: {why}; ignored (further ones only counted)"))

    def count(self, kind: str) -> None:
        """Count something that nobody need know of."""
        self._counters[kind] = self._counters.get(kind, 0) + 1

    # Participants

    def refresh_engaged(self) -> None:
        """Make the lists of who takes part again, after somebody came or went."""
        self.engaged = [actor for actor in self.actors if actor.present]
        self.engaged_indexes = [actor.index for actor in self.engaged]
        self.timed = [actor for actor in self.engaged if actor.response_timeout > 0]

    def record_loss(self, participant: Participant, why: Breakage) -> None:
        """Keep that a participant was lost, for the outcome."""
        required = not isinstance(participant, Actor) or participant.required
        loss = Loss(participant.name, why.cause, why.reason, required, max(0, self.tick_id), why.traceback)
        self.losses += (loss,)

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        latest = self.latest_observation
        size = 0
        if latest is not None and self.observed_bytes:
            size = latest.size if isinstance(latest, SharedObservationSet) else latest.ByteSize()
        yield Count("bytes of the latest observation", self.observed_bytes, size, None)
        over = self.is_over
        everybody = self.participants.values()
        to_come = [each for each in everybody if each.state <= StreamState.CONNECTING]
        held = sum(len(each.held) for each in everybody)
        yield Count("messages held for those to come", held, sum(len(each.held) for each in to_come))
        for what, number in (
            ("timers", len(self._armed)),
            ("rewards held for the next observation", sum(len(actor.rewards) for actor in self.actors)),
            ("samples held back", 0 if self.log is None else 1),
        ):
            yield Count(f"{what} of a trial", number, 0 if over else number)

    def is_expected_to_write(self, participant: Participant) -> bool:
        """Tell whether the trial waits for a participant, which may therefore be busy rather than gone."""
        if participant.index in self.owing:
            return True
        if participant.index == ENVIRONMENT:
            return self.answered if self.phase is Phase.RUNNING else self.phase < Phase.WAIT_ACKS
        return self.phase is Phase.RUNNING and self.contents[participant.index] is None


ActionFunction: TypeAlias = Callable[[TrialMemory, Any, Any], None]
Rows: TypeAlias = dict[Phase, dict[Input, tuple[Phase, ActionFunction, tuple[TrialState, ...]]]]
