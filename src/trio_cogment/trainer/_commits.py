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

from trio_cogment.config import TrainerConfig
from trio_cogment.errors import CogmentError, UnavailableError
from trio_cogment.trainer.storage import TelemetryWrite, Write

_log = logging.getLogger(__name__)

#: The estimated memory of a write beside its data.
_OVERHEAD_BYTES = 256
#: The last failures that waiters may still ask about.
_REMEMBERED_FAILURES = 64
#: How long to wait behind a failure: what was kept of it is tried again.
_RETRY_SECONDS = 0.1


class Owner(Protocol):
    """Whoever the writes are about. Neither method raises."""

    def on_stored(self, writes: Sequence[Write]) -> None:
        """Learn that these are stored."""

    def on_failed(self, writes: Sequence[Write]) -> None:
        """Learn that these are not stored, nor anything behind them."""


class Commits:
    """The queue, and the task that empties it.

    Args:
        write: writes a batch, all or nothing.
        owner: learns what has become of it.
        config: when a batch is committed, and how much may wait.

    Attributes:
        healthy: the last write succeeded.
        failed_times: how often one did not.
    """

    def __init__(
        self, write: Callable[[Sequence[Write]], Awaitable[None]], owner: Owner, config: TrainerConfig
    ) -> None:
        self._write = write
        self._owner = owner
        self._config = config
        self._commit_rows = config.commit_rows
        self._queue: deque[tuple[Write, int]] = deque()
        self._held_rows = self._held_bytes = 0
        self._put = self._settled = 0
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
        return self._put

    @property
    def has_room(self) -> bool:
        """Whether telemetry may be put now."""
        config = self._config
        return self._held_rows < config.max_pending_rows and self._held_bytes < config.max_pending_bytes

    async def wait_room(self) -> None:
        """Return when telemetry may be put."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.has_room:
            self._expedite()
            await self._progress.park()

    def put(self, write: Write) -> int:
        """Queue a write, and return its position, for `wait`. Who puts telemetry asks for room first."""
        queue = self._queue
        size = _OVERHEAD_BYTES
        if isinstance(write, TelemetryWrite):
            size += len(write.row.data)
        elif write.event is not None:
            size += len(write.event.data) + len(write.config or "")
        if not queue:
            self._since = trio.current_time()
        queue.append((write, size))
        self._held_rows += 1
        self._held_bytes += size
        self._put = position = self._put + 1
        waiting = len(queue)
        if waiting == 1 or waiting == self._commit_rows:
            self._work.unpark()
        return position

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
        while self._settled < self._put:
            self._expedite()
            await self._progress.park()

    def _expedite(self) -> None:
        self._expedited = True
        self._work.unpark()

    async def run(self) -> None:
        """Commit for ever. After `Cancelled` what was queued may be stored or not; its owner is not told."""
        while True:
            while not self._queue:
                await self._work.park()
            with trio.move_on_at(self._since + self._config.commit_delay_seconds):
                while not self._expedited and len(self._queue) < self._config.commit_rows:
                    await self._work.park()
            await self._commit()
            if not self.healthy:
                await trio.sleep(_RETRY_SECONDS)

    async def _commit(self) -> None:
        # More than was waited for may have come while the last batch was written.
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._config.max_commit_rows))]
        self._expedited = self._expedited and bool(self._queue)
        self._since = trio.current_time()
        writes = [write for write, _ in batch]
        try:
            await self._write(writes)
        except CogmentError as error:
            failure = error
        except Exception:  # noqa: BLE001  a bug must not end the service of all runs
            _log.exception("%d writes failed", len(batch))
            failure = UnavailableError("the storage failed; the server's log has the details")
        else:
            self.healthy = True
            self._owner.on_stored(writes)
            self._settle(len(batch), sum(size for _, size in batch))
            return
        self._fail(batch, failure)

    def _fail(self, batch: list[tuple[Write, int]], failure: CogmentError) -> None:
        self.healthy = False
        self.failed_times += 1
        batch += self._queue
        self._queue.clear()
        _log.warning("%d writes failed: %s", len(batch), failure)
        self._failures.append((self._settled + 1, self._settled + len(batch), failure))
        self._owner.on_failed([write for write, _ in batch])
        self._settle(len(batch), sum(size for _, size in batch))

    def _settle(self, rows: int, size: int) -> None:
        self._settled += rows
        self._held_rows -= rows
        self._held_bytes -= size
        self._progress.unpark_all()
