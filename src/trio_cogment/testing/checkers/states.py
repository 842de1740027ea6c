"""Checkers over the states of trials, as watchers of an orchestrator see them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import RpcError
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.sdk import Controller
from trio_cogment.testing.checkers._grouping import events_by
from trio_cogment.testing.history import History, HistoryEvent

#: Which states may follow which; nothing in between is left out, whatever happens to a trial.
_NEXT_STATES: dict[int, set[int]] = {
    TrialState.INITIALIZING: {TrialState.PENDING, TrialState.ENDED},
    TrialState.PENDING: {TrialState.RUNNING, TrialState.ENDED},
    TrialState.RUNNING: {TrialState.TERMINATING},
    TrialState.TERMINATING: {TrialState.ENDED},
}

_ALL_STATES = {*_NEXT_STATES, TrialState.ENDED}


async def record_states(
    controller: Controller,
    history: History,
    who: str = "watcher",
    *,
    states: Collection[int] = (),
    full_info: bool = False,
) -> None:
    """Watch the trials and note each state; return when the watch ends, for whatever reason of the peer's.

    Args:
        controller: of the orchestrator.
        history: where they are noted.
        who: watches.
        states: those that are watched; all of them if there are none.
        full_info: note the outcome of each trial that ends, too.
    """
    history.record(who, "watching", states=list(states))
    reason = "ended"
    try:
        async with controller.watch_trials(states, full_info=full_info) as watch:
            async for entry in watch:
                told = entry.info if full_info else entry
                history.record(who, "state", told.trial_id, state=told.state)
                if full_info and told.HasField("end"):
                    _record_outcome(history, who, TrialOutcome.of(told.trial_id, told.end))
    except RpcError as error:
        reason = error.code.name
    finally:
        history.record(who, "watched", reason=reason)


def _record_outcome(history: History, who: str, outcome: TrialOutcome) -> None:
    history.record(
        who,
        "outcome",
        outcome.trial_id,
        cause=outcome.cause.label,
        participant=outcome.participant,
        ticks=outcome.ticks,
        losses=[[loss.participant, loss.cause.label] for loss in outcome.losses],
    )


def _lives(history: History) -> Iterator[tuple[str, int, str, list[int]]]:
    """Yield trial, which of several of that id, watcher, and the states it saw: the id of a failed start is free.

    Who watches some states only cannot tell several trials of one id apart.
    """
    choosy = {event.who for event in history if event.what == "watching" and event.details.get("states")}
    for (trial_id, who), events in events_by(history, "state").items():
        if who in choosy:
            continue
        lives: list[list[int]] = [[]]
        for state in (event.details["state"] for event in events):
            if state == TrialState.INITIALIZING and lives[-1][-1:] == [TrialState.ENDED]:
                lives.append([])
            lives[-1].append(state)
        for number, states in enumerate(lives):
            yield trial_id, number, who, states


def states_go_forward(history: History) -> Iterator[str]:
    """A trial's state only moves forward, and each is announced once."""
    for trial_id, _, who, states in _lives(history):
        if any(later <= earlier for earlier, later in pairwise(states)):
            yield f"{trial_id}: {who} saw {states}"


def watchers_see_all(history: History) -> Iterator[str]:
    """A watcher misses no state between the first and the last it sees, and all watchers see the same states."""
    for trial_id, _, who, states in _lives(history):
        for earlier, later in pairwise(states):
            if later > earlier and later not in _NEXT_STATES.get(earlier, set()):
                names = TrialState.Name(earlier), TrialState.Name(later)
                yield f"{trial_id}: {who} saw {names[1]} follow {names[0]}"
    seen: dict[tuple[str, int], dict[str, list[int]]] = defaultdict(dict)
    for trial_id, number, who, states in _lives(history):
        seen[trial_id, number][who] = states
    for (trial_id, _), watchers in seen.items():
        every = sorted({state for states in watchers.values() for state in states})
        for who, states in watchers.items():
            between = [state for state in every if states[0] <= state <= states[-1]]
            if states != between:
                yield f"{trial_id}: {who} saw {states}, all together {every}"


def watchers_see_one_sequence(history: History) -> Iterator[str]:
    """All watchers see the same changes in the same order, without a gap, except those they have not asked for.

    They may begin with what there was before, and end early.
    """
    asked = {event.who: set(event.details.get("states", ())) for event in history if event.what == "watching"}
    seen: dict[str, list[tuple[str, int]]] = {who: [] for who in asked}
    for event in history:
        if event.what == "state":
            seen.setdefault(event.who, []).append((event.trial_id, event.details["state"]))
    everything = max((entries for who, entries in seen.items() if not asked.get(who)), key=len, default=[])
    for who, entries in seen.items():
        states = asked.get(who) or set(_ALL_STATES)
        wanted = [entry for entry in everything if entry[1] in states]
        # What there was is at most one entry of each trial.
        trials = [trial_id for trial_id, _ in entries]
        before = next((n for n, trial_id in enumerate(trials) if trial_id in trials[:n]), len(trials))
        if not any(_is_part(entries[skipped:], wanted) for skipped in range(before + 1)):
            yield f"{entries[0][0]}: {who} saw {entries} of {wanted}"


def _is_part(entries: Sequence[tuple[str, int]], everything: Sequence[tuple[str, int]]) -> bool:
    """Tell whether entries follow each other in the same way somewhere in all of them."""
    width = len(entries)
    return any(everything[at : at + width] == entries for at in range(len(everything) - width + 1))


def every_trial_ends(history: History) -> Iterator[str]:
    """Each trial that a watcher saw has ENDED."""
    ended: dict[tuple[str, int], bool] = defaultdict(bool)
    for trial_id, number, _, states in _lives(history):
        ended[trial_id, number] |= TrialState.ENDED in states
    for (trial_id, _), over in ended.items():
        if not over:
            yield f"{trial_id}: nobody saw it end"


def terminated_trials_have_ended(history: History) -> Iterator[str]:
    """Once a hard termination is answered, its trial has ended; scenarios note "terminated" then."""
    seen = events_by(history, "state")
    for event in history:
        if event.what != "terminated":
            continue
        its = [events for (trial_id, _), events in seen.items() if trial_id == event.trial_id]
        if not any(_has_ended_by(event.seconds, events) for events in its):
            yield f"{event.trial_id}: was terminated at {event.seconds:.3f} s, and goes on"


def _has_ended_by(seconds: float, states: Sequence[HistoryEvent]) -> bool:
    """Tell whether the newest state until then is the last one: the id of a start that failed has more lives."""
    before = [event for event in states if event.seconds <= seconds]
    return any(
        event.details["state"] == TrialState.ENDED and (event is before[-1] or event.seconds == seconds)
        for event in before
    )


def ids_are_given_once(history: History) -> Iterator[str]:
    """Of several starts with the same trial id, one gets it; scenarios note "started" for each reply with an id."""
    counts = Counter(event.trial_id for event in history if event.what == "started")
    for trial_id, count in counts.items():
        if count > 1:
            yield f"{trial_id}: was started {count} times"


def failed_starts_leave_nothing(history: History) -> Iterator[str]:
    """A trial that was never PENDING is not known in the end; scenarios note "known" with the trials that are."""
    newest: dict[str, tuple[int, set[int]]] = {}
    for trial_id, number, _, states in _lives(history):
        known, seen = newest.get(trial_id, (0, set()))
        if number >= known:
            newest[trial_id] = number, {*states, *(seen if number == known else ())}
    failed = {TrialState.INITIALIZING, TrialState.ENDED}
    for event in history:
        for trial_id in event.details["trial_ids"] if event.what == "known" else ():
            if trial_id in newest and newest[trial_id][1] <= failed:
                yield f"{trial_id}: it could not start, and {event.who} still knows it"


STATE_CHECKERS = (
    states_go_forward,
    watchers_see_all,
    watchers_see_one_sequence,
    every_trial_ends,
    terminated_trials_have_ended,
    ids_are_given_once,
    failed_starts_leave_nothing,
)
