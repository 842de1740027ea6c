"""Checkers over the sessions of participants: what comes in which order, and how a session ends."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from trio_cogment.testing.checkers._grouping import sessions
from trio_cogment.testing.history import History, HistoryEvent

#: What a participant may note after its END: only that its session is over. (It may be thinking when END comes.)
_RECEIVED = {"observation", "actions", "reward", "message", "last", "end"}

#: A participant has at least so long to acknowledge, with the default settings, whatever the network's delays.
LEAST_ACK_SECONDS = 25.0


def nothing_after_end(history: History) -> Iterator[str]:
    """A session gets END once, and nothing after it."""
    for session in sessions(history):
        ends = [number for number, event in enumerate(session) if event.what == "end"]
        if ends:
            late = [event.what for event in session[ends[0] + 1 :] if event.what in _RECEIVED]
            if late:
                yield f"{session[0].trial_id}: {session[0].who} got {late} after END"


def ends_are_told(history: History) -> Iterator[str]:
    """A participant's stream that ends without an error has got END."""
    for session in sessions(history):
        whats = {event.what for event in session}
        told = "end" in whats or not session[0].who.startswith(("actor", "environment"))
        if not told and any(event.what == "closed" and event.details["outcome"] == "left" for event in session):
            yield f"{session[0].trial_id}: {session[0].who} was left without END"


def sessions_close_once(history: History) -> Iterator[str]:
    """Each session that began ends once."""
    counts = Counter((event.trial_id, event.who, event.what) for event in history if event.what in ("opened", "closed"))
    for (trial_id, who, what), count in counts.items():
        if what == "opened" and counts[trial_id, who, "closed"] != count:
            yield f"{trial_id}: {who} began {count} sessions, and {counts[trial_id, who, 'closed']} ended"


def ticks_grow_by_one(history: History) -> Iterator[str]:
    """Observations and action sets come for consecutive ticks."""
    for session in sessions(history):
        for what in ("observation", "actions"):
            ticks = [event.details["tick"] for event in session if event.what == what]
            if any(later != earlier + 1 for earlier, later in pairwise(ticks)):
                yield f"{session[0].trial_id}: {session[0].who} got {what} of ticks {ticks}"


def environments_may_end(history: History) -> Iterator[str]:
    """After an environment has announced its last observations, it gets no more actions."""
    for session in sessions(history):
        whats = [event.what for event in session]
        if "ends by itself" in whats and "actions" in whats[whats.index("ends by itself") :]:
            yield f"{session[0].trial_id}: {session[0].who} was given actions after its LAST"


def soft_end_waits_for_everybody(history: History) -> Iterator[str]:
    """END without details comes when every remaining participant has acknowledged, or its time to do so is over."""
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
    """Return when the last of a trial's ticks was first shown; a slow reader sees later that it was the last."""
    shown: dict[int, float] = {}
    for event in events:
        if event.what in ("observation", "showed"):
            tick = event.details["tick"]
            shown[tick] = min(event.seconds, shown.get(tick, math.inf))
    return shown[max(shown)] if shown else math.inf


def _is_soft_end(event: HistoryEvent) -> bool:
    return event.what == "end" and not event.details["details"]


SESSION_CHECKERS = (
    nothing_after_end,
    ends_are_told,
    sessions_close_once,
    ticks_grow_by_one,
    environments_may_end,
    soft_end_waits_for_everybody,
)
