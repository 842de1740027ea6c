"""The recorded events of a run, for checkers and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import trio

#: More than the largest scenario records; a scenario that never ends must not fill the memory.
MAX_EVENTS = 1_000_000


class MissingDetailError(KeyError):
    """An event was asked for a detail that it does not have."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would put it in quotes


class Details(dict[str, Any]):
    """The details of an event, as a dict whose KeyError names the event."""

    __slots__ = ("whose",)

    def __init__(self, whose: str, details: dict[str, Any]) -> None:
        super().__init__(details)
        self.whose = whose

    def __missing__(self, name: str) -> Any:
        raise MissingDetailError(f"expected the event {self.whose!r} to have {name!r}, it has {dict(self)}")


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One recorded event.

    Attributes:
        seconds: when, on Trio's clock.
        who: who recorded it: a participant's session, a watcher, a data log.
        what: its name; the checkers know some (see `trio_cogment.testing.CHECKERS`).
        trial_id: the trial it belongs to, if any.
        details: plain values.
    """

    seconds: float
    who: str
    what: str
    trial_id: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        more = "".join(f" {name}={value!r}" for name, value in self.details.items())
        return f"{self.seconds:.6f} {self.trial_id or '-'} {self.who}: {self.what}{more}"


class History:
    """The events of a run, in the order in which they happened. Bounded: what comes after `MAX_EVENTS` is counted only.

    Attributes:
        dropped: how many events were not kept.
        listeners: called with each event as it is recorded; they must not wait.
    """

    def __init__(self) -> None:
        self._events: list[HistoryEvent] = []
        self.dropped = 0
        self.listeners: list[Callable[[HistoryEvent], None]] = []

    def record(self, who: str, what: str, trial_id: str = "", **details: Any) -> None:
        """Record an event at the present time. Call it within a run of Trio, simulated or not."""
        if len(self._events) >= MAX_EVENTS:
            self.dropped += 1
            return
        event = HistoryEvent(trio.current_time(), who, what, trial_id, Details(f"{who}: {what}", details))
        self._events.append(event)
        for listener in self.listeners:
            listener(event)

    def __iter__(self) -> Iterator[HistoryEvent]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def recent(self, count: int) -> list[HistoryEvent]:
        """Return the last events."""
        return self._events[-count:] if count else []

    def of_trial(self, trial_id: str) -> list[HistoryEvent]:
        """Return the events of one trial."""
        return [event for event in self._events if event.trial_id == trial_id]

    def text(self, trial_id: str | None = None) -> str:
        """Return the events, one a line, in the form in which two runs are compared."""
        return "".join(f"{event}\n" for event in self._events if trial_id in (None, event.trial_id))
