"""The accounts that have created worlds: which of them have a connection still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from trio_util import AsyncValue


class Maker:
    """One account.

    Attributes:
        connections: how many it has.
    """

    __slots__ = ("__weakref__", "connections")

    def __init__(self) -> None:
        self.connections = AsyncValue(0)


class Makers:
    """All accounts that have a connection, or a world."""

    def __init__(self) -> None:
        self._makers: WeakValueDictionary[str, Maker] = WeakValueDictionary()

    def of(self, account: str) -> Maker:
        """Return that of an account: the same one for as long as somebody has it."""
        return self._makers.setdefault(account, Maker())

    @contextmanager
    def present(self, account: str) -> Iterator[None]:
        """Count a connection of an account for the time of the block."""
        maker = self.of(account)
        maker.connections.value += 1
        try:
            yield
        finally:
            maker.connections.value -= 1
