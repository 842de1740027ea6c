"""Changes of the registrations: done one after the other, written together, and true when they have been written.

Whoever wants a change waits until it is in the file. All that came while the last one was being written are tried on a
copy, in the order in which they came, and the copy is written once for all of them. If that fails, none has happened.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from trio_cogment.directory._registry import Registry
from trio_cogment.errors import CogmentError, UnavailableError

_T = TypeVar("_T")
STOPPING = "the directory is stopping"

_log = logging.getLogger(__name__)


class _Change:
    def __init__(self, function: Callable[[Registry], Any]) -> None:
        self.function = function
        self.settled = trio.Event()
        self.result: Any = None
        self.refusal: CogmentError | None = None
        self.abandoned = False

    def try_on(self, registry: Registry) -> bool:
        try:
            self.result = self.function(registry)
        except CogmentError as error:
            self.refusal = error
        return self.refusal is None


class Changes:
    """The queue of changes, and the task that makes them.

    Args:
        save: writes the registrations; raises OSError.
        adopt: takes over what has been written.
        max_pending: changes that may wait; who wants a further one waits for these.
        retry_seconds: how long after a failure the file is written again, if no change comes before.
    """

    def __init__(
        self,
        save: Callable[[Registry], Awaitable[None]],
        adopt: Callable[[Registry], None],
        *,
        max_pending: int,
        retry_seconds: float,
    ) -> None:
        self._save = save
        self._adopt = adopt
        self._retry_seconds = retry_seconds
        self._registry = Registry()
        self._failed = False
        self._batch: list[_Change] = []
        self._send, self._receive = trio.open_memory_channel[_Change](max_pending)

    async def begin(self, registry: Registry, *, write: bool) -> None:
        """Start from these registrations, and write them at once if wanted; a failure is logged and tried again."""
        self._registry = registry
        self._adopt(registry)
        if write:
            await self._write(registry)

    async def make(self, function: Callable[[Registry], _T]) -> _T:
        """Let a function change the registrations; return its result when the change is durable.

        The function raises a `CogmentError` to refuse, having changed nothing.

        Raises:
            CogmentError: what the function raised.
            UnavailableError: the file cannot be written, or we are stopping.

        After `Cancelled` the change has been made if it was just being written, or else is not made.
        """
        change = _Change(function)
        try:
            await self._send.send(change)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
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
        """Make the changes, until cancelled; those that wait then are refused."""
        try:
            while True:
                await self._wait()
                draft = self._registry.copy()
                made = [change for change in self._batch if not change.abandoned and change.try_on(draft)]
                if made or self._failed:
                    problem = await self._write(draft)
                    if problem is None:
                        self._registry = draft
                        self._adopt(draft)
                    for change in made:
                        change.refusal = problem
                self._settle()
        finally:
            self._refuse_the_rest()

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

    async def _write(self, registry: Registry) -> UnavailableError | None:
        try:
            await self._save(registry)
        except OSError as error:
            if not self._failed:
                _log.warning("the registrations cannot be written, nobody can register: %s", error)
            self._failed = True
            return UnavailableError(f"the directory cannot write its file: {error}")
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
