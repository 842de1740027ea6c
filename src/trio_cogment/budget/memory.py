"""The memory that the connections of a process borrow, and whatever else waits in it for a peer.

There is one for all servers and channels of a run of Trio, because they share its process: what a server receives often
waits to be sent on, by another server or by a channel. Servers bring what may be lent
(`RpcConfig.server_memory_bytes`); a run without a server has no such limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from trio_cogment.base.config import RpcConfig
from trio_cogment.budget.byte_pool import BytePool
from trio_cogment.budget.debts import Debtor, Debts

#: A large message has to fit into what one connection may borrow, with others beside it.
_LARGE_MESSAGES = 16
#: How long borrowed memory may be of no use while others wait for it: see `Debts`.
_MESSAGE_SECONDS = 2.0
_READER_SECONDS = 10.0
_LOOK_SECONDS = 0.5


class ConnectionMemory:
    """What connections borrow from.

    Attributes:
        messages: for bytes that wait: to be received by the application, or to be taken by the peer.
        windows: for what peers may send without being asked, beyond the first 64 KiB of each. It is another pool,
            because a promise cannot be taken back: those who were promised much and send nothing would otherwise keep
            what others need for messages.
    """

    def __init__(self) -> None:
        self.messages = BytePool()
        self.windows = BytePool()
        self._debtors: dict[Debtor, None] = {}
        self._debts = Debts(_MESSAGE_SECONDS, _READER_SECONDS)
        self._looking = False
        self._servers: list[int] = []

    @contextmanager
    def lent_by(self, config: RpcConfig) -> Iterator[None]:
        """Lend what a server brings, for the time of the block."""
        size = max(config.server_memory_bytes, _LARGE_MESSAGES * config.max_receive_message_bytes)
        self._servers.append(size)
        self._add_up()
        try:
            yield
        finally:
            self._servers.remove(size)
            self._add_up()

    def watch(self, debtor: Debtor) -> None:
        """Look after what a connection borrows, until it is forgotten."""
        self._debtors[debtor] = None

    def forget(self, debtor: Debtor) -> None:
        """The connection is gone."""
        del self._debtors[debtor]

    def look_at_debts(self) -> None:
        """See to it that those who have borrowed get on, as long as others wait for it."""
        if not self._looking:
            self._looking = True
            trio.lowlevel.spawn_system_task(self._look_while_short, name="memory of connections")

    async def _look_while_short(self) -> None:
        try:
            while self.messages.short:
                self._debts.look(list(self._debtors), trio.current_time())
                self.messages.ask()  # some need nothing any more
                await trio.sleep(_LOOK_SECONDS)
        finally:
            self._debts.forget()
            self._looking = False

    def _add_up(self) -> None:
        total = sum(self._servers) if self._servers else math.inf
        self.messages.total = total
        self.windows.total = total / 2


_memory: trio.lowlevel.RunVar[ConnectionMemory] = trio.lowlevel.RunVar("trio_cogment.rpc memory")


def memory_of_run() -> ConnectionMemory:
    """Return the memory of this run of Trio."""
    try:
        return _memory.get()
    except LookupError:
        memory = ConnectionMemory()
        memory.messages.on_short = memory.look_at_debts
        _memory.set(memory)
        return memory
