"""The steps, or the episodes, of one run: their numbers, what a worker has sent before, and the latest of them."""

from __future__ import annotations

from typing import TypeAlias

import trio

from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunStep
from trio_cogment.trainer.storage import Batch, Kind, Row, TelemetryRows, page

Telemetry: TypeAlias = RunStep | RunEpisode


class TelemetryLog:
    """What was accepted, and how much of it is stored.

    Args:
        kind: which of the two.
        number: of the run in the storage.
        last: the number of the last stored row.
        marks: the highest number of its own that each worker has sent, of what is stored.
        recent_rows: how many of the latest rows are kept in memory.

    Attributes:
        stored: the number of the last stored row.
        changed: readers wait here for more.
    """

    def __init__(self, kind: Kind, number: int, last: int, marks: dict[str, int], recent_rows: int) -> None:
        self._kind = kind
        self._number = number
        self._next = last + 1
        self._marks = dict(marks)
        self._stored_marks = marks
        self._recent: list[bytes] = []
        self._recent_rows = recent_rows
        self._batch: Batch | None = None
        self._rows: TelemetryRows | None = None
        self.stored = last
        self.changed = trio.lowlevel.ParkingLot()

    @property
    def accepted(self) -> int:
        """The number of the last row that was accepted."""
        return self._next - 1

    def is_repeated(self, worker_id: str, worker_seq: int) -> bool:
        """Whether a worker has sent this one before, by its own numbers; those that are 0 are none."""
        return 0 < worker_seq <= self._marks.get(worker_id, 0)

    def is_new_in(self, batch: Batch) -> bool:
        """Whether a batch has nothing of this yet."""
        return batch is not self._batch

    def accept(self, message: Telemetry, worker_id: str, batch: Batch, *, keep: bool = False) -> int:
        """Give a message its number, and add it to a batch; return its size in bytes.

        Args:
            message: the message; with the number of its worker, if that has one.
            worker_id: who has sent it.
            batch: where it goes.
            keep: the message itself is kept until it is stored; it has no number of its worker.
        """
        seq, worker_seq = self._next, message.seq_id
        message.seq_id = seq
        data = message.SerializeToString()
        self._next = seq + 1
        rows = self._rows
        if rows is None or batch is not self._batch:
            rows = self._rows = TelemetryRows(self._kind, self._number, seq)
            self._batch = batch
            batch.telemetry.append(rows)
        rows.data.append(data)
        rows.workers.append(worker_id)
        if keep:
            rows.kept.append(message)
        elif worker_seq:
            self._marks[worker_id] = rows.marks[worker_id] = worker_seq
        return len(data)

    def on_stored(self, rows: TelemetryRows) -> None:
        """Take note that some are stored."""
        if rows is self._rows:
            self._rows = self._batch = None
        self.stored = rows.last
        self._stored_marks.update(rows.marks)
        recent = self._recent
        recent += rows.data
        if len(recent) >= 2 * self._recent_rows:
            del recent[: -self._recent_rows]

    def on_failed(self) -> None:
        """Take note that what is not stored yet will not be."""
        self._rows = self._batch = None
        self._next = self.stored + 1
        self._marks = dict(self._stored_marks)

    def recent(self, after: int, limit: int, max_bytes: int) -> list[Row] | None:
        """Return stored rows as `Database.rows` does; None: they are not in memory."""
        if after >= self.stored:
            return []
        first = self.stored - len(self._recent) + 1
        return page(first, self._recent, after, limit, max_bytes) if after + 1 >= first else None

    def close(self) -> None:
        """Let go of what is in memory: the run has ended."""
        self._recent = []
        self.changed.unpark_all()
