"""Overdue waits: a trial waits longer than its parameters and its orchestrator's settings allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.trial import TrialMachine

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
