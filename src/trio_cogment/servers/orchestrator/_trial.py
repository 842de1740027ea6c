"""A trial for as long as the orchestrator knows it: it feeds the pure machine and performs the machine's effects.

Whoever brings an input (a participant's message, a timer, a request) feeds the machine at once, in its own task, and
the effects are performed before `feed` returns. None of that waits, so inputs cannot interleave and nothing needs a
lock; a tick costs no task switch of the orchestrator's. What does wait (opening streams, the data log, farewells) has
tasks in the nursery of the trial's run, which is in `_trial_run`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from trio_cogment.access import lasting
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfo
from trio_cogment.base.errors import CogmentError, PermissionDeniedError
from trio_cogment.base.outcome import MAX_REASON, EndCause, TrialOutcome
from trio_cogment.base.shared_message import SharedSample
from trio_cogment.rpc import ServerCall
from trio_cogment.servers.orchestrator._alarms import Alarms
from trio_cogment.servers.orchestrator._datalog import Datalog
from trio_cogment.servers.orchestrator._glance import Glance, glance
from trio_cogment.servers.orchestrator._info import describe
from trio_cogment.servers.orchestrator._participant_stream import ParticipantStream, post_batch
from trio_cogment.servers.orchestrator._participant_streams import ParticipantStreams
from trio_cogment.servers.orchestrator._room import Holding
from trio_cogment.servers.orchestrator._tick_bytes import FREE_BYTES, TickBytes, tick_memory
from trio_cogment.servers.orchestrator._timers import Timers
from trio_cogment.trial import (
    Announce,
    ArmTimer,
    Close,
    Connect,
    DisarmTimer,
    Effect,
    EmitSample,
    Event,
    HardEnd,
    Joined,
    Note,
    Send,
    SendBatch,
    SendShared,
    SoftEnd,
    Timer,
    TimerFired,
    TrialMachine,
)

if TYPE_CHECKING:
    from trio_cogment.servers.orchestrator._tracing import TrialTrace

_log = logging.getLogger(__name__)

#: The number of a tick that never comes.
_NO_TICK: Final = sys.maxsize
#: What an ended trial takes beside what is measured, and each of those who took part.
_KEPT_BYTES: Final = 2048
_KEPT_PARTICIPANT_BYTES: Final = 1024

FAILED: Final = "the orchestrator failed to run this trial; its log has the details"
_STATE_NAMES: Final = {number: name for name, number in TrialState.items()}
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Queues(NamedTuple):
    """What waits in a trial.

    Attributes:
        samples: how many samples wait for the data log.
        messages: how many messages wait for participants that do not read fast enough.
        longest: how many of them wait for one participant, the one with the most.
        max_messages: how many may wait for one participant.
    """

    samples: int
    messages: int
    longest: int
    max_messages: int


class Trial:
    """A trial, from the reservation of its id until it is forgotten.

    It takes no parameters: while it is INITIALIZING it is known, described, watched and ended like any other, but has
    no participants and no data log. `equip` gives it both, complete, and `release` takes them back when it is over, so
    that what is remembered of an ended trial is small.

    Args:
        user_id: who started it.
        machine: with an id that is unique in the orchestrator.
        holding: what it takes of the server; it is given back with `release`.
        alarms: of the orchestrator.
        wall_clock: nanoseconds since the epoch.
        on_state: told about each change of state, after it happened.
        on_settled: told when its data log takes no more samples.
        trace: has its spans; None: it has none.

    Attributes:
        starting: cancelled when the trial ends; whoever starts it works in this scope while it asks others.
        settled: set when the trial is PENDING, or `refusal` says why it could not start.
        over: nothing more comes from the machine.
        ended_at: when it ended, on Trio's clock; 0 before.
        timers: the trial's time and its deadlines.
        hands_over: it ends here, and another attempt goes on with it.
        has_begun: there was an observation before it was handed over.
        trace: see above.
    """

    #: Of the class while there are none: there are many trials.
    _samples_lost = 0
    hands_over = False
    has_begun = False

    def __init__(
        self,
        user_id: str,
        machine: TrialMachine,
        holding: Holding,
        *,
        alarms: Alarms,
        wall_clock: Callable[[], int],
        on_state: Callable[[Trial, int], None],
        on_settled: Callable[[Trial], None],
        trace: TrialTrace | None = None,
    ) -> None:
        self.trial_id = machine.trial_id
        self.user_id = user_id
        self.machine = machine
        self.holding = holding
        self._wall_clock = wall_clock
        self._on_state = on_state
        self._on_settled = on_settled
        self.starting: trio.CancelScope | None = None
        self.settled = trio.Event()
        self.refusal: CogmentError | None = None
        self.over = False
        self._started_at = trio.current_time()
        self.ended_at = 0.0
        self.timers = Timers(self._fire, alarms)
        self._streams: ParticipantStreams | None = None
        self._datalog: Datalog | None = None
        self._backlog: list[Event] = []
        self._feeding = False
        self._observed_bytes = 0
        #: Of a trial whose ticks are large.
        self._tick_bytes: TickBytes | None = None
        self.trace = trace
        first = None if trace is None else trace.first_tick
        #: The next tick that is a span; none while one is under way.
        self._traced_tick: int = _NO_TICK if first is None else first
        #: The machine's, but while a tick is a span: others pay for it one comparison where they begin and end.
        self._handle: Callable[[Event, float, int], list[Effect]] = machine.handle

    def equip(self, streams: ParticipantStreams, datalog: Datalog | None) -> None:
        """Set who takes part, and where samples go, before the machine gets the parameters they follow from."""
        self._streams = streams
        self._datalog = datalog
        self.machine.collect_samples = datalog is not None
        self.machine.shares_samples = datalog is not None and datalog.takes_shared

    @property
    def equipped(self) -> bool:
        """Whether it has its participants: from `equip` to `release`."""
        return self._streams is not None

    def release(self) -> None:
        """Forget everybody; the trial is over, and none of its tasks is left. The second time nothing happens."""
        self._streams = None
        self._datalog = None
        self.trace = None
        self.holding.leave()

    # Inputs

    def feed(self, event: Event) -> None:
        """Hand one input to the machine and perform what it asks for; returns when all of it is done."""
        if self._feeding:
            # An effect of the input being handled (an outbox that overflows) is itself an input: it comes next.
            self._backlog.append(event)
            return
        timers = self.timers
        try:
            now = timers.clock() if timers.steady else timers.now()
            effects = self._handle(event, now, self._wall_clock())
        except Exception:  # noqa: BLE001  the boundary of a trial
            self._feeding = True
            self._fail(event)
            self._settle()
            return
        if effects:
            if self.machine.tick_id >= self._traced_tick:
                self._trace_tick()
            self._feeding = True
            self._perform(event, effects)
            self._settle()
        elif self.machine.tick_bytes > FREE_BYTES or self._tick_bytes is not None:  # nothing else has changed
            self._count_tick()

    def _settle(self) -> None:
        """Handle the inputs that performing effects has brought, and look at what may have changed."""
        try:
            while self._backlog:
                event = self._backlog.pop(0)
                if type(event) is HardEnd:
                    self._break_off(event)
                    continue
                try:
                    effects = self._handle(event, self.timers.now(), self._wall_clock())
                except Exception:  # noqa: BLE001  the boundary of a trial
                    self._fail(event)
                else:
                    self._perform(event, effects)
        finally:
            self._feeding = False
        machine = self.machine
        if machine.observed_bytes != self._observed_bytes:
            self._keep_observation()
        if machine.tick_bytes > FREE_BYTES or self._tick_bytes is not None:
            self._count_tick()
        if machine.is_over and not self.over:
            self._end()

    def _trace_tick(self) -> None:
        """Have the tick that is under way be a span, if one is."""
        if self.trace is not None and self.trace.begin_tick():
            self._traced_tick = _NO_TICK
            self._handle = self._handle_traced

    def _handle_traced(self, event: Event, now: float, wall_ns: int) -> list[Effect]:
        effects = self.machine.handle(event, now, wall_ns)
        following = None if self.trace is None else self.trace.handled(event)
        if following is not None:
            self._traced_tick = following
            self._handle = self.machine.handle
        return effects

    def _perform(self, event: Event, effects: list[Effect]) -> None:
        streams = self._streams
        try:
            for effect in effects:
                if type(effect) is SendShared and streams is not None:  # the usual ones, without a call
                    streams[effect.participant].post_shared(effect.shared)
                elif type(effect) is SendBatch and streams is not None:
                    post_batch(streams, effect.participants, effect.messages)
                elif type(effect) is Send and streams is not None:
                    streams[effect.participant].post(effect.message)
                else:
                    _PERFORM[type(effect)](self, effect)
        except Exception:  # noqa: BLE001  the boundary of a trial
            self._fail(event)

    def _fail(self, event: Event) -> None:
        _log.exception("trial %s: failed while handling %s", self.trial_id, type(event).__name__)
        self._backlog.clear()
        self._break_off(HardEnd(FAILED, EndCause.INTERNAL))

    def _break_off(self, event: HardEnd) -> None:
        """End the trial hard: whatever fails on the way, everything else is done, and it is over."""
        try:
            effects = self.machine.handle(event, self.timers.now(), self._wall_clock())
        except Exception:  # noqa: BLE001  the boundary of a trial
            _log.exception("trial %s: cannot even be ended", self.trial_id)
            self._end()
            return
        for effect in effects:
            try:
                _PERFORM[type(effect)](self, effect)
            except Exception:  # noqa: BLE001  the boundary of a trial
                _log.exception("trial %s: failed while ending", self.trial_id)

    def _end(self) -> None:
        if self.over:
            return
        self.ended_at = trio.current_time()
        if self._datalog is not None:
            self._datalog.complete()
        if self.starting is not None:
            self.starting.cancel()
        self.timers.stop()
        if self._tick_bytes is not None:
            self._tick_bytes.close()
        if self.trace is not None:
            self.trace.end(self.machine.outcome)
        self.over = True

    def _count_tick(self) -> None:
        """Borrow what is held of the tick; there are others when this is too much, see `_tick_bytes`."""
        if self._tick_bytes is None:
            self._tick_bytes = TickBytes(tick_memory(), self._give_way)
            if self._datalog is not None:
                self._datalog.weighs_all = True
        self._tick_bytes.hold(self.machine.tick_bytes, self.machine.tick_id, trio.current_time())

    def _give_way(self) -> None:
        why = "server_memory_bytes: it has held too much of a tick for too long, and others need the memory"
        self.hard_end(why, EndCause.PARTICIPANT_REFUSED)

    def _keep_observation(self) -> None:
        """Keep the latest observation for those who ask, if there is room for it."""
        machine = self.machine
        if not self.holding.observe(machine.observed_bytes):
            machine.forget_observation()
        self._observed_bytes = machine.observed_bytes

    @property
    def kept_bytes(self) -> int:
        """About what it takes once it has ended, as long as it is remembered; it has had its parameters."""
        machine = self.machine
        assert machine.params is not None
        size = _KEPT_BYTES + _KEPT_PARTICIPANT_BYTES * len(machine.participants) + machine.params.ByteSize()
        return size + sum(len(loss.reason) + len(loss.traceback) for loss in machine.losses)

    @property
    def owner(self) -> str:
        """The account that has started it; empty: this process."""
        return self.holding.account

    def soft_end(self) -> None:
        """Ask for an orderly end."""
        self.feed(SoftEnd())

    def hard_end(self, details: str, cause: EndCause = EndCause.HARD_TERMINATION) -> None:
        """End now: when this returns, END has been posted to everybody and the state is ENDED."""
        if not self.machine.is_over:
            self._backlog.append(HardEnd(details, cause))
            if not self._feeding:
                self._feeding = True
                self._settle()

    def join(self, call: ServerCall, *, actor_name: str, actor_class: str) -> ParticipantStream:
        """Give a client actor its place; the check and the taking are one step.

        Raises:
            CogmentError: there is no such place, or it is taken, or it is not for this caller.
        """
        index = self.machine.slot_for(actor_name=actor_name, actor_class=actor_class)
        actor = self.machine.actors[index]
        if not call.identity.plays(self.trial_id, self.owner, actor.actor_class, actor.name):
            raise PermissionDeniedError(
                f"trial {self.trial_id!r}: actor {actor.name!r} of class {actor.actor_class!r}: not for this caller"
            )
        assert self._streams is not None
        stream = self._streams[index]
        if self.trace is not None:
            self.trace.takes_part(index, joins=True)
        self.feed(Joined(index))
        stream.attach(call)
        return stream

    # Effects

    def _send(self, effect: Send) -> None:
        assert self._streams is not None
        self._streams[effect.participant].post(effect.message)

    def _send_shared(self, effect: SendShared) -> None:
        assert self._streams is not None
        self._streams[effect.participant].post_shared(effect.shared)

    def _send_batch(self, effect: SendBatch) -> None:
        assert self._streams is not None
        post_batch(self._streams, effect.participants, effect.messages)

    def _connect(self, effect: Connect) -> None:
        assert self._streams is not None
        if self.trace is None:
            self._streams.connect(effect.participant)
            return
        self.trace.takes_part(effect.participant)
        with self.trace.within(effect.participant):
            self._streams.connect(effect.participant)

    def _close(self, effect: Close) -> None:
        assert self._streams is not None
        self._streams[effect.participant].close(effect.error)
        if self.trace is not None:
            self.trace.left(effect.participant, effect.error or "")

    def _arm(self, effect: ArmTimer) -> None:
        self.timers.arm(effect.timer, effect.deadline)

    def _disarm(self, effect: DisarmTimer) -> None:
        self.timers.disarm(effect.timer)

    def _fire(self, timer: Timer) -> None:
        self.feed(TimerFired(timer))

    def _emit(self, effect: EmitSample) -> None:
        if self._datalog is not None:
            sample = effect.sample
            if self.hands_over:
                if not self.has_begun:
                    return
                # What is stored has no end: it goes on from here.
                sample = sample.whole() if isinstance(sample, SharedSample) else sample
                sample.info.state = TrialState.RUNNING
                sample.info.ClearField("end")
            self._datalog.put(sample)

    def _announce(self, effect: Announce) -> None:
        _log.info("trial %s: %s", self.trial_id, _STATE_NAMES[effect.state])
        if effect.state == TrialState.PENDING:
            clients = [repr(actor.name) for actor in self.machine.actors if actor.is_client]
            if clients:
                what = "client actor" if len(clients) == 1 else "client actors"
                _log.info("trial %s: waiting for %s %s to join", self.trial_id, what, ", ".join(clients))
        self._on_state(self, effect.state)

    def _note(self, effect: Note) -> None:
        _log.log(_LEVELS[effect.level], "trial %s: %s", self.trial_id, effect.text)

    # What others may ask

    @property
    def state(self) -> int:
        """The trial's state, a `TrialState`."""
        return self.machine.state

    @property
    def time(self) -> float:
        """The trial's time, in seconds: Trio's clock, but for the pauses while the data log cannot keep up."""
        return self.timers.now()

    @property
    def seconds(self) -> float:
        """How long it has lasted, from its creation to now or to its end."""
        return (self.ended_at if self.over else trio.current_time()) - self._started_at

    @property
    def queues(self) -> Queues:
        """What waits in it now."""
        streams, datalog = self._streams, self._datalog
        samples = 0 if datalog is None else datalog.queued_samples
        if streams is None:
            return Queues(samples, 0, 0, 0)
        return Queues(samples, streams.queued_messages, streams.longest_queue, streams.max_queued_messages)

    @property
    def outcome(self) -> TrialOutcome | None:
        """How it ended, and what became of its samples so far; None before it ended."""
        outcome, pending, lost = self.machine.outcome, self.samples_pending, self.samples_lost
        if outcome is None or not (pending or lost):
            return outcome
        return replace(outcome, samples_pending=pending, samples_lost=lost)

    @property
    def samples_pending(self) -> bool:
        """Whether its data log may still take samples of it."""
        return self._datalog is not None and not self._datalog.over

    @property
    def samples_lost(self) -> int:
        """How many samples did not reach its data log, so far."""
        return self._samples_lost if self._datalog is None else self._datalog.dropped_samples

    @property
    def datalog_trouble(self) -> str:
        """Why its data log takes no samples now; empty: it does."""
        return "" if self._datalog is None or self._datalog.over else self._datalog.trouble

    @property
    def waits_for_datalog(self) -> bool:
        """Whether it waits for its data log now, and so for nobody else."""
        return self.timers.suspended and self.state != TrialState.ENDED

    def samples_settled(self, lost: int) -> None:
        """Learn that its data log takes no more samples; this many were lost."""
        if lost:
            self._samples_lost = lost
        self._on_settled(self)

    def glance(self, *, participants: bool = False) -> Glance:
        """Return what can be seen of it now at little cost."""
        queues = self.queues
        return glance(
            self.machine,
            owner=self.owner,
            user_id=self.user_id,
            seconds=self.seconds,
            now=self.time,
            queued_messages=queues.messages,
            queued_samples=queues.samples,
            lost_samples=self.samples_lost,
            datalog_trouble=self.datalog_trouble,
            waits_for_datalog=self.waits_for_datalog,
            streams=(self._streams or {}) if participants else None,
        )

    def info(self, *, latest_observation: bool = False, actors: bool = False, tracebacks: bool = False) -> TrialInfo:
        """Describe the trial as it is now; tracebacks are for callers within this process."""
        outcome = self.outcome
        end = None if outcome is None else outcome.message(tracebacks=tracebacks)
        info = describe(self.machine, self.seconds, latest_observation=latest_observation, actors=actors, end=end)
        info.waits_for_datalog = self.waits_for_datalog
        if info.waits_for_datalog:
            del info.awaited[:]
        info.samples_lost = self.samples_lost
        info.datalog_trouble = self.datalog_trouble[:MAX_REASON]
        info.owner = lasting(self.owner)
        info.run_id = self.holding.run_id
        return info


_PERFORM: Final[dict[type, Callable[[Trial, Any], None]]] = {
    Send: Trial._send,
    SendShared: Trial._send_shared,
    SendBatch: Trial._send_batch,
    Connect: Trial._connect,
    Close: Trial._close,
    ArmTimer: Trial._arm,
    DisarmTimer: Trial._disarm,
    EmitSample: Trial._emit,
    Announce: Trial._announce,
    Note: Trial._note,
}
