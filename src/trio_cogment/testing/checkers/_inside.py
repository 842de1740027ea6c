"""Checkers over the inside of a process, as noted by `Probe` and `RecordedCalls`: queues, tasks, shields, calls."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from trio_cogment.testing.history import History


def queues_stay_within_limits(history: History) -> Iterator[str]:
    """The queues of a participant, of a data log and of all watchers together stay within their limits."""
    for event in history:
        if event.what == "queues":
            for name in ("messages", "samples"):
                if event.details[name] > event.details[f"most_{name}"]:
                    yield f"{event.trial_id or 'watchers'}: {event.details[name]} {name}: {event}"


def tasks_end_with_their_trial(history: History) -> Iterator[str]:
    """A trial that has ended has no tasks after the time for its farewells and its data log."""
    for event in history:
        if event.what == "tasks" and event.details["names"] and event.details["seconds"] > event.details["patience"]:
            yield f"{event.trial_id}: {event.details['seconds']:g} s after its end there are {event.details['names']}"


def shields_have_deadlines(history: History) -> Iterator[str]:
    """A shield that delays a cancellation has a deadline."""
    for event in history:
        if event.what == "shield" and event.details["deadline"] == math.inf:
            yield f"{event.details['task']}: was shielded at {event.seconds:.3f} s, without a deadline"


def hosts_leave_in_time(history: History) -> Iterator[str]:
    """A cancelled block ends within its limit; scenarios note "cancelled" (and `within`), and "gone"."""
    since: dict[str, tuple[float, float]] = {}
    for event in history:
        if event.what == "cancelled":
            since[event.who] = event.seconds, event.details["within"]
        elif event.what == "gone" and event.who in since:
            began, within = since.pop(event.who)
            if event.seconds - began > within:
                yield f"{event.who}: was gone {event.seconds - began:.3f} s after it was cancelled, not {within:g}"
    for who in since:
        yield f"{who}: was cancelled and never gone"


def calls_end_once(history: History) -> Iterator[str]:
    """A call reports one status and nothing after it; a call with a consumer has done so when it is left."""
    calls: dict[tuple[str, int], list[str]] = defaultdict(list)
    names: dict[tuple[str, int], str] = {}
    for event in history:
        if "number" in event.details:
            key = event.who, event.details["number"]
            if event.what == "call":
                names[key] = f"{event.details['method']} of {event.details['trial'] or 'no trial'}"
            calls[key].append(event.what if event.what != "call left" or event.details["consumed"] else "left")
    for key, whats in calls.items():
        counts = Counter(whats)
        missing = counts["call left"] and not counts["status"]
        if counts["status"] > 1 or counts["message after status"] or counts["call left"] > 1 or missing:
            yield f"{key[0]}: call {key[1]} ({names.get(key)}) noted {whats}"


INSIDE_CHECKERS = (
    queues_stay_within_limits,
    tasks_end_with_their_trial,
    shields_have_deadlines,
    hosts_leave_in_time,
    calls_end_once,
)
