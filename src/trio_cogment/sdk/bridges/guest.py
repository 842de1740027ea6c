"""Trio as a guest of its caller's thread: the run itself, from its start to its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import trio
from outcome import Outcome

from trio_cogment.rpc import OwnNursery


class GuestRun(ABC):
    """Trio in a thread whose loop is somebody else's, which calls what it is given (Trio's reference, "guest mode").

    A subclass says what the run holds, and knows the loop.
    """

    def __init__(self) -> None:
        #: Cancels what the run holds, and so ends the run.
        self._scope = trio.CancelScope()

    def _start_run(
        self,
        soon: Callable[[Callable[[], object]], object],
        *,
        same_thread_soon: Callable[[Callable[[], object]], object] | None = None,
        clock: trio.abc.Clock | None = None,
    ) -> None:
        """Start it.

        Args:
            soon: has a function called by the loop; from any thread.
            same_thread_soon: the same, from this thread; by default `soon`.
            clock: Trio's time.
        """
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=soon,
            run_sync_soon_not_threadsafe=same_thread_soon,
            done_callback=self._done,
            # asyncio has one, and a view looks for signals at every turn.
            host_uses_signal_set_wakeup_fd=True,
            clock=clock,
        )
        self._token = trio.lowlevel.current_trio_token()

    async def _main(self) -> None:
        async with OwnNursery() as beside:
            with self._scope:
                await self._hold(beside)
            beside.cancel_scope.cancel()

    @abstractmethod
    async def _hold(self, beside: trio.Nursery) -> None:
        """Hold what is open until the scope is cancelled.

        Args:
            beside: for tasks that go on until all that is held has been closed.
        """

    @abstractmethod
    def _done(self, ended: Outcome[None]) -> None:
        """Hear, from the loop, that the run has ended."""

    def soon(self, function: Callable[[], object]) -> None:
        """Have a function called in Trio, from any thread; if the run has ended, there is nothing to call it for."""
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            pass
