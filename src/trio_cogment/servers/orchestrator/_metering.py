"""Measuring trials: a machine that is watched from outside, and an orchestrator's gauges.

Everything a trial does goes through its machine's `handle`, so that is where its ticks are timed. A trial that is not
measured has the plain machine, and pays nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.metrics import OrchestratorGauges, OrchestratorMetrics
from trio_cogment.trial import ENVIRONMENT, Effect, EmitSample, Event, Lost, Received, TrialMachine, TrialRules

if TYPE_CHECKING:
    from trio_cogment.servers.orchestrator._trial import Trial

MakeMachine = Callable[..., TrialMachine]
# Looking these up costs more than what is done with them.
_RUNNING, _TERMINATING = TrialState.RUNNING, TrialState.TERMINATING
_handle = TrialMachine.handle
_STARTING = (TrialState.INITIALIZING, TrialState.PENDING)
_STATES = [name for name, value in TrialState.items() if value]


def machine_for(metrics: OrchestratorMetrics | None) -> MakeMachine:
    """Return what makes the machines of trials."""
    return TrialMachine if metrics is None else partial(MeteredMachine, metrics)


class MeteredMachine(TrialMachine):
    """A machine whose ticks are timed, on the trial's own time: what waits for a slow data log is nobody's fault."""

    __slots__ = ("_began", "_last_set", "_metrics", "_observation", "_rate", "_unanswered")

    def __init__(self, metrics: OrchestratorMetrics, trial_id: str, *, rules: TrialRules) -> None:
        super().__init__(trial_id, rules=rules)
        self._metrics = metrics
        self._observation: object = None
        self._began: float  # set when a tick begins
        self._last_set: float | None = None
        self._unanswered = False
        #: What has been told of the rate.
        self._rate = (0, 0, 0)

    @override
    def handle(self, event: Event, now: float, wall_ns: int) -> list[Effect]:
        if type(event) is Lost:
            self._lost(event.participant)
        # Who has run out of time, or whose action nobody wants any more, has not acted with what it says next.
        is_awaited = type(event) is Received and event.participant in self.awaited
        effects = _handle(self, event, now, wall_ns)
        if type(event) is Received:
            index = event.participant
            if is_awaited and index not in self.awaited and not self.is_over:
                self._metrics.actor_acted(self.actors[index].actor_class, now - self._began)
            elif index == ENVIRONMENT and self._shows_another():
                self._tick_began(now)
        if self._unanswered and self.answered:
            self._tick_answered(now)
        if self.tick_hz:
            self._tell_rate()
        if effects and self.collect_samples:
            emitted = sum(type(effect) is EmitSample for effect in effects)
            if emitted:
                self._metrics.samples_emitted(emitted)
        return effects

    def _tell_rate(self) -> None:
        now, told = (self.missed_ticks, self.late_actions, self.absent_actions), self._rate
        if now != told:
            self._rate = now
            self._metrics.rate_kept(now[0] - told[0], now[1] - told[1], now[2] - told[2])

    def forget_observation(self) -> None:
        """See `TrialMachine.forget_observation`: it is not a new tick."""
        TrialMachine.forget_observation(self)
        self._observation = self.latest_observation

    def _shows_another(self) -> bool:
        # None: there is none any more, for the trial has ended with its environment's acknowledgement.
        return self.latest_observation is not None and self.latest_observation is not self._observation

    def _tick_began(self, now: float) -> None:
        self._observation = self.latest_observation
        self._began = now
        self._unanswered = True
        self._metrics.tick_began()

    def _tick_answered(self, now: float) -> None:
        self._unanswered = False
        if self.state != _RUNNING:
            return  # it was the last one, or nobody wants this tick's actions
        self._metrics.tick_answered(now - self._began)
        if self._last_set is not None:
            self._metrics.tick_lasted(now - self._last_set)
        self._last_set = now

    def _lost(self, index: int) -> None:
        # Who was left out before, or has acknowledged the end, is free to leave.
        left_out = index != ENVIRONMENT and self.actors[index].gone
        acknowledged = self.state == _TERMINATING and self.owing and index not in self.owing
        if not (self.is_over or left_out or acknowledged):
            self._metrics.participant_lost("environment" if index == ENVIRONMENT else "actor")


def gauges(trials: Iterable[Trial], lost_samples: int) -> OrchestratorGauges:
    """Return what an orchestrator's trials are like now."""
    states: Counter[str] = Counter(dict.fromkeys(_STATES, 0))
    queued_samples = queued_messages = data_logs_away = 0
    waiting = silent = 0.0
    for trial in trials:
        state = trial.machine.state
        states[TrialState.Name(state)] += 1
        queues = trial.queues
        queued_samples += queues.samples
        queued_messages += queues.messages
        data_logs_away += bool(trial.datalog_trouble)
        if state in _STARTING:
            waiting = max(waiting, trial.seconds)
        elif state == _RUNNING and not trial.waits_for_datalog:
            silent = max(silent, trial.time - trial.machine.last_activity)
    return OrchestratorGauges(
        dict(states),
        queued_samples,
        queued_messages,
        lost_samples,
        oldest_waiting_seconds=waiting,
        longest_silence_seconds=silent,
        data_logs_away=data_logs_away,
    )
