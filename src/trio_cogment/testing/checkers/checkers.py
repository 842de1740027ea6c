"""What must hold in every run, whatever went wrong in it: named checkers over the recorded history.

They read what the fakes (`FakeActor`, `FakeEnvironment`, `FakeHook`, `FakeDatalog`), `record_states`, `RecordedCalls`
and `Probe` note, in a simulated run or over real sockets. A checker yields a sentence for each violation it finds.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.errors import RpcError
from trio_cogment.sdk import Controller
from trio_cogment.testing.checkers._content_checkers import CONTENT_CHECKERS
from trio_cogment.testing.checkers._inner_checkers import INNER_CHECKERS
from trio_cogment.testing.checkers._sessions import events_by, sessions
from trio_cogment.testing.checkers.param_checkers import PARAM_CHECKERS
from trio_cogment.testing.history import History, HistoryEvent, MissingDetailError

Checker: TypeAlias = Callable[[History], Iterator[str]]

#: Which states may follow which; nothing in between is left out, whatever happens to a trial.
_NEXT_STATES: dict[int, set[int]] = {
    TrialState.INITIALIZING: {TrialState.PENDING, TrialState.ENDED},
    TrialState.PENDING: {TrialState.RUNNING, TrialState.ENDED},
    TrialState.RUNNING: {TrialState.TERMINATING},
    TrialState.TERMINATING: {TrialState.ENDED},
}

_ALL_STATES = {*_NEXT_STATES, TrialState.ENDED}

#: What a participant may note after its END: only that its session is over. (It may be thinking when END comes.)
_RECEIVED = {"observation", "actions", "reward", "message", "last", "end"}


#: A participant has at least so long to acknowledge, with the default settings, whatever the network's delays.
LEAST_ACK_SECONDS = 25.0


class InvariantError(AssertionError):
    """A run broke what must always hold; the text names the checkers and what they found."""


def check_history(history: History, checkers: Iterable[str] | None = None) -> None:
    """Apply checkers, all of them unless some are named.

    Raises:
        InvariantError: what they found.
        ValueError: there is no such checker, or one reads of an event what it does not say.
    """
    names = list(CHECKERS) if checkers is None else list(checkers)
    unknown = [name for name in names if name not in CHECKERS]
    if unknown:
        raise ValueError(f"checkers: expected some of {', '.join(CHECKERS)}, got {', '.join(map(repr, unknown))}")
    found: list[str] = []
    for name in names:
        try:
            found.extend(f"{name}: {text}" for text in CHECKERS[name](history))
        except MissingDetailError as error:
            raise ValueError(f"{name}: {error}") from error
    if history.dropped:
        found.append(f"history: {history.dropped} events had no room, so nothing is certain")
    if found:
        more = f"\n... and {len(found) - 20} more" if len(found) > 20 else ""
        raise InvariantError("\n".join(found[:20]) + more)


async def record_states(
    controller: Controller, history: History, who: str = "watcher", *, states: Collection[int] = ()
) -> None:
    """Watch the trials and note each state; return when the watch ends, for whatever reason of the peer's.

    Args:
        controller: of the orchestrator.
        history: where they are noted.
        who: watches.
        states: those that are watched; all of them if there are none.
    """
    history.record(who, "watching", states=list(states))
    reason = "ended"
    try:
        async with controller.watch_trials(states) as watch:
            async for entry in watch:
                history.record(who, "state", entry.trial_id, state=entry.state)
    except RpcError as error:
        reason = error.code.name
    finally:
        history.record(who, "watched", reason=reason)


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
    """Who watches misses no state between the first and the last it sees, and all see the same."""
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
    """All who watch see the same changes in the same order, without a gap, but for those that they have not asked for.

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
    """A hard termination that was answered has ended its trial; scenarios note "terminated" then."""
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


def nothing_after_end(history: History) -> Iterator[str]:
    """A session gets END once, and nothing after it."""
    for session in sessions(history):
        ends = [number for number, event in enumerate(session) if event.what == "end"]
        if ends:
            late = [event.what for event in session[ends[0] + 1 :] if event.what in _RECEIVED]
            if late:
                yield f"{session[0].trial_id}: {session[0].who} got {late} after END"


def ends_are_told(history: History) -> Iterator[str]:
    """Where a participant's stream ends in good order, END came before that."""
    for session in sessions(history):
        whats = {event.what for event in session}
        told = "end" in whats or not session[0].who.startswith(("actor", "environment"))
        if not told and any(event.what == "closed" and event.details["outcome"] == "left" for event in session):
            yield f"{session[0].trial_id}: {session[0].who} was left without END"


def sessions_close_once(history: History) -> Iterator[str]:
    """Each session that began is over, once."""
    counts = Counter((event.trial_id, event.who, event.what) for event in history if event.what in ("opened", "closed"))
    for (trial_id, who, what), count in counts.items():
        if what == "opened" and counts[trial_id, who, "closed"] != count:
            yield f"{trial_id}: {who} began {count} sessions, and {counts[trial_id, who, 'closed']} ended"


def ticks_grow_by_one(history: History) -> Iterator[str]:
    """Observations and action sets come for one tick after the other."""
    for session in sessions(history):
        for what in ("observation", "actions"):
            ticks = [event.details["tick"] for event in session if event.what == what]
            if any(later != earlier + 1 for earlier, later in pairwise(ticks)):
                yield f"{session[0].trial_id}: {session[0].who} got {what} of ticks {ticks}"


def environments_may_end(history: History) -> Iterator[str]:
    """After an environment has said that its next observations are the last, it is given no more actions."""
    for session in sessions(history):
        whats = [event.what for event in session]
        if "ends by itself" in whats and "actions" in whats[whats.index("ends by itself") :]:
            yield f"{session[0].trial_id}: {session[0].who} was given actions after its LAST"


def samples_come_once(history: History) -> Iterator[str]:
    """Each stream of a data log gets a tick at most once, in order; all its streams together get every one of them.

    A stream that follows a broken one begins with what the broken one may not have taken, so ticks come again there.
    Of what could not be kept for it, a data log that was away for too long is told the number. What was under way when
    the stream broke of one that had not answered yet is lost.
    """
    last_seen: dict[str, int] = {}
    for event in history:
        if event.what == "observation":
            last_seen[event.trial_id] = max(last_seen.get(event.trial_id, -1), event.details["tick"])
    complete = {event.trial_id for event in history if event.what == "complete"}
    for (trial_id, who), events in events_by(history, "opened", "sample").items():
        streams: list[list[int]] = [[]]
        lost = {event.details["tick"]: event.details.get("lost", 0) for event in events if event.what == "sample"}
        for event in events:
            if event.what == "opened":
                streams.append([])
            else:
                streams[-1].append(event.details["tick"])
        if any(ticks != sorted(set(ticks)) for ticks in streams):
            yield f"{trial_id}: {who} got samples of ticks {streams}"
            continue
        seen = sorted({tick for ticks in streams for tick in ticks})
        missing = max([*seen, last_seen.get(trial_id, -1)]) + 1 - len(seen)
        if seen and trial_id in complete and missing > sum(lost.values()) and not _broke_unanswered(history, trial_id):
            yield f"{trial_id}: {who} got only {seen} of the ticks up to {last_seen.get(trial_id, -1)}"


def _broke_unanswered(history: History, trial_id: str) -> bool:
    """Tell whether a stream to a trial's data log broke before any answer had come back from it.

    The log may not even have seen the stream. Nor is an answer of its known to have arrived until some samples follow.
    """
    calls, samples, answers = 0, 0, False
    for event in history:
        if event.what == "call" and (event.details["method"], event.details["trial"]) == ("RunTrialDatalog", trial_id):
            calls += 1
            if calls > 1:
                return True
        elif event.trial_id == trial_id and event.who.startswith("datalog"):
            samples += answers and event.what == "sample"
            answers = answers or event.what == "answers"
            if samples > 1:
                return False
            if event.what == "closed":
                return bool(event.details["outcome"] != "left")
    return False


def soft_end_waits_for_everybody(history: History) -> Iterator[str]:
    """END without details comes when everybody who still takes part has acknowledged, or was given time to."""
    by_trial: dict[str, list[list[HistoryEvent]]] = defaultdict(list)
    for session in sessions(history):
        by_trial[session[0].trial_id].append(session)
    for trial_id, its_sessions in by_trial.items():
        ends = (event.seconds for session in its_sessions for event in session if _is_soft_end(event))
        first_end = min(ends, default=0)
        asked = _asked_to_end(event for session in its_sessions for event in session)
        for session in its_sessions:
            final = [event.seconds for event in session if event.what in ("observation", "showed")]
            # One that gets such an END took part to the end. Its final data may have been delayed beyond the END of
            # others, by a network that was cut.
            if not final or final[-1] >= first_end or not any(_is_soft_end(event) for event in session):
                continue
            acknowledged = [event.seconds for event in session if event.what == "acknowledged"]
            if not (acknowledged and acknowledged[0] <= first_end) and first_end - asked < LEAST_ACK_SECONDS:
                yield f"{trial_id}: END came at {first_end:.3f} s, before {session[0].who} had acknowledged"


def _asked_to_end(events: Iterable[HistoryEvent]) -> float:
    """Return when the last of a trial's ticks was first shown: who reads slowly sees later that it was the last."""
    shown: dict[int, float] = {}
    for event in events:
        if event.what in ("observation", "showed"):
            tick = event.details["tick"]
            shown[tick] = min(event.seconds, shown.get(tick, math.inf))
    return shown[max(shown)] if shown else math.inf


def _is_soft_end(event: HistoryEvent) -> bool:
    return event.what == "end" and not event.details["details"]


def ids_are_given_once(history: History) -> Iterator[str]:
    """Of those who ask for the same trial id, one gets it; scenarios note "started" for each reply with an id."""
    counts = Counter(event.trial_id for event in history if event.what == "started")
    for trial_id, count in counts.items():
        if count > 1:
            yield f"{trial_id}: was started {count} times"


def failed_starts_leave_nothing(history: History) -> Iterator[str]:
    """A trial that was never PENDING is not there any more; scenarios note "known" with those that are, in the end."""
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


#: Every checker by its name.
CHECKERS: dict[str, Checker] = {
    checker.__name__.replace("_", "-"): checker
    for checker in (
        states_go_forward,
        watchers_see_all,
        watchers_see_one_sequence,
        every_trial_ends,
        terminated_trials_have_ended,
        nothing_after_end,
        ends_are_told,
        sessions_close_once,
        ticks_grow_by_one,
        environments_may_end,
        samples_come_once,
        soft_end_waits_for_everybody,
        ids_are_given_once,
        failed_starts_leave_nothing,
        *CONTENT_CHECKERS,
        *PARAM_CHECKERS,
        *INNER_CHECKERS,
    )
}
