"""Changes of the registrations: applied in order, written in batches, and in effect once they are written.

A caller waits until its change is in the file. The changes that arrive during a write form the next batch: they are
applied to a copy in the order of arrival, and the copy is written once for all of them. If the write fails, none of
them takes effect.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from trio_cogment.base.errors import CogmentError, UnavailableError
from trio_cogment.servers.directory._entries import Entries

_T = TypeVar("_T")
STOPPING = "the directory is stopping"

_log = logging.getLogger(__name__)


class _Change:
    def __init__(self, function: Callable[[Entries], Any]) -> None:
        self.function = function
        self.settled = trio.Event()
        self.result: Any = None
        self.refusal: Exception | None = None
        self.abandoned = False

    def try_on(self, entries: Entries) -> bool:
        """Apply it, and return whether the registrations are as it wants them, or as they were before.

        False: nobody has expected its error, and the registrations may be anything.
        """
        try:
            self.result = self.function(entries)
        except Exception as error:  # noqa: BLE001  its caller gets it, and nobody else
            self.refusal = error
        return self.refusal is None or isinstance(self.refusal, CogmentError)


class Changes:
    """The queue of changes, and the task that applies them.

    Args:
        save: writes the registrations; raises OSError.
        adopt: receives the registrations that have been written.
        max_pending: how many changes may wait in the queue; further callers wait for room.
        retry_seconds: how long after a failure the file is written again if no change comes before.
    """

    def __init__(
        self,
        save: Callable[[Entries], Awaitable[None]],
        adopt: Callable[[Entries], None],
        *,
        max_pending: int,
        retry_seconds: float,
    ) -> None:
        self._save = save
        self._adopt = adopt
        self._retry_seconds = retry_seconds
        self._entries = Entries()
        self._failed = False
        self._batch: list[_Change] = []
        self._send, self._receive = trio.open_memory_channel[_Change](max_pending)

    async def begin(self, entries: Entries, *, write: bool) -> None:
        """Start from these registrations; with `write`, write them at once. A failure is logged and retried."""
        self._entries = entries
        self._adopt(entries)
        if write:
            await self._write(entries)

    async def make(self, function: Callable[[Entries], _T]) -> _T:
        """Apply a function to the registrations; return its result when the change is durable.

        To refuse a change, the function raises a `CogmentError` and leaves the registrations as they are.

        Raises:
            Exception: raised by the function.
            UnavailableError: the file cannot be written, or the directory is stopping.

        After `Cancelled` a change that is being written takes effect; one that still waits does not.
        """
        change = _Change(function)
        try:
            await self._send.send(change)
        except trio.BrokenResourceError:
            raise UnavailableError(STOPPING) from None
        try:
            await change.settled.wait()
        finally:
            change.abandoned = not change.settled.is_set()
        if change.refusal is not None:
            raise change.refusal
        result: _T = change.result
        return result

    async def run(self) -> None:
        """Apply changes until cancelled; those that still wait are then refused."""
        try:
            while True:
                await self._wait()
                draft, made = self._apply()
                if made or self._failed:
                    problem = await self._write(draft)
                    if problem is None:
                        self._entries = draft
                        self._adopt(draft)
                    for change in made:
                        change.refusal = problem
                self._settle()
        finally:
            self._refuse_the_rest()

    def _apply(self) -> tuple[Entries, list[_Change]]:
        """Return the registrations with the batch applied, and the changes that were not refused."""
        while True:
            draft = self._entries.copy()
            wanted = [change for change in self._batch if not change.abandoned and change.refusal is None]
            if all(change.try_on(draft) for change in wanted):
                return draft, [change for change in wanted if change.refusal is None]
            # One has failed, perhaps halfway: without it, from the beginning.

    async def _wait(self) -> None:
        """Wait for changes, or, after a failure, for the next attempt."""
        with trio.move_on_after(self._retry_seconds if self._failed else math.inf):
            self._batch.append(await self._receive.receive())
        self._take_the_rest()

    def _take_the_rest(self) -> None:
        while True:
            try:
                self._batch.append(self._receive.receive_nowait())
            except trio.WouldBlock:
                return

    def _settle(self) -> None:
        for change in self._batch:
            change.settled.set()
        self._batch.clear()

    async def _write(self, entries: Entries) -> UnavailableError | None:
        try:
            await self._save(entries)
        except OSError as error:
            if not self._failed:
                _log.warning("the registrations cannot be written; changes are refused: %s", error)
            self._failed = True
            return UnavailableError(f"the directory cannot write its file: {error}")
        except Exception:  # noqa: BLE001  a bug must not end the service of all registrations
            _log.exception("the registrations cannot be written; changes are refused")
            self._failed = True
            return UnavailableError("the directory cannot write its file; the server's log has the details")
        if self._failed:
            _log.info("the registrations can be written again")
        self._failed = False
        return None

    def _refuse_the_rest(self) -> None:
        self._take_the_rest()
        self._receive.close()
        for change in self._batch:
            change.refusal = UnavailableError(STOPPING)
        self._settle()
