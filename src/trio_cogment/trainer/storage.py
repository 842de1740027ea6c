"""Storage of a trainer: the interface of its databases, and the one in memory. Nothing here knows of Trio.

Steps and episodes of a run are numbered from 1 on, each kind by itself; so are the changes of all runs. The trainer
gives the numbers. What is written together is there as a whole or not at all.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunStep
from trio_cogment.base.group_commit import CommitBatch
from trio_cogment.trainer.runs import Run


class Kind(enum.IntEnum):
    """What telemetry consists of."""

    STEPS = 0
    EPISODES = 1


class Row(NamedTuple):
    """A stored step, episode, or change of a run.

    Attributes:
        seq: its number.
        data: the message.
    """

    seq: int
    data: bytes


@dataclass(frozen=True, slots=True)
class RunWrite:
    """A run that is new, or has changed.

    Attributes:
        number: of the run in the storage.
        run: as it is from now on.
        event: what watchers get; None: they get nothing.
        config: of a new run, the canonical form of its configuration; else None.
    """

    number: int
    run: Run
    event: Row | None = None
    config: str | None = None


@dataclass(slots=True)
class TelemetryRows:
    """Steps, or episodes, of one run, whose numbers follow each other.

    Attributes:
        kind: which of them.
        number: of the run in the storage.
        first: the number of the first one.
        data: the messages.
        workers: who has sent each of them.
        marks: of each worker that numbers its messages, its own number of its last one here.
        kept: messages of these that nobody would send again.
    """

    kind: Kind
    number: int
    first: int
    data: list[bytes] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    kept: list[RunStep | RunEpisode] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The number of the last one."""
        return self.first + len(self.data) - 1


@dataclass(slots=True)
class Batch(CommitBatch):
    """What is written together, as a whole or not at all.

    Attributes:
        position: its place among all batches.
        runs: runs that are new or have changed, in order.
        telemetry: of each run and kind that has any, once.
    """

    position: int = 1
    runs: list[RunWrite] = field(default_factory=list)
    telemetry: list[TelemetryRows] = field(default_factory=list)


@dataclass(slots=True)
class StoredRun:
    """A run as it was found in the storage.

    Attributes:
        number: of the run in the storage.
        run: the run.
        last: of each kind, the number of its last row; 0: there is none.
        marks: of each kind, the highest number of its own that each worker has sent.
    """

    number: int
    run: Run
    last: dict[Kind, int]
    marks: dict[Kind, dict[str, int]]


class Database(Protocol):
    """Where a trainer keeps its runs. `write` is called by one thread at a time, and so is everything else.

    All methods raise `CogmentError` if the storage fails.
    """

    def write(self, batch: Batch) -> None:
        """Write all of it, or nothing."""

    def runs(self) -> list[StoredRun]:
        """Return all runs, in the order in which they were submitted."""

    def config(self, number: int) -> str:
        """Return the configuration of a run, as it was written."""

    def rows(self, kind: Kind, number: int, *, after: int, limit: int, max_bytes: int) -> list[Row]:
        """Return the rows of a run with larger numbers, in order.

        Args:
            kind: which.
            number: of the run.
            after: the last number that is known.
            limit: the maximum number.
            max_bytes: none behind the one that reaches this size.
        """

    def events(self, *, after: int, limit: int) -> list[Row]:
        """Return the changes of runs with larger numbers, in order."""

    def event_range(self) -> tuple[int, int]:
        """Return the numbers of the first change that is kept, and of the last; (1, 0): there was none."""

    def forget_events(self, before: int) -> None:
        """Forget the changes with smaller numbers."""

    def forget_run(self, number: int) -> bool:
        """Forget a run that has ended, or a part of what it has stored; return whether nothing of it is left."""

    def close(self) -> None:
        """Let go of the file."""


@dataclass(slots=True)
class _Kept:
    """A run in memory."""

    stored: StoredRun
    config: str = ""
    data: dict[Kind, list[bytes]] = field(default_factory=lambda: {kind: [] for kind in Kind})


class MemoryDatabase:
    """Keeps runs in memory; they are gone when it is closed. There is no limit on what it takes."""

    def __init__(self) -> None:
        self._runs: dict[int, _Kept] = {}
        self._events: list[Row] = []
        self._last_event = 0

    def write(self, batch: Batch) -> None:
        """See `Database.write`."""
        for write in batch.runs:
            self._write_run(write)
        for rows in batch.telemetry:
            kept = self._runs[rows.number]
            kept.data[rows.kind] += rows.data
            kept.stored.last[rows.kind] = rows.last
            kept.stored.marks[rows.kind].update(rows.marks)

    def _write_run(self, write: RunWrite) -> None:
        kept = self._runs.get(write.number)
        if kept is None:
            stored = StoredRun(write.number, write.run, dict.fromkeys(Kind, 0), {kind: {} for kind in Kind})
            kept = self._runs[write.number] = _Kept(stored)
        kept.stored.run = write.run
        if write.config is not None:
            kept.config = write.config
        if write.event is not None:
            self._events.append(write.event)
            self._last_event = write.event.seq

    def runs(self) -> list[StoredRun]:
        """See `Database.runs`."""
        return [
            StoredRun(
                kept.stored.number,
                kept.stored.run,
                dict(kept.stored.last),
                {kind: dict(marks) for kind, marks in kept.stored.marks.items()},
            )
            for _, kept in sorted(self._runs.items())
        ]

    def config(self, number: int) -> str:
        """See `Database.config`."""
        return self._runs[number].config

    def rows(self, kind: Kind, number: int, *, after: int, limit: int, max_bytes: int) -> list[Row]:
        """See `Database.rows`."""
        kept = self._runs.get(number)
        return [] if kept is None else page(1, kept.data[kind], after, limit, max_bytes)

    def events(self, *, after: int, limit: int) -> list[Row]:
        """See `Database.events`."""
        start = bisect_right(self._events, after, key=lambda row: row.seq)
        return self._events[start : start + limit]

    def event_range(self) -> tuple[int, int]:
        """See `Database.event_range`."""
        return self._events[0].seq if self._events else self._last_event + 1, self._last_event

    def forget_events(self, before: int) -> None:
        """See `Database.forget_events`."""
        self._events = [row for row in self._events if row.seq >= before]

    def forget_run(self, number: int) -> bool:
        """See `Database.forget_run`."""
        self._runs.pop(number, None)
        return True

    def close(self) -> None:
        """See `Database.close`."""


def page(first: int, data: Sequence[bytes], after: int, limit: int, max_bytes: int) -> list[Row]:
    """Return some rows as `Database.rows` does.

    Args:
        first: the number of the first row that there is.
        data: of all rows, whose numbers follow each other.
        after: see `Database.rows`, as the others.
        limit: see above.
        max_bytes: see above.
    """
    start = max(0, after + 1 - first)
    found: list[Row] = []
    size = 0
    for seq, one in enumerate(data[start : start + limit], first + start):
        found.append(Row(seq, one))
        size += len(one)
        if size >= max_bytes:
            break
    return found
