"""Turns to read samples: of all calls, only a few hold a page that their clients have not taken."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType

import trio

from trio_cogment.budget.transfer_slots import Transfer, TransferSlots, transfer_of
from trio_cogment.rpc import ServerCall, SharedMessage


class ReadingTurn:
    """The turns of one call, as an asynchronous context manager: each is for a page, from reading it to sending it.

    Args:
        slots: of the datastore.
        call: whose client gets the samples.
    """

    def __init__(self, slots: TransferSlots, call: ServerCall) -> None:
        self._slots = slots
        self._call = call
        self._given = 0
        self._transfer: Transfer | None = None
        self._held = AsyncExitStack()

    async def begin(self) -> None:
        """Wait until a page may be read; if one may be already, nothing happens."""
        if self._transfer is None:
            transfer = transfer_of(self._call, lambda: self._given)
            await self._held.enter_async_context(self._slots.slot(transfer))
            self._transfer = transfer

    async def end(self) -> None:
        """The page is sent, or there was nothing in it."""
        self._transfer = None
        await self._held.aclose()

    async def send(self, reply: SharedMessage, size: int) -> None:
        """Send a sample of the page, whose bytes are not copied while they wait for the client.

        Raises:
            ResourceExhaustedError: the client takes next to nothing, and others wait.
        """
        call, transfer = self._call, self._transfer
        assert transfer is not None
        self._given += size
        try:
            # Reading the next page is a checkpoint in any case.
            call.send_shared_nowait(reply)
        except trio.WouldBlock:
            with trio.CancelScope() as scope, transfer.clients_turn(scope):
                await call.send_shared(reply)
            self._slots.check(transfer)

    async def __aenter__(self) -> ReadingTurn:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.end()
