"""The trace of a trial: a span for the trial, for each participant, and for the ticks that are sampled.

A tick's span is made when it is sent, and the actions of its actors are events of it: a span for each would cost
more than the tick. A tick that is no span costs its trial a comparison where it begins and one where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from trio_cogment.base.errors import CogmentError
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.base.tracing import spans
from trio_cogment.trial import ENVIRONMENT, Event, Received, TrialMachine

if TYPE_CHECKING:
    from trio_cogment.base.tracing.spans import Description, Span, Tracing


class TrialTrace:
    """The spans of one trial; its parent is the span in which the trial is started.

    Args:
        tracing: makes the spans.
        machine: of the trial.
        user_id: who starts it.
        wall_clock: nanoseconds since the epoch.
    """

    def __init__(self, tracing: Tracing, machine: TrialMachine, user_id: str, wall_clock: Callable[[], int]) -> None:
        self._tracing = tracing
        self._machine = machine
        self._wall_clock = wall_clock
        attributes = {spans.TRIAL_ID: machine.trial_id, spans.USER_ID: user_id}
        self._span = tracing.start("trial", attributes, start_ns=wall_clock())
        self._participants: dict[int, Span] = {}
        #: Of the actors; empty until a tick was a span.
        self._names: tuple[str, ...] = ()
        self._interval = tracing.tick_interval if self._span.is_recording() else 0
        #: When the tick began that is to be a span; 0: none is under way.
        self._began_ns = 0
        self._tick_id = 0
        self._awaited: set[int] = set()
        self._actions: list[tuple[int, int]] = []
        if self._span.is_recording():
            tracing.trials[machine.trial_id] = self._span

    @property
    def first_tick(self) -> int | None:
        """The first tick that is a span; None: none is."""
        return self._span.get_span_context().trace_id % self._interval if self._interval else None

    def current(self) -> AbstractContextManager[None]:
        """Have the trial's span be the current one for a block, and for tasks that are started there."""
        return spans.current(self._span)

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[Span]:
        """Have a part of the trial be a span for the time of a block."""
        return self._tracing.span(name, attributes, parent=self._span)

    def end(self, outcome: TrialOutcome | None) -> None:
        """Say how the trial has ended, and that everybody's part has."""
        self._tracing.trials.pop(self._machine.trial_id, None)
        if not self._span.is_recording():
            return  # nor was it before, or it has ended
        if self._began_ns:
            self._end_tick(self._wall_clock())
        for index in list(self._participants):
            self.left(index)
        if outcome is not None:
            self._span.set_attributes({spans.END_CAUSE: outcome.cause.label, spans.TICKS: outcome.ticks})
            if outcome.failed:
                spans.failed(self._span, outcome.cause.label)
        self._span.end(self._wall_clock())

    # Participants

    def takes_part(self, index: int, *, joins: bool = False) -> None:
        """Begin the span of a participant.

        Args:
            index: of the participant.
            joins: a client actor, whose call is the current span, of a trace of its own.
        """
        params = self._machine.params
        assert params is not None
        attributes = {spans.TRIAL_ID: self._machine.trial_id}
        if index == ENVIRONMENT:
            name = f"environment {params.environment.name}"
            attributes[spans.IMPLEMENTATION] = params.environment.implementation
        else:
            actor = params.actors[index]
            name = f"actor {actor.name}"
            attributes[spans.IMPLEMENTATION] = actor.implementation
            attributes |= {spans.ACTOR_NAME: actor.name, spans.ACTOR_CLASS: actor.actor_class}
        links = [spans.current_span()] if joins else []
        self._participants[index] = self._tracing.start(name, attributes, parent=self._span, links=links)

    def within(self, index: int) -> AbstractContextManager[None]:
        """Have a participant's span be the current one for a block, and for tasks that are started there."""
        return spans.current(self._participants.get(index, self._span))

    def left(self, index: int, error: CogmentError | str = "") -> None:
        """End the span of a participant, if it has not ended; the error says why it had to leave."""
        span = self._participants.pop(index, None)
        if span is not None:
            if error:
                spans.failed(span, error)
            span.end()

    # Ticks

    def begin_tick(self) -> bool:
        """Begin the span of the tick that is under way; False: none is, it waits for nobody's action."""
        machine = self._machine
        if machine.answered:
            return False
        self._began_ns = machine.wall_ns
        self._tick_id = machine.tick_id
        self._awaited = set(machine.awaited)
        return True

    def handled(self, event: Event) -> int | None:
        """Learn of an event that the machine has handled while the tick was under way.

        Returns:
            The next tick that is a span, if the event has ended this one.
        """
        machine = self._machine
        if machine.tick_id == self._tick_id:
            if type(event) is Received and event.participant in self._awaited - machine.awaited:
                self._awaited.discard(event.participant)
                self._actions.append((event.participant, machine.wall_ns))
            if not machine.answered:
                return None
        self._end_tick(machine.wall_ns)
        return self._tick_id + self._interval

    def _end_tick(self, now_ns: int) -> None:
        if not self._names:
            self._names = tuple(actor.name for actor in self._machine.actors)
        describe = partial(_described, self._machine.trial_id, self._tick_id, self._names, self._awaited, self._actions)
        self._tracing.make_ended("tick", describe, parent=self._span, start_ns=self._began_ns, end_ns=now_ns)
        self._began_ns = 0
        self._awaited, self._actions = set(), []


def _described(
    trial_id: str, tick_id: int, names: Sequence[str], missing: Collection[int], actions: Sequence[tuple[int, int]]
) -> Description:
    """Return what the span of a tick tells; in a thread of its own, so of what changes no more."""
    attributes: dict[str, Any] = {spans.TICK_ID: tick_id, spans.TRIAL_ID: trial_id}
    if missing:
        attributes[spans.MISSING] = sorted(names[index] for index in missing)
    return attributes, [("action", {spans.ACTOR_NAME: names[index]}, at_ns) for index, at_ns in actions]
