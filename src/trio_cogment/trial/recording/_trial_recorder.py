"""Records the inputs and effects of the state machines of trials."""

from __future__ import annotations

from typing import Any

from trio_cogment.base.errors import LocalProtocolError
from trio_cogment.base.shared_message import SharedObservationSet
from trio_cogment.trial import Effect, Event, Received, TrialMachine, TrialRules, unbatched
from trio_cogment.trial.recording._trial_lines import as_text, header_of, line_of, state_of

#: More lines than the longest trial of a test has; a trial that never ends must not fill the memory.
MAX_LINES = 1_000_000


class TrialRecorder:
    """Records the trials that start after ``orchestrator.make_machine = recorder.machine``.

    The orchestrator runs as usual, but each trial's machine records its inputs and effects. A trial that is not
    recorded has the plain machine, at no cost.

    Attributes:
        trials: the recorded trials by id; for an id that was used again, the latest.
    """

    def __init__(self) -> None:
        self.trials: dict[str, RecordedTrial] = {}

    def machine(self, trial_id: str, *, rules: TrialRules) -> TrialMachine:
        """Make the machine of a trial."""
        made = RecordingMachine(trial_id, rules=rules)
        self.trials[trial_id] = made.recorded
        return made


class RecordedTrial:
    """One trial as its machine saw it: inputs with their times, effects, states.

    Attributes:
        dropped: how many lines were not kept; if there are any, the trial cannot be replayed.
    """

    def __init__(self, machine: TrialMachine) -> None:
        self._machine = machine
        self._lines: list[dict[str, Any]] = []
        self._state: dict[str, Any] = {}
        self.dropped = 0

    def add(self, line: dict[str, Any]) -> None:
        """Add a line."""
        if len(self._lines) < MAX_LINES:
            self._lines.append(line)
        else:
            self.dropped += 1

    def add_state(self) -> None:
        """Add the machine's state, if it has changed."""
        state = state_of(self._machine)
        if state != self._state:
            self._state = state
            self.add(state)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All of it, but for the first line."""
        return list(self._lines)

    def text(self) -> str:
        """Return it as a file has it: JSON objects, one a line; see `docs/simulation.md`."""
        return as_text([header_of(self._machine), *self._lines])


class RecordingMachine(TrialMachine):
    """A machine that records its inputs and effects."""

    __slots__ = ("recorded",)

    def __init__(self, trial_id: str, *, rules: TrialRules, collect_samples: bool = True) -> None:
        super().__init__(trial_id, rules=rules, collect_samples=collect_samples)
        self.recorded = RecordedTrial(self)

    def handle(self, event: Event, now: float, wall_ns: int) -> list[Effect]:
        """See `TrialMachine.handle`."""
        if type(event) is Received and type(event.message) is SharedObservationSet and event.message.told:
            # A file has messages, and there is none for these: they come as other rewards do.
            told, event.message.told = event.message.told, ()
            given = [Received(event.participant, reward) for reward in told]
            return [effect for one in (*given, event) for effect in self.handle(one, now, wall_ns)]
        recorded = self.recorded
        # Before the machine runs: it, and the code that performs an effect, may change the messages.
        recorded.add({"at": now, "wall_ns": wall_ns, **line_of(event)})
        try:
            effects = super().handle(event, now, wall_ns)
        except LocalProtocolError as error:
            recorded.add({"out": "refused", "error": str(error)})
            raise
        for effect in unbatched(effects):
            recorded.add(line_of(effect))
        recorded.add_state()
        return effects
