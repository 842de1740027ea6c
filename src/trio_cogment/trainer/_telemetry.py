"""The steps, or the episodes, of one run: their numbers, what a worker has sent before, and the latest of them."""

from __future__ import annotations

from typing import TypeAlias

import trio

from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunStep
from trio_cogment.trainer.storage import Kind, Row, TelemetryWrite, page

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
        self._recent: list[Row] = []
        self._recent_rows = recent_rows
        self.stored = last
        self.changed = trio.lowlevel.ParkingLot()

    @property
    def accepted(self) -> int:
        """The number of the last row that was accepted."""
        return self._next - 1

    def is_repeated(self, worker_id: str, worker_seq: int) -> bool:
        """Whether a worker has sent this one before, by its own numbers; those that are 0 are none."""
        return 0 < worker_seq <= self._marks.get(worker_id, 0)

    def accept(self, message: Telemetry, worker_id: str, *, keep: bool = False) -> TelemetryWrite:
        """Give a message its number; return what is to be stored, with the message itself if it is to be kept."""
        worker_seq = message.seq_id
        message.seq_id = seq = self._next
        row = Row(seq, message.SerializeToString())
        self._next = seq + 1
        if worker_seq:
            self._marks[worker_id] = worker_seq
        return TelemetryWrite(self._kind, self._number, row, worker_id, worker_seq, message if keep else None)

    def on_stored(self, write: TelemetryWrite) -> None:
        """Take note that one is stored."""
        self.stored = write.row.seq
        if write.worker_seq:
            self._stored_marks[write.worker_id] = write.worker_seq
        recent = self._recent
        recent.append(write.row)
        if len(recent) >= 2 * self._recent_rows:
            del recent[: -self._recent_rows]

    def on_failed(self) -> None:
        """Take note that what is not stored yet will not be."""
        self._next = self.stored + 1
        self._marks = dict(self._stored_marks)

    def recent(self, after: int, limit: int, max_bytes: int) -> list[Row] | None:
        """Return stored rows as `Database.rows` does; None: they are not in memory."""
        if after >= self.stored:
            return []
        if not self._recent or after + 1 < self._recent[0].seq:
            return None
        return page(self._recent, after, limit, max_bytes)

    def close(self) -> None:
        """Let go of what is in memory: the run has ended."""
        self._recent = []
        self.changed.unpark_all()
