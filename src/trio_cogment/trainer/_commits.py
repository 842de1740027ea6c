"""Group commit: what is to be stored goes through one queue, and to the database in batches, in order.

After a failure everything that waits fails, too: it may build on what was not stored. Whoever has put it takes its
consequences back in `on_failed`, before anybody puts more.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from trio_cogment.base.config import TrainerConfig
from trio_cogment.base.errors import CogmentError, UnavailableError
from trio_cogment.trainer.storage import Batch, RunWrite

_log = logging.getLogger(__name__)

#: The estimated memory of a write beside its data.
_OVERHEAD_BYTES = 256
#: The last failures that waiters may still ask about.
_REMEMBERED_FAILURES = 64
#: How long to wait behind a failure: what was kept of it is tried again.
_RETRY_SECONDS = 0.1


class Owner(Protocol):
    """Whoever the batches are about. Neither method raises."""

    def on_stored(self, batch: Batch) -> None:
        """Learn that one is stored."""

    def on_failed(self, batches: Sequence[Batch]) -> None:
        """Learn that these are not stored, nor anything behind them."""


class Commits:
    """The queue, and the task that empties it.

    Args:
        write: writes a batch, all or nothing.
        owner: learns what has become of it.
        config: when a batch is committed, and how much may wait.

    Attributes:
        batch: what is put goes there: telemetry by whoever has it, who calls `count` for each row then.
        healthy: the last write succeeded.
        failed_times: how often one did not.
    """

    def __init__(self, write: Callable[[Batch], Awaitable[None]], owner: Owner, config: TrainerConfig) -> None:
        self._write = write
        self._owner = owner
        self._config = config
        self._most_rows, self._most_bytes = config.max_pending_rows, config.max_pending_bytes
        self._commit_rows = config.commit_rows
        self._max_commit_rows = config.max_commit_rows
        self.batch = Batch()
        self._full: deque[Batch] = deque()
        self._held_rows = self._held_bytes = 0
        self._settled = 0
        self._since = 0.0
        self._expedited = False
        self._work = trio.lowlevel.ParkingLot()
        self._progress = trio.lowlevel.ParkingLot()
        #: The first and the last position that failed together, and why.
        self._failures: deque[tuple[int, int, CogmentError]] = deque(maxlen=_REMEMBERED_FAILURES)
        self.healthy = True
        self.failed_times = 0

    @property
    def last_position(self) -> int:
        """The position of what was put last."""
        return self.batch.position if self.batch.rows else self.batch.position - 1

    @property
    def has_room(self) -> bool:
        """Whether telemetry may be put now."""
        return self._held_rows < self._most_rows and self._held_bytes < self._most_bytes

    async def wait_room(self) -> None:
        """Return when telemetry may be put."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.has_room:
            self._expedite()
            await self._progress.park()

    def put_run(self, write: RunWrite) -> int:
        """Queue a run that is new or has changed; return its position, for `wait`."""
        self.batch.runs.append(write)
        return self.count((len(write.event.data) if write.event is not None else 0) + len(write.config or ""))

    def count(self, size: int) -> int:
        """Take note of a row that was added to `batch`, and return its position, for `wait`.

        Who adds telemetry asks for room first.

        Args:
            size: of its data.
        """
        batch = self.batch
        size += _OVERHEAD_BYTES
        batch.size += size
        batch.rows = rows = batch.rows + 1
        self._held_rows += 1
        self._held_bytes += size
        if rows == 1:
            if not self._full:
                self._since = trio.current_time()
            self._work.unpark()
        if rows >= self._max_commit_rows:
            self._full.append(self._next_batch())
            self._work.unpark()
        elif rows == self._commit_rows:
            self._work.unpark()
        return batch.position

    def _next_batch(self) -> Batch:
        """Begin another batch; return the one before."""
        batch = self.batch
        self.batch = Batch(batch.position + 1)
        return batch

    async def wait(self, position: int) -> None:
        """Return when what was put there is stored; it is not waited for that more comes.

        Raises:
            CogmentError: it could not be stored.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._settled < position:
            self._expedite()
            await self._progress.park()
        for first, last, error in self._failures:
            if first <= position <= last:
                raise error

    async def drain(self) -> None:
        """Return when nothing waits, whatever has become of it."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._held_rows:
            self._expedite()
            await self._progress.park()

    def _expedite(self) -> None:
        self._expedited = True
        self._work.unpark()

    async def run(self) -> None:
        """Commit indefinitely. After `Cancelled` what was queued may be stored or not; its owner is not told."""
        while True:
            while not self._full and not self.batch.rows:
                await self._work.park()
            with trio.move_on_at(self._since + self._config.commit_delay_seconds):
                while not self._expedited and not self._full and self.batch.rows < self._commit_rows:
                    await self._work.park()
            await self._commit()
            if not self.healthy:
                await trio.sleep(_RETRY_SECONDS)

    async def _commit(self) -> None:
        # More than was waited for may have come while the last batch was written.
        batch = self._full.popleft() if self._full else self._next_batch()
        self._expedited = self._expedited and bool(self._full or self.batch.rows)
        self._since = trio.current_time()
        try:
            await self._write(batch)
        except CogmentError as error:
            failure = error
        except Exception:  # noqa: BLE001  a bug must not end the service of all runs
            _log.exception("%d writes failed", batch.rows)
            failure = UnavailableError("the storage failed; the server's log has the details")
        else:
            self.healthy = True
            self._owner.on_stored(batch)
            self._settle([batch])
            return
        self._fail(batch, failure)

    def _fail(self, batch: Batch, failure: CogmentError) -> None:
        self.healthy = False
        self.failed_times += 1
        batches = [batch, *self._full]
        self._full.clear()
        if self.batch.rows:
            batches.append(self._next_batch())
        _log.warning("%d writes failed: %s", sum(one.rows for one in batches), failure)
        self._failures.append((batch.position, batches[-1].position, failure))
        self._owner.on_failed(batches)
        self._settle(batches)

    def _settle(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self._settled = batch.position
            self._held_rows -= batch.rows
            self._held_bytes -= batch.size
        self._progress.unpark_all()
