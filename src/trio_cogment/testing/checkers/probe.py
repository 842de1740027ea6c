"""Reads the state of an orchestrator: its queues, the tasks of its trials, the shields of all tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.testing.history import History, HistoryEvent
from trio_cogment.testing.sim.schedule import shields_in_use, tasks_below
from trio_cogment.trial import TrialMachine, buffered_ticks

# Overdue waits: a trial waits longer than its parameters and its orchestrator's settings allow.

#: Added to what the settings allow: periodic looks see late that a wait is over.
SLACK_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Wait:
    """What a trial waits for, and since when, on the trial's own clock (which stands still while its data log is full).

    Attributes:
        what: in words, the same as long as it is the same wait.
        patience: how many seconds it may take.
        since: when it began, if the machine knows it.
    """

    what: str
    patience: float
    since: float | None = None


class Overdue:
    """Watches the waits of an orchestrator's trials; call `look` from time to time."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._since: dict[tuple[str, Wait], float] = {}
        self._told: set[tuple[str, Wait]] = set()

    def look(self) -> Iterator[tuple[str, Wait, float]]:
        """Yield trial, wait and its seconds so far for each that has become too long; each once."""
        since, self._since = self._since, {}
        for trial in self._orchestrator.trials:
            if trial.over:
                continue
            for wait in waits_of(trial.machine):
                key = trial.trial_id, wait
                began = since.get(key, trial.time) if wait.since is None else wait.since
                self._since[key] = began
                if trial.time - began > wait.patience + SLACK_SECONDS and key not in self._told:
                    self._told.add(key)
                    yield trial.trial_id, wait, trial.time - began


def waits_of(trial: TrialMachine) -> Iterator[Wait]:
    """Yield what a trial waits for now; waits without a limit are left out."""
    rules, params = trial.rules, trial.params
    if params is None or trial.is_over:
        return
    if trial.owing:
        limits = rules.actor_ack_timeout_seconds, rules.environment_ack_timeout_seconds
        if all(limits):
            yield Wait("LAST_ACKs", max(limits))
    elif trial.state in (TrialState.RUNNING, TrialState.TERMINATING):
        ending = trial.end_marked or trial.final_marked or trial.state == TrialState.TERMINATING
        if ending and rules.soft_end_patience_seconds:
            yield Wait("the final observation", rules.soft_end_patience_seconds)
        timeouts = [trial.actors[index].response_timeout for index in trial.awaited]
        if timeouts and all(timeouts) and not trial.answered:
            yield Wait(f"the actions of tick {trial.tick_id}", max(timeouts))
    for participant in trial.participants.values() if rules.heartbeat_seconds else ():
        if participant.present and not trial.is_expected_to_write(participant):
            # Without `since`: until a moment ago it may have been expected to write, and then it is sent none. The time
            # in the text makes each silence a wait of its own.
            last = max(participant.heard_at, participant.heartbeat_sent_at)
            yield Wait(f"a HEARTBEAT to {participant.name}, silent since {last:g} s", 2 * rules.heartbeat_seconds)
    if params.max_inactivity:
        yield Wait("anything to happen", params.max_inactivity, since=trial.last_activity)


class Probe:
    """Reads the state of an orchestrator of this process, and records what the checkers judge.

    Whenever an event of a trial is recorded, its queues are read; `run` reads everything periodically. Recorded are
    "queues" when one is longer than ever before, "tasks" while an ended trial has some and once when it has none,
    "shield" for a shield that holds a cancellation off longer than an instant, and "overdue" when a trial has waited
    for something longer than its parameters and the settings allow. That a trial has ended is taken from the states
    that `record_states` records, those of the first watcher if there are several.

    Args:
        orchestrator: the one to read.
        history: where events are recorded, and whose events tell that something has happened.
    """

    def __init__(self, orchestrator: Orchestrator, history: History) -> None:
        self._orchestrator = orchestrator
        self._history = history
        self._most: dict[str, tuple[int, int]] = {}
        self._ended: dict[str, float] = {}
        self._watcher = ""
        self._overdue = Overdue(orchestrator)
        self._shields: dict[trio.CancelScope, float] = {}
        history.listeners.append(self._on_event)

    async def run(self, every_seconds: float = 1.0) -> None:
        """Look at everything periodically, until cancelled."""
        while True:
            self.look()
            await trio.sleep(every_seconds)

    def look(self) -> None:
        """Look at everything now."""
        root = trio.lowlevel.current_root_task()
        assert root is not None
        tasks = sorted(tasks_below(root), key=attrgetter("name"))  # a nursery has them in a set
        self._look_at_tasks()
        self._look_at_shields(tasks)
        for trial_id, wait, seconds in self._overdue.look():
            details = {"waits_for": wait.what, "seconds": round(seconds, 6), "patience": wait.patience}
            self._history.record("probe", "overdue", trial_id, **details)
        watchers = self._orchestrator.watchers
        self._note_queues("", watchers.queued_entries, watchers.max_queued_entries, 0, 0)

    def _on_event(self, event: HistoryEvent) -> None:
        if event.what == "state" and event.who == (self._watcher or event.who):
            self._watcher = event.who
            if event.details["state"] == TrialState.ENDED:
                self._ended.setdefault(event.trial_id, event.seconds)
            else:
                self._ended.pop(event.trial_id, None)  # an id that was free again
        if event.trial_id and event.who != "probe":
            self._look_at_queues(event.trial_id)

    def _look_at_queues(self, trial_id: str) -> None:
        trial = self._orchestrator.trials.get(trial_id)
        if trial is not None and not trial.over:
            # What a log that confirms has not confirmed is kept beside the queue, and comes back into it.
            room = 2 * self._orchestrator.config.max_queued_samples
            queues = trial.queues
            self._note_queues(trial_id, queues.longest, queues.max_messages, queues.samples, room)

    def _note_queues(self, trial_id: str, messages: int, room: int, samples: int, sample_room: int) -> None:
        most = self._most.get(trial_id, (0, 0))
        if messages > most[0] or samples > most[1]:
            self._most[trial_id] = max(messages, most[0]), max(samples, most[1])
            details = {"messages": messages, "most_messages": room, "samples": samples, "most_samples": sample_room}
            self._history.record("probe", "queues", trial_id, **details)

    def _look_at_tasks(self) -> None:
        ended = {run.trial.trial_id: run for run in self._orchestrator.runs if run.trial.over}
        config = self._orchestrator.config
        for trial_id, ended_at in list(self._ended.items()):
            run = ended.get(trial_id)
            names = [] if run is None else run.task_names
            patience = config.farewell_seconds
            if run is not None and run.writes_samples:
                # Each step of that has a limit of its own. What was held back for late rewards comes last.
                params = run.trial.machine.params
                held_back = 0 if params is None else buffered_ticks(params)
                step = max(config.datalog_flush_seconds, config.datalog_full_seconds)
                patience += step * (2 + 2 * config.max_queued_samples + held_back)
            seconds = round(trio.current_time() - ended_at, 6)
            details = {"names": names, "seconds": seconds, "patience": patience + SLACK_SECONDS}
            self._history.record("probe", "tasks", trial_id, **details)
            if not names:
                del self._ended[trial_id]

    def _look_at_shields(self, tasks: list[trio.lowlevel.Task]) -> None:
        now = trio.current_time()
        in_use = shields_in_use(tasks)
        for name, scope in in_use:
            # In the very instant of a cancellation, who gives the shield its deadline may not have had a turn.
            if self._shields.setdefault(scope, now) < now:
                self._history.record("probe", "shield", task=name, deadline=scope.deadline)
        scopes = {scope for _, scope in in_use}
        self._shields = {scope: since for scope, since in self._shields.items() if scope in scopes}
