"""Group commit of a trainer: runs and telemetry, through a `CommitQueue`.

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
from trio_cogment.base.errors import CogmentError
from trio_cogment.base.group_commit import CommitQueue, storage_failure
from trio_cogment.trainer.storage import Batch, RunWrite

_log = logging.getLogger(__name__)

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


class Commits(CommitQueue[Batch]):
    """The queue of all runs. Telemetry is added to `batch` by whoever has it, who calls `count` for each row then.

    Args:
        write: writes a batch, all or nothing.
        owner: learns what has become of it.
        config: when a batch is committed, and how much may wait.

    Attributes:
        healthy: the last write succeeded.
        failed_times: how often one did not.
    """

    def __init__(self, write: Callable[[Batch], Awaitable[None]], owner: Owner, config: TrainerConfig) -> None:
        super().__init__(
            Batch(),
            max_count=config.max_pending_rows,
            max_bytes=config.max_pending_bytes,
            enough=config.commit_rows,
            full=config.max_commit_rows,
        )
        self._write = write
        self._owner = owner
        self._config = config
        self._settled = 0
        #: The first and the last position that failed together, and why.
        self._failures: deque[tuple[int, int, CogmentError]] = deque(maxlen=_REMEMBERED_FAILURES)
        self.healthy = True
        self.failed_times = 0

    @property
    def last_position(self) -> int:
        """The position of what was put last, for `wait`."""
        return self.batch.position if self.batch.count else self.batch.position - 1

    def put_run(self, write: RunWrite) -> int:
        """Queue a run that is new or has changed; return its position, for `wait`."""
        self.batch.runs.append(write)
        position = self.batch.position
        self.count((len(write.event.data) if write.event is not None else 0) + len(write.config or ""))
        return position

    async def wait(self, position: int) -> None:
        """Return when what was put there is stored; it is not waited for that more comes.

        Raises:
            CogmentError: it could not be stored.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._settled < position:
            self.expedite()
            await self._progress.park()
        for first, last, error in self._failures:
            if first <= position <= last:
                raise error

    def _following(self, batch: Batch) -> Batch:
        return Batch(position=batch.position + 1)

    def _delay_seconds(self) -> float:
        return self._config.commit_delay_seconds

    async def _commit(self, batch: Batch) -> None:
        try:
            await self._write(batch)
        except Exception as error:  # noqa: BLE001  a bug must not end the service of all runs
            self._fail([batch, *self._take_all()], storage_failure(error, _log))
            await trio.sleep(_RETRY_SECONDS)
        else:
            self.healthy = True
            self._owner.on_stored(batch)
            self._settle(batch)

    def _fail(self, batches: Sequence[Batch], failure: CogmentError) -> None:
        self.healthy = False
        self.failed_times += 1
        _log.warning("%d writes failed: %s", sum(one.count for one in batches), failure)
        self._failures.append((batches[0].position, batches[-1].position, failure))
        self._owner.on_failed(batches)
        self._settle(*batches)

    def _settle(self, *batches: Batch) -> None:
        self._settled = batches[-1].position
        self._release(*batches)
