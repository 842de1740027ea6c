"""What a trainer stores, and where: the interface of its databases, and the one in memory. Nothing here knows of Trio.

Steps and episodes of a run are numbered from 1 on, each kind by itself; so are the changes of all runs. The trainer
gives the numbers. Whatever is written in one `write` is there as a whole or not at all.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from google.protobuf.message import Message

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


class TelemetryWrite(NamedTuple):
    """A step or an episode.

    Attributes:
        kind: which of them.
        number: of the run in the storage.
        row: as it is stored.
        worker_id: who has sent it.
        worker_seq: the worker's own number of it; 0: it has none.
        kept: the message itself, where nobody else would send it again.
    """

    kind: Kind
    number: int
    row: Row
    worker_id: str = ""
    worker_seq: int = 0
    kept: Message | None = None


Write: TypeAlias = RunWrite | TelemetryWrite


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

    def write(self, writes: Sequence[Write]) -> None:
        """Write all of these, in order, or nothing."""

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
            limit: so many at most.
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
    rows: dict[Kind, list[Row]] = field(default_factory=lambda: {kind: [] for kind in Kind})


class MemoryDatabase:
    """Keeps runs in memory; they are gone when it is closed. There is no limit on what it takes."""

    def __init__(self) -> None:
        self._runs: dict[int, _Kept] = {}
        self._events: list[Row] = []
        self._last_event = 0

    def write(self, writes: Sequence[Write]) -> None:
        """See `Database.write`."""
        for write in writes:
            if isinstance(write, RunWrite):
                self._write_run(write)
            else:
                kept = self._runs[write.number]
                kept.rows[write.kind].append(write.row)
                kept.stored.last[write.kind] = write.row.seq
                if write.worker_seq:
                    kept.stored.marks[write.kind][write.worker_id] = write.worker_seq

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
        return page(self._runs[number].rows[kind], after, limit, max_bytes)

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


def page(rows: Sequence[Row], after: int, limit: int, max_bytes: int) -> list[Row]:
    """Return some of the rows, which are in order and have no gaps, as `Database.rows` does."""
    start = max(0, after + 1 - rows[0].seq) if rows else 0
    found: list[Row] = []
    size = 0
    for row in rows[start : start + limit]:
        found.append(row)
        size += len(row.data)
        if size >= max_bytes:
            break
    return found


def grouped(writes: Sequence[Write]) -> tuple[list[RunWrite], dict[Kind, list[TelemetryWrite]]]:
    """Return the changes of runs, and steps and episodes apart, each in their order."""
    runs: list[RunWrite] = []
    telemetry: dict[Kind, list[TelemetryWrite]] = defaultdict(list)
    for write in writes:
        if isinstance(write, RunWrite):
            runs.append(write)
        else:
            telemetry[write.kind].append(write)
    return runs, telemetry
