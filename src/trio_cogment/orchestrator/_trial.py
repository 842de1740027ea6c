"""One trial: the pure machine, the streams of its participants, its timers and its data log, in a nursery of its own.

Whoever brings an input (a participant's message, a timer, a request) feeds the machine at once, in its own task, and
the effects are performed before `feed` returns. None of that waits, so inputs cannot interleave and nothing needs a
lock; a tick costs no task switch of the orchestrator's. What does wait (opening streams, the data log, farewells) has
tasks in the trial's nursery.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfo
from trio_cogment.config import OrchestratorConfig
from trio_cogment.endpoints import parse_endpoint
from trio_cogment.errors import CogmentError, FailedPreconditionError, RpcError, StatusCode
from trio_cogment.orchestrator._connections import Connections, Target
from trio_cogment.orchestrator._datalog import Datalog
from trio_cogment.orchestrator._info import describe
from trio_cogment.orchestrator._links import Links
from trio_cogment.orchestrator._participant import Link
from trio_cogment.orchestrator._rules import rules_of
from trio_cogment.orchestrator._timers import Timers
from trio_cogment.orchestrator.sinks import SampleSink
from trio_cogment.rpc import Call
from trio_cogment.trial import (
    Announce,
    ArmTimer,
    Begin,
    Close,
    Connect,
    DisarmTimer,
    EmitSample,
    Event,
    HardEnd,
    Joined,
    Note,
    ParametersComplete,
    Send,
    SoftEnd,
    Timer,
    TimerFired,
    TrialMachine,
)

_log = logging.getLogger(__name__)

STOPPING = "the orchestrator is stopping"
_FAILED = "the orchestrator failed to run this trial; its log has the details"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Trial:
    """A trial from its id's reservation to its end.

    Args:
        trial_id: unique in the orchestrator.
        user_id: who started it.
        config: limits and timeouts.
        wall_clock: nanoseconds since the epoch.
        on_state: told about each change of state, after it happened.
        on_samples_lost: told how many samples did not reach the data log, whenever some did not.
        rng: makes the trial's reconnections differ from those of others.
        make_machine: makes its machine.
    """

    def __init__(
        self,
        trial_id: str,
        user_id: str,
        *,
        config: OrchestratorConfig,
        wall_clock: Callable[[], int],
        on_state: Callable[[Trial, int], None],
        on_samples_lost: Callable[[int], None],
        rng: random.Random,
        make_machine: Callable[..., TrialMachine] = TrialMachine,
    ) -> None:
        self.trial_id = trial_id
        self.user_id = user_id
        self._config = config
        self._wall_clock = wall_clock
        self._on_state = on_state
        self.on_samples_lost = on_samples_lost
        self._rng = rng
        self.machine = make_machine(trial_id, rules=rules_of(config))
        self.starting = trio.CancelScope()
        self._connecting = trio.CancelScope()
        self._shield = trio.CancelScope(shield=True)
        #: Set when the trial is PENDING, or `refusal` says why it could not start.
        self.settled = trio.Event()
        self.refusal: CogmentError | None = None
        self.over = False
        self._started_at = trio.current_time()
        self._ended_at = 0.0
        self._links = Links(trial_id, config, self.feed, self.spawn)
        self._datalog: Datalog | None = None
        self._timers = Timers(self._fire)
        self._nursery: trio.Nursery | None = None
        self._connections: Connections | None = None
        self._backlog: list[Event] = []
        self._feeding = False

    def begin(self) -> None:
        """Announce the trial."""
        self.feed(Begin())

    # Inputs

    def feed(self, event: Event) -> None:
        """Hand one input to the machine and perform what it asks for; returns when all of it is done."""
        if self._feeding:
            # An effect of the input being handled (an outbox that overflows) is itself an input: it comes next.
            self._backlog.append(event)
            return
        self._feeding = True
        try:
            self._handle(event)
            while self._backlog:
                self._handle(self._backlog.pop(0))
        finally:
            self._feeding = False
        if self.machine.is_over and not self.over:
            self._end()

    def _handle(self, event: Event) -> None:
        if isinstance(event, HardEnd):
            self._break_off(event)
            return
        try:
            for effect in self.machine.handle(event, self._timers.now(), self._wall_clock()):
                _PERFORM[type(effect)](self, effect)
        except Exception:  # noqa: BLE001  the boundary of a trial
            _log.exception("trial %s: failed while handling %s", self.trial_id, type(event).__name__)
            self._backlog.clear()
            self._break_off(HardEnd(_FAILED))

    def _break_off(self, event: HardEnd) -> None:
        """End the trial hard: whatever fails on the way, everything else is done, and it is over."""
        try:
            effects = self.machine.handle(event, self._timers.now(), self._wall_clock())
        except Exception:  # noqa: BLE001  the boundary of a trial
            _log.exception("trial %s: cannot even be ended", self.trial_id)
            self._end()
            return
        for effect in effects:
            try:
                _PERFORM[type(effect)](self, effect)
            except Exception:  # noqa: BLE001  the boundary of a trial
                _log.exception("trial %s: failed while ending", self.trial_id)

    def soft_end(self) -> None:
        """Ask for an orderly end."""
        self.feed(SoftEnd())

    def hard_end(self, details: str) -> None:
        """End now: when this returns, END has been posted to everybody and the state is ENDED."""
        if not self.machine.is_over:
            self.feed(HardEnd(details))

    def join(self, call: Call, *, actor_name: str, actor_class: str) -> Link:
        """Give a client actor its place; the check and the taking are one step.

        Raises:
            CogmentError: there is no such place, or it is taken.
        """
        index = self.machine.slot_for(actor_name=actor_name, actor_class=actor_class)
        link = self._links[index]
        self.feed(Joined(index))
        link.attach(call)
        return link

    # Effects

    def _send(self, effect: Send) -> None:
        self._links[effect.participant].post(effect.message)

    def spawn(self, function: Callable[..., Awaitable[None]], name: str, *arguments: Any) -> None:
        """Start a task of the trial; it is over when the trial is."""
        if self._nursery is not None:
            self._nursery.start_soon(function, *arguments, name=f"trial {self.trial_id}: {name}")

    def _connect(self, effect: Connect) -> None:
        assert self._connections is not None
        self._links.connect(effect.participant, self._connections)

    def _close(self, effect: Close) -> None:
        self._links[effect.participant].close(effect.error)

    def _arm(self, effect: ArmTimer) -> None:
        self._timers.arm(effect.timer, effect.deadline)

    def _disarm(self, effect: DisarmTimer) -> None:
        self._timers.disarm(effect.timer)

    def _fire(self, timer: Timer) -> None:
        self.feed(TimerFired(timer))

    def _emit(self, effect: EmitSample) -> None:
        if self._datalog is not None:
            self._datalog.put(effect.sample)

    def _announce(self, effect: Announce) -> None:
        _log.info("trial %s: %s", self.trial_id, TrialState.Name(effect.state))
        self._on_state(self, effect.state)

    def _note(self, effect: Note) -> None:
        _log.log(_LEVELS[effect.level], "trial %s: %s", self.trial_id, effect.text)

    def on_datalog_full(self, full: bool) -> None:
        """Let the trial wait for its data log: nobody is read, and its time stands still, until the log has room."""
        if full:
            self._timers.suspend()
            self._links.pause()
        else:
            self._timers.resume()
            self._links.resume()

    # Life

    def prepare(
        self, params: TrialParams, targets: Sequence[Target | None], environment: Target, sink: SampleSink | None
    ) -> None:
        """Set where everybody is reached: actors in order (None for client actors), environment, data log."""
        self._links.prepare(params, targets, environment)
        if sink is not None:
            self._datalog = Datalog(self.trial_id, self.user_id, sink, config=self._config, rng=self._rng, owner=self)
        self.machine.collect_samples = sink is not None

    async def run(self, connections: Connections, params: TrialParams) -> None:
        """Run the trial to its end; `settled` tells when it is PENDING.

        Cancelling does nothing to it: whoever does calls `abandon`.
        """
        self._connections = connections
        try:
            # Shielded, so that END can leave when the host cancels.
            with self._shield:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    self.refusal = await self._open_datalog(nursery, params)
                    if self.refusal is None:
                        self.feed(ParametersComplete(params))
                        self.settled.set()
                        await self._timers.run()
                    else:
                        nursery.cancel_scope.cancel()
                    # What is left ends by itself: streams within their farewell, the data log when it has everything or
                    # takes no more of it.
        except* Exception as failures:  # noqa: BLE001  said below
            # The boundary of a trial: whatever went wrong in here ends this one and no other.
            _log.error("trial %s: failed", self.trial_id, exc_info=failures)
            self._nursery = None  # it takes no more tasks
            if not self.settled.is_set():
                self.refusal = RpcError(StatusCode.INTERNAL, _FAILED)
            self.hard_end(_FAILED)
        finally:
            self.settled.set()
            # An ended trial is remembered for a while: what it described stays, what it was made of goes.
            self._links.release()
            self._nursery = None

    def abandon(self, farewell: float) -> None:
        """The host cancels: everybody is told, and has until `farewell`, on Trio's clock, to hear it."""
        self.hard_end(STOPPING)
        self._shield.deadline = min(self._shield.deadline, farewell)

    async def _open_datalog(self, nursery: trio.Nursery, params: TrialParams) -> CogmentError | None:
        if self._datalog is not None:
            # Not in the scope that bounds the wait: a call keeps the deadline it was opened under.
            nursery.start_soon(self._datalog.run, params)
            # As it was read, not as it was written: that may have a token in it.
            shown = str(parse_endpoint(params.datalog.endpoint))
            return await self._datalog.wait_opened(shown, lambda: self.over, self._connecting)
        if self.over:
            return FailedPreconditionError("the trial was terminated while it was starting")
        return None

    def _end(self) -> None:
        if self.over:
            return
        self._ended_at = trio.current_time()
        if self._datalog is not None:
            self._datalog.complete()
        self.starting.cancel()
        self._connecting.cancel()
        self._timers.stop()
        self.over = True

    # What others may ask

    @property
    def state(self) -> int:
        """The trial's state, a `TrialState`."""
        return self.machine.state

    @property
    def time(self) -> float:
        """The trial's time, in seconds: Trio's clock, but for the pauses while the data log cannot keep up."""
        return self._timers.now()

    @property
    def ended_at(self) -> float:
        """When it ended, on Trio's clock; 0 before."""
        return self._ended_at

    @property
    def seconds(self) -> float:
        """How long it has lasted, from its creation to now or to its end."""
        return (self._ended_at if self.over else trio.current_time()) - self._started_at

    @property
    def queued_samples(self) -> int:
        """How many samples wait for the data log."""
        return 0 if self._datalog is None else self._datalog.queued_samples

    @property
    def queued_messages(self) -> int:
        """How many messages wait for participants that do not read fast enough."""
        return self._links.queued_messages

    @property
    def longest_queue(self) -> int:
        """How many of them wait for one participant, the one with the most."""
        return self._links.longest_queue

    @property
    def max_queued_messages(self) -> int:
        """How many may wait for one participant."""
        return self._links.max_queued_messages

    @property
    def lost_samples(self) -> int:
        """How many samples did not reach the data log."""
        return 0 if self._datalog is None else self._datalog.dropped_samples

    def info(self, *, latest_observation: bool = False, actors: bool = False) -> TrialInfo:
        """Describe the trial as it is now."""
        return describe(self.machine, self.seconds, latest_observation=latest_observation, actors=actors)


_PERFORM: dict[type, Callable[[Trial, Any], None]] = {
    Send: Trial._send,
    Connect: Trial._connect,
    Close: Trial._close,
    ArmTimer: Trial._arm,
    DisarmTimer: Trial._disarm,
    EmitSample: Trial._emit,
    Announce: Trial._announce,
    Note: Trial._note,
}
