"""Views of a tab: each tells what is new since the tab was told last.

Nothing here waits, and nothing knows of the tab: `news` may be asked for whenever it is ready for more.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from trio_cogment.access import Identity
from trio_cogment.base.errors import CogmentError
from trio_cogment.base.stand_ins import stand_in_of
from trio_cogment.dashboard._board import Board
from trio_cogment.dashboard._log import LogRing
from trio_cogment.dashboard._payloads import numbers, shown
from trio_cogment.dashboard._rows import Differ, Row
from trio_cogment.sdk import ActorSample, StoredSample
from trio_cogment.web.json_text import shortest_mean

# Curves of a trial that may be of any length, in room that is not: points become coarser, the newest stay exact.
#
# When there are too many points, every other one of the older half is dropped. A page gets a curve as a whole at first,
# and then the points that are new; when older ones were dropped it gets all of it again, which is rare: the room has to
# fill up by half before.

#: Points of one curve. More than a screen has.
MAX_POINTS = 2000
#: Curves of one trial; further ones are left out.
MAX_CURVES = 64


class Curve:
    """Values by tick, in the order of the ticks."""

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self.ticks: list[int] = []
        self.values: list[float] = []
        #: Points with smaller indexes were told; negative: all of it has to be.
        self._told = -1

    def add(self, tick: int, value: float) -> None:
        """Add a point; anything but a number, and a point not later than the last one, is passed over."""
        if not math.isfinite(value) or (self.ticks and tick <= self.ticks[-1]):
            return
        if len(self.ticks) >= self._max_points:
            half = self._max_points // 2
            self.ticks = self.ticks[:half:2] + self.ticks[half:]
            self.values = self.values[:half:2] + self.values[half:]
            self._told = -1
        self.ticks.append(tick)
        self.values.append(value)

    def news(self) -> dict[str, Any] | None:
        """Return what a page has not been told: new points, or with `all` every point; None: it knows everything."""
        if self._told == len(self.ticks):
            return None
        begin = max(0, self._told)
        news: dict[str, Any] = {"ticks": self.ticks[begin:], "values": self.values[begin:]}
        if self._told < 0:
            news["all"] = True
        self._told = len(self.ticks)
        return news


class Curves:
    """The curves of one trial, by their names."""

    def __init__(self) -> None:
        self._curves: dict[str, Curve] = {}

    def add(self, name: str, tick: int, value: float) -> None:
        """Add a point to a curve."""
        curve = self._curves.get(name)
        if curve is None:
            if len(self._curves) >= MAX_CURVES:
                return
            curve = self._curves[name] = Curve()
        curve.add(tick, value)

    def news(self) -> dict[str, Any]:
        """Return what a page has not been told, by the names of the curves."""
        found = {name: curve.news() for name, curve in self._curves.items()}
        return {name: news for name, news in found.items() if news is not None}


News = dict[str, Any]
#: What is read of samples.
REWARD_FIELDS = ("reward", "received_rewards")
SAMPLE_FIELDS = ("observation", "action", *REWARD_FIELDS, "sent_messages", "received_messages")
#: Messages between participants that wait for a tab, and records of the log.
_MAX_MESSAGES = 100
_MAX_RECORDS = 300
#: Payloads that are larger make no curves: they are pictures.
_MAX_CURVE_BYTES = 2048


class View(Protocol):
    """What a tab looks at."""

    def news(self) -> News | None:
        """Return what the tab has not been told; None: nothing is new."""


class TrialsView:
    """The list of trials."""

    def __init__(self, board: Board, identity: Identity, search: str) -> None:
        self._board = board
        self._identity = identity
        self._search = search
        self._differ = Differ()
        self._counts: dict[str, int] | None = None

    def news(self) -> News | None:
        """See `View.news`."""
        news: News = self._differ.delta(self._board.rows(self._identity, self._search)) or {}
        counts = self._board.counts(self._identity)
        if counts != self._counts:
            self._counts = news["counts"] = counts
        return news or None


class Samples:
    """What was read of a trial's samples, until the tab is told."""

    def __init__(self) -> None:
        self.curves = Curves()
        self.last: StoredSample | None = None
        self.note = ""
        self._messages: deque[Row] = deque(maxlen=_MAX_MESSAGES)
        self._told: tuple[StoredSample | None, str] = (None, "")

    def add(self, sample: StoredSample) -> None:
        """Take a sample."""
        self.last = sample
        for name, actor in sample.actors.items():
            if actor.reward is not None:
                self.curves.add(f"reward|{name}", sample.tick_id, _reward(actor, actor.reward))
            content = actor.action_bytes
            if content is not None and 0 < len(content) <= _MAX_CURVE_BYTES:
                for place, value in numbers(payload_of(actor, "action", content)):
                    self.curves.add(f"action|{name}|{place}", sample.tick_id, value)
        self._messages.extend(message_rows(sample))

    def news(self) -> News:
        """Return what the tab has not been told."""
        news: News = {}
        curves = self.curves.news()
        if curves:
            news["curves"] = curves
        if self._messages:
            news["messages"] = list(self._messages)
            self._messages.clear()
        if self.last is not self._told[0] and self.last is not None:
            news["sample"] = sample_row(self.last)
        if self.note != self._told[1]:
            news["note"] = self.note
        self._told = self.last, self.note
        return news


class TrialView:
    """One trial that is known: its participants, and what comes of its samples."""

    def __init__(self, board: Board, identity: Identity, trial_id: str, samples: Samples) -> None:
        self._board = board
        self._identity = identity
        self._trial_id = trial_id
        self._samples = samples
        self._differ = Differ()
        self._gone = False

    def news(self) -> News | None:
        """See `View.news`."""
        news: News = {}
        if not self._gone:
            try:
                news = self._differ.delta(self._board.one(self._identity, self._trial_id)) or {}
            except CogmentError as error:
                self._gone = True
                news = {"missing": str(error)}
        return news | self._samples.news() or None


class LogView:
    """The log of the process."""

    def __init__(self, log: LogRing) -> None:
        self._log = log
        self._told = 0

    def news(self) -> News | None:
        """See `View.news`."""
        last, records = self._log.after(self._told, _MAX_RECORDS)
        skipped = last - self._told - len(records) if self._told else 0
        self._told = last
        return {"records": records, "skipped": skipped} if records else None


class ServerView:
    """Figures of the process, by their names."""

    def __init__(self, figures: Callable[[], dict[str, Row]]) -> None:
        self._figures = figures
        self._differ = Differ()

    def news(self) -> News | None:
        """See `View.news`."""
        return self._differ.delta(self._figures())


def payload_of(actor: ActorSample, what: str, content: bytes | None) -> Any:
    """Return an actor's observation or action as pages show it: decoded if that can be done, else its bytes."""
    if content is None:
        return None
    try:
        return shown(getattr(actor, what))
    except CogmentError:
        return shown(content)


def message_rows(sample: StoredSample) -> Iterator[Row]:
    """Yield the messages of a tick as pages show them: once for each receiver."""
    types = sample.spec.messages
    for actor in sample.actors.values():
        # What actors send is with the sender; what the environment sends only with those who get it.
        sent = [one for one in actor.received_messages if not one.sender]
        for one in (*actor.sent_messages, *sent):
            if one.sender == one.receiver and stand_in_of([one.payload]) is not None:
                continue  # it is shown with the action
            payload = shown(one.payload, types)
            yield {"tick": sample.tick_id, "from": one.sender, "to": one.receiver, "payload": payload}


def _reward(actor: ActorSample, mean: float) -> float:
    """Return an actor's reward as people would compute it from the rewards that it is the mean of."""
    return shortest_mean(mean, [(one.value, one.confidence) for one in actor.received_rewards])


def sample_row(sample: StoredSample, *, payloads: bool = True) -> News:
    """Return a sample as pages show it."""
    actors: dict[str, Row] = {}
    for name, actor in sample.actors.items():
        row: News = {}
        if actor.reward is not None:
            row["reward"] = _reward(actor, actor.reward)
        if actor.stand_in is not None:
            row["standIn"] = actor.stand_in.value
        if payloads:
            observation = payload_of(actor, "observation", actor.observation_bytes)
            action = payload_of(actor, "action", actor.action_bytes)
            row |= {
                key: value for key, value in (("observation", observation), ("action", action)) if value is not None
            }
        actors[name] = row
    found: News = {"tick": sample.tick_id, "time": sample.timestamp / 1e9, "actors": actors}
    if sample.special_events:
        found["events"] = list(sample.special_events)
    if payloads:
        messages = list(message_rows(sample))
        if messages:
            found["messages"] = messages
    missing = [*sample.default_actors, *sample.unavailable_actors, *sample.held_actors]
    if missing:
        found["missing"] = missing
    return found
