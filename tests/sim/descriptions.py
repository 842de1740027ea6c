"""Descriptions of trials while they are played, compared with their accounts.

It is looked at whenever something of a trial is noted, in the very task that notes it: nothing of the run is changed.
"""

from __future__ import annotations

from typing import Any

import trio

from tests.account.account import Account, Stage
from tests.account.beside import AccountedMachine, DiffersError, same_detail
from tests.account.people import TAKING_PART, TO_COME
from trio_cogment.api.common_pb2 import EndOfTrial, TrialActor, TrialState
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.servers.orchestrator._trial import Trial
from trio_cogment.testing import History, HistoryEvent

#: Not every event of a participant: there are thousands in a run.
LOOKED_AT = ("state", "opened", "closed", "actions", "stored", "asked to end", "end")


class Descriptions:
    """Looks at an orchestrator's trials.

    Args:
        orchestrator: whose machines have accounts.
        history: of the run.
    """

    def __init__(self, orchestrator: Orchestrator, history: History) -> None:
        self._orchestrator = orchestrator
        self._began: dict[Trial, float] = {}
        self._wrong = ""
        history.listeners.append(self._on_event)

    def _on_event(self, event: HistoryEvent) -> None:
        if not event.trial_id or event.what not in LOOKED_AT or self._wrong:
            return
        trial = self._orchestrator.trials.get(event.trial_id)
        if trial is None or not isinstance(trial.machine, AccountedMachine) or trial.machine.beside.difference:
            return
        account = trial.machine.beside.account
        if event.what == "state" and account.stage is Stage.STARTING and event.who == "near":
            self._began[trial] = trio.current_time()  # it is told of within the moment
        for what, expected, seen in [*_info(trial, account), *_glance(trial, account)]:
            if not same_detail(expected, seen):
                told = f"trial {trial.trial_id}, at {event}: {what}\nexpected: {expected}\nseen:     {seen}"
                self._wrong = self._wrong or told
        began = self._began.get(trial)
        if began is not None and not trial.over and abs(trio.current_time() - began - trial.seconds) > 1e-6:
            self._wrong = self._wrong or f"trial {trial.trial_id} says that it has lasted for {trial.seconds} s"

    def check(self) -> None:
        """Raise DiffersError for the first thing that was not as it should be."""
        if self._wrong:
            raise DiffersError(self._wrong)


def _info(trial: Trial, account: Account) -> list[tuple[str, Any, Any]]:
    """Return what it tells a client that asks, as it should be and as it is."""
    info = trial.info(latest_observation=True, actors=True)
    actors = [TrialActor(name=actor.name, actor_class=actor.params.actor_class) for actor in account.actors]
    end = EndOfTrial()
    if account.outcome is not None:
        end.CopyFrom(account.outcome)
        for loss in end.losses:
            loss.traceback = ""
        end.samples_pending, end.samples_lost = info.end.samples_pending, info.end.samples_lost
    told = [
        ("its id", trial.machine.trial_id, info.trial_id),
        ("its state", account.state, info.state),
        ("its tick", account.tick, info.tick_id),
        ("its environment", account.environment.name, info.env_name),
        ("its actors", actors, list(info.actors_in_trial)),
        ("its properties", dict(account.params.properties), dict(info.properties)),
        ("its end", end, info.end),
        ("what it has lost", trial.samples_lost, info.samples_lost),
        ("whom it says that it waits for", list(_awaited(trial, account)), list(info.awaited)),
    ]
    shown = account.book.current.observations if account.book is not None else None
    if account.stage is not Stage.OVER:
        told.append(("its observation", shown is not None, info.HasField("latest_observation")))
        if shown is not None:
            contents = list(shown.observations), list(shown.actors_map)
            seen = info.latest_observation
            told.append(("its observation", contents, (list(seen.observations), list(seen.actors_map))))
    return told


def _awaited(trial: Trial, account: Account) -> tuple[str, ...]:
    if trial.waits_for_datalog:
        return ()
    if account.state == TrialState.PENDING:
        missing = [person.name for person in account.actors if person.where in TO_COME]
    elif account.state == TrialState.RUNNING:
        missing = [person.name for person in account.actors if person.number in account.waiting_for]
    else:
        return ()
    return tuple(missing) or (account.environment.name,)


def _glance(trial: Trial, account: Account) -> list[tuple[str, Any, Any]]:
    """Return what it shows those who look at it all the time, as it should be and as it is."""
    glance = trial.glance(participants=True)
    told: list[tuple[str, Any, Any]] = [
        ("its state at a glance", (account.state, account.tick), (glance.state, glance.tick)),
        ("its environment at a glance", account.environment.name, glance.environment),
        ("how many actors it has at a glance", len(account.actors), glance.actors),
        (
            "who waits at a glance",
            (trial.queues.messages, trial.queues.samples),
            (glance.queued_messages, glance.queued_samples),
        ),
        ("what it has lost at a glance", trial.samples_lost, glance.lost_samples),
    ]
    told.append(("whom it waits for", _awaited(trial, account), glance.awaited))
    if account.stage is not Stage.OVER:
        people = account.everybody
        told += [
            ("who takes part", [one.name for one in people], [one.name for one in glance.participants]),
            (
                "who is there",
                [one.where in TAKING_PART for one in people],
                [one.present for one in glance.participants],
            ),
            (
                "where they are",
                [one.params.endpoint for one in account.actors],
                [one.endpoint for one in glance.participants[1:]],
            ),
        ]
    return told
