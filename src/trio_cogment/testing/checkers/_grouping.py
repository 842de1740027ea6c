"""The events of a history, sorted as checkers need them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from trio_cogment.testing.history import History, HistoryEvent


def events_by(history: Iterable[HistoryEvent], *what: str) -> dict[tuple[str, str], list[HistoryEvent]]:
    """Return the events of some kinds by trial and by who saw them."""
    found: dict[tuple[str, str], list[HistoryEvent]] = defaultdict(list)
    for event in history:
        if event.what in what:
            found[event.trial_id, event.who].append(event)
    return found


def sessions(history: History) -> Iterator[list[HistoryEvent]]:
    """Yield what each session of a participant noted."""
    open_ones: dict[tuple[str, str], list[HistoryEvent]] = {}
    for event in history:
        key = event.trial_id, event.who
        if event.what == "opened":
            if key in open_ones:
                yield open_ones.pop(key)
            open_ones[key] = []
        if key in open_ones:
            open_ones[key].append(event)
    yield from open_ones.values()
