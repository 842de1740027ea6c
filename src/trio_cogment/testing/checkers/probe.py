"""Reads the state of an orchestrator: its queues, the tasks of its trials, the shields of all tasks."""

from __future__ import annotations

from operator import attrgetter

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.testing.checkers._overdue import SLACK_SECONDS, Overdue
from trio_cogment.testing.history import History, HistoryEvent
from trio_cogment.testing.sim.schedule import shields_in_use, tasks_below
from trio_cogment.trial import buffered_ticks


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
